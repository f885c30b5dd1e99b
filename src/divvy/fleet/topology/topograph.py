"""Topograph cluster models (NVIDIA/topograph, YAML): a tree of switches, blocks of nodes, NVLink domains.

The file names nodes and says nothing of their inside, so a node of known kind is put there: its
capacities carry the provenance ``default``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from divvy.errors import InputError
from divvy.fleet.topology.graph import Kind, Link, LinkKind, Origin, Source, Vertex
from divvy.fleet.topology.reading import Reading
from divvy.fleet.topology.speeds import NVLINK_C2C_GB_PER_S, PCIE_BOTH_WAYS

_RANGE: Final = re.compile(r"^(.*)\[([^\]]*)\](.*)$")
_NVL72_NODES = 18
_MOST_NODES = 10_000
_X16_GEN5 = 63.015385
_NIC = 50.0
UPLINK: Final = Source(Origin.DEFAULT, "uplink not given; a non-blocking tree is assumed")
FORM: Final = "topograph model"
_FIX = "see tests/models in NVIDIA/topograph for the form: switches, blocks"


def read_topograph(name: str, text: str) -> Reading:
    """Return what a topograph model says.

    Raises:
        InputError: If the text is not YAML or has neither switches nor blocks.
    """
    reading = Reading(name, FORM, tree=True, cluster=True)
    document = _load(name, text, reading)
    switches = document.get("switches") if isinstance(document.get("switches"), dict) else {}
    blocks = [b for b in document.get("blocks") or [] if isinstance(b, dict)]
    if not switches and not blocks:
        raise InputError.one("unreadable", f"{name} has neither switches nor blocks", path=name, fix=_FIX)
    domains: dict[str, list[str]] = {}
    below: dict[str, float] = {}
    for position, block in enumerate(blocks):
        _block(block, position, reading, domains, below)
    for domain, nodes in domains.items():
        _domain(domain, nodes, reading)
    _switches(switches or {}, below, reading)
    if blocks:
        reading.facts["assumed"] = "inside of the nodes"
    return reading


def _load(name: str, text: str, reading: Reading) -> Mapping[str, Any]:
    """Return the document; of a damaged one, the part before the fault."""
    lines = text.splitlines()
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line if mark is not None else len(lines)
        where = f"line {line + 1}"
        document = None
        for end in range(min(line, len(lines)), 0, -1):
            try:
                document = yaml.safe_load("\n".join(lines[:end]))
            except yaml.YAMLError:
                continue
            if isinstance(document, dict):
                break
        reading.warn(
            "yaml-cut",
            where,
            f"not YAML from here on ({getattr(error, 'problem', '')}); it is left out",
            _FIX,
        )
    if not isinstance(document, dict):
        raise InputError.one("unreadable", f"{name} is not a topograph model", path=name, fix=_FIX)
    return document


def expand(text: str) -> list[str]:
    """Return the names that a host list such as ``node[1101-1118]`` or ``I[21-22,25]`` means.

    Raises:
        ValueError: If a range runs backwards or is longer than any cluster.
    """
    match = _RANGE.match(text)
    if match is None:
        return [text]
    head, body, tail = match.groups()
    out: list[str] = []
    for part in body.split(","):
        first, dash, last = part.strip().partition("-")
        if dash and first.isdigit() and last.isdigit():
            if not 0 <= int(last) - int(first) < _MOST_NODES:
                raise ValueError(f"the range {part.strip()} is empty or longer than {_MOST_NODES} nodes")
            out.extend(f"{head}{n:0{len(first)}d}{tail}" for n in range(int(first), int(last) + 1))
        elif part.strip():
            out.append(f"{head}{part.strip()}{tail}")
    return out


def _block(
    block: Mapping[str, Any],
    position: int,
    reading: Reading,
    domains: dict[str, list[str]],
    below: dict[str, float],
) -> None:
    """Add the nodes of one block and join them to their leaf switch."""
    leaf = str(block.get("switch") or "")
    entries = block.get("nodes") or []
    entries = entries if isinstance(entries, list) else [entries]
    where = f"blocks[{position}]"
    nodes: list[str] = []
    for entry in entries:
        try:
            nodes.extend(expand(str(entry)))
        except ValueError as error:
            reading.warn("node-range", f"{where}, {entry}", f"{error}; it is left out", _FIX)
    if not nodes:
        reading.warn("block-empty", where, "the block has no nodes", _FIX)
    notes = block.get("annotations") or block.get("labels")
    notes = notes if isinstance(notes, dict) else {}
    domain = next((str(v) for k, v in notes.items() if "accelerator" in str(k) or "clique" in str(k)), "")
    gpus = 4 if len(nodes) == _NVL72_NODES else 8
    for node in nodes:
        if f"{node}/GPU0" in reading.vertices:
            reading.warn(
                "node-twice", f"{where}, {node}", "the node is in two blocks; the first is used", _FIX
            )
            continue
        _node(node, domain, gpus, leaf, reading, grace=len(nodes) == _NVL72_NODES)
        domains.setdefault(domain or node, []).extend(f"{node}/GPU{i}" for i in range(gpus))
        below[leaf] = below.get(leaf, 0.0) + gpus * _NIC
    if not leaf:
        reading.warn(
            "block-unattached", where, "the block names no switch: its nodes cannot reach the others", _FIX
        )


def _node(node: str, domain: str, gpus: int, leaf: str, reading: Reading, *, grace: bool) -> None:
    """Add one node: GPUs with a NIC each, sockets with half of them each."""
    assumed = Source(Origin.DEFAULT, f"inside of the node assumed: {gpus} GPUs with a 400 Gb/s NIC each")
    for half in range(2):
        numa = f"{node}/numa{half}"
        reading.vertices[numa] = Vertex(numa, Kind.NUMA, numa=half, machine=node)
    reading.links.append(Link(f"{node}/numa0", f"{node}/numa1", LinkKind.SOCKET, 40.0, assumed, 0.3))
    for i in range(gpus):
        half = i * 2 // gpus
        gpu, nic, switch = f"{node}/GPU{i}", f"{node}/NIC{i}", f"{node}/sw{i}"
        reading.vertices[gpu] = Vertex(gpu, Kind.GPU, numa=half, machine=node, domain=domain)
        reading.vertices[nic] = Vertex(nic, Kind.NIC, numa=half, machine=node)
        reading.vertices[switch] = Vertex(switch, Kind.PCIE_SWITCH, numa=half, machine=node)
        numa = f"{node}/numa{half}"
        for a, b in ((gpu, switch), (nic, switch), (switch, numa)):
            reading.links.append(Link(a, b, LinkKind.PCIE, _X16_GEN5, assumed, 0.5, both_ways=PCIE_BOTH_WAYS))
        if grace:
            reading.links.append(Link(gpu, numa, LinkKind.C2C, NVLINK_C2C_GB_PER_S, assumed, 0.6))
        if leaf:
            reading.links.append(Link(nic, leaf, LinkKind.NETWORK, _NIC, assumed, 2.0))


def _domain(domain: str, gpus: list[str], reading: Reading) -> None:
    """Join the GPUs of one NVLink domain by a switch plane."""
    plane = f"nvswitch:{domain}"
    nodes = {gpu.split("/")[0] for gpu in gpus}
    reading.vertices[plane] = Vertex(
        plane, Kind.NVSWITCH, domain=domain, machine="" if len(nodes) > 1 else nodes.pop()
    )
    rate, text = (900.0, "NVLink 5") if len(gpus) == 4 * _NVL72_NODES else (450.0, "NVLink 4")
    source = Source(Origin.DEFAULT, f"{text} per GPU, one way; the file names the domain only")
    reading.links.extend(Link(gpu, plane, LinkKind.NVLINK, rate, source, 0.6) for gpu in gpus)


def _switches(switches: Mapping[str, Any], below: dict[str, float], reading: Reading) -> None:
    """Add network switches; each uplink carries what hangs below it (a non-blocking tree)."""
    for name in below:
        if name:
            reading.vertices.setdefault(name, Vertex(name, Kind.SWITCH))
    children: dict[str, list[str]] = {}
    for name, body in switches.items():
        content = body if isinstance(body, dict) else {}
        labels = content.get("labels") or {}
        facts = tuple((str(k), str(v)) for k, v in labels.items()) if isinstance(labels, dict) else ()
        reading.vertices[str(name)] = Vertex(str(name), Kind.SWITCH, facts=facts)
        listed = content.get("switches") or []
        children[str(name)] = [str(c) for c in listed] if isinstance(listed, list) else []
    for name, listed in children.items():
        for child in listed:
            if child not in reading.vertices:
                reading.vertices[child] = Vertex(child, Kind.SWITCH)
                reading.warn(
                    "switch-undefined",
                    f"switches.{name}",
                    f"{child} is named here only; nothing is below it",
                    _FIX,
                )
    _circles(children, reading)
    for name, listed in children.items():
        for child in listed:
            rate = weight(child, children, below, frozenset({name}))
            if rate:
                reading.links.append(Link(child, name, LinkKind.NETWORK, rate, UPLINK, 0.5))


def _circles(children: Mapping[str, list[str]], reading: Reading) -> None:
    """Report switches that are above themselves."""
    for name in children:
        if name in _under(name, children):
            text = f"{name} is above itself; a tree has no circle"
            reading.warn("switch-circle", f"switches.{name}", text, _FIX)


def _under(name: str, children: Mapping[str, list[str]]) -> set[str]:
    """Return every switch below a switch."""
    found: set[str] = set()
    waiting = list(children.get(name, ()))
    while waiting:
        child = waiting.pop()
        if child not in found:
            found.add(child)
            waiting.extend(children.get(child, ()))
    return found


def weight(name: str, children: dict[str, list[str]], below: dict[str, float], seen: frozenset[str]) -> float:
    """Return the NIC rate below a switch.

    Args:
        name: The switch.
        children: Switches below each switch.
        below: Rate of the NICs that hang on each switch itself.
        seen: Switches above, so that a circle ends.
    """
    if name in seen:
        return 0.0
    more = (weight(child, children, below, seen | {name}) for child in children.get(name, ()))
    return below.get(name, 0.0) + sum(more)
