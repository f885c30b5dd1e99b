"""Measured NIC pairs (Mooncake TENT), bandwidth matrices, peer support, Kubernetes node labels."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any, Final

from divvy.errors import InputError
from divvy.fleet.topology.graph import Kind, Link, LinkKind, Origin, Source, Vertex
from divvy.fleet.topology.matrix_rows import plain
from divvy.fleet.topology.reading import Reading
from divvy.fleet.topology.speeds import HOST_MEMORY_GB_PER_S

_PEER_CELL: Final = re.compile(r"X|OK|CNS|GNS|TNS|NS|U", re.ASCII)
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?|N/A", re.ASCII)


def read_tent(name: str, document: Any) -> Reading:
    """Return Mooncake TENT's cluster topology: what every pair of NICs of two hosts measured."""
    reading = Reading(name, "Mooncake TENT cluster topology", tree=True, cluster=True)
    entries = document.get("data") if isinstance(document, dict) else document
    best: dict[str, float] = {}
    for position, entry in enumerate(entries if isinstance(entries, list) else []):
        if not isinstance(entry, dict):
            continue
        hosts = (str(entry.get("src_host", "")), str(entry.get("dst_host", "")))
        for index, pair in enumerate(entry.get("endpoints") or []):
            where = f"data[{position}].endpoints[{index}]"
            try:
                ends = [f"{h}/{pair[f'{side}_dev']}" for h, side in zip(hosts, ("src", "dst"), strict=True)]
                rate, latency = float(pair["bandwidth"]) / 1000.0, float(pair["latency"])
                numas = [int(pair[f"{side}_numa"]) for side in ("src", "dst")]
                if not (0 < rate < math.inf and 0 <= latency < math.inf):
                    raise ValueError(f"{rate * 1000:g} MB/s in {latency:g} us")  # noqa: TRY301 - one way to report it
            except (KeyError, TypeError, ValueError) as error:
                reading.warn(
                    "pair-unreadable", where, f"{error!r}; left out", "measure it again with Mooncake's tool"
                )
                continue
            for host, nic, numa in zip(hosts, ends, numas, strict=True):
                reading.vertices.setdefault(host, Vertex(host, Kind.NODE, machine=host))
                reading.vertices.setdefault(
                    nic, Vertex(nic, Kind.NIC, name=nic.rsplit("/", 1)[1], numa=numa, machine=host)
                )
                best[nic] = max(best.get(nic, 0.0), rate)
            source = Source(Origin.MEASURED, f"bandwidth {pair['bandwidth']} MB/s", name)
            reading.links.append(Link(ends[0], ends[1], LinkKind.NETWORK, rate, source, latency))
    if not best:
        raise InputError.one("unreadable", f"{name} holds no measured NIC pair", path=name)
    for nic, rate in best.items():
        host = reading.vertices[nic].machine
        source = Source(Origin.MEASURED, "the best rate that this NIC reached", name)
        reading.links.append(Link(nic, host, LinkKind.PCIE, rate, source, 0.5))
    return reading


def read_peer_matrix(name: str, text: str) -> Reading:
    """Return which pairs may use peer-to-peer (`nvidia-smi topo -p2p r`)."""
    reading = Reading(name, "nvidia-smi topo -p2p")
    columns: list[str] = []
    for number, line in enumerate(plain(text), start=1):
        words = line.split()
        if words and all(re.fullmatch(r"GPU\d+", w) for w in words):
            columns = words
        elif columns and words and words[0] in columns:
            cells = words[1:]
            if len(cells) != len(columns) or not all(_PEER_CELL.fullmatch(c) for c in cells):
                reading.warn(
                    "row-damaged",
                    f"row {words[0]}, line {number}",
                    "cells are missing; the row is left out",
                    "run it again",
                )
                continue
            for column, cell in zip(columns, cells, strict=True):
                if cell != "X":
                    reading.peer_allowed[words[0], column] = cell == "OK"
    return reading


def read_bandwidth(name: str, text: str) -> Reading:
    """Return measured one-way rates between GPUs (p2pBandwidthLatencyTest, nvbandwidth).

    Of p2pBandwidthLatencyTest the unidirectional matrix with peer access is read; row is the source.
    """
    reading = Reading(name, "measured bandwidth matrix")
    lines = plain(text)
    start = next(
        (
            i
            for pattern in ("Unidirectional P2P=Enabled", "device_to_device", "Bandwidth Matrix", "memcpy")
            for i, line in enumerate(lines)
            if pattern in line
            and "Bidirectional" not in line
            and "Disabled" not in line
            and "GB/s" in "".join(lines[i : i + 2])
        ),
        None,
    )
    if start is None:
        raise InputError.one("unreadable", f"{name} holds no one-way bandwidth matrix in GB/s", path=name)
    columns: list[str] = []
    for number, line in enumerate(lines[start + 1 :], start=start + 2):
        words = [w for w in line.split() if w not in ("D\\D", "GPU")]
        if not words:
            if reading.measured:
                break
            continue
        if not columns:
            columns = words if all(w.isdigit() for w in words) else []
            continue
        if not words[0].isdigit() or not all(_NUMBER.fullmatch(w) for w in words):
            break
        if len(words) != len(columns) + 1:
            reading.warn(
                "row-damaged",
                f"row {words[0]}, line {number}",
                "cells are missing; the row is left out",
                "measure again",
            )
            continue
        _measured(reading, words[0], zip(columns, words[1:], strict=True))
    return reading


def _measured(reading: Reading, row: str, cells: Iterable[tuple[str, str]]) -> None:
    """Add a row of a matrix of rates; a cell that is no rate is left out and reported."""
    for column, cell in cells:
        if column == row or cell == "N/A":
            continue
        if float(cell) > 0:
            reading.measured[f"GPU{row}", f"GPU{column}"] = float(cell)
        else:
            text = f"{cell} GB/s is no measured rate; the cell is left out"
            reading.warn("cell-unreadable", f"row GPU{row}, column GPU{column}", text, "measure again")


def read_node_labels(name: str, document: Any) -> Reading:
    """Return nodes with their domains from Kubernetes labels (`kubectl get nodes -o json`)."""
    reading = Reading(name, "Kubernetes node labels", tree=True, cluster=True)
    items = document.get("items", [document]) if isinstance(document, dict) else []
    joined: set[tuple[str, str]] = set()
    for position, item in enumerate(items):
        meta = item.get("metadata", {}) if isinstance(item, dict) else {}
        labels = meta.get("labels") or {}
        node = str(meta.get("name", ""))
        if not node:
            reading.warn(
                "node-nameless",
                f"items[{position}]",
                "metadata.name is missing; left out",
                "kubectl get nodes -o json",
            )
            continue
        clique = str(labels.get("nvidia.com/gpu.clique", ""))
        reading.vertices[node] = Vertex(node, Kind.NODE, machine=node, domain=clique)
        path = [
            str(labels[key])
            for key in (
                "topology.k8s.aws/network-node-layer-3",
                "topology.k8s.aws/network-node-layer-2",
                "topology.k8s.aws/network-node-layer-1",
                "topology.kubernetes.io/zone",
                "topology.kubernetes.io/rack",
            )
            if labels.get(key)
        ] or ["network"]
        source = Source(Origin.DEFAULT, "labels say who is near whom, not how fast: 400 Gb/s assumed")
        if clique:
            plane = f"nvswitch:{clique}"
            reading.vertices.setdefault(plane, Vertex(plane, Kind.NVSWITCH, domain=clique))
            reading.links.append(Link(node, plane, LinkKind.NVLINK, 450.0, source, 0.6))
        for a, b in zip([node, *path], path, strict=False):
            reading.vertices.setdefault(b, Vertex(b, Kind.SWITCH))
            if a != b and (a, b) not in joined:
                joined.add((a, b))
                reading.links.append(
                    Link(a, b, LinkKind.NETWORK, 50.0 if a == node else HOST_MEMORY_GB_PER_S, source, 2.0)
                )
    if not reading.vertices:
        raise InputError.one("unreadable", f"{name} holds no node", path=name)
    return reading


def read_json(name: str, text: str) -> Reading:
    """Return what a JSON input says, by its content.

    Raises:
        InputError: If it is not JSON, or no kind of JSON that is known.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        if '"src_host"' in text:
            reading = read_tent(name, _salvage(text))
            where = f"line {error.lineno}, column {error.colno}"
            what = "the file is cut off or damaged here; whole NIC pairs are used"
            reading.warn("json-cut", where, what, "measure it again with Mooncake's tool")
            return reading
        raise InputError.one(
            "unreadable",
            f"{name} is not whole JSON: {error.msg}",
            path=f"{name}:{error.lineno}",
            fix="save it again",
        ) from error
    if '"src_host"' in text:
        return read_tent(name, document)
    if isinstance(document, dict) and ("items" in document or "metadata" in document):
        return read_node_labels(name, document)
    raise InputError.one(
        "unreadable",
        f"{name} is JSON of an unknown kind",
        path=name,
        allowed="TENT cluster topology, Kubernetes nodes",
    )


def _salvage(text: str) -> list[dict[str, Any]]:
    """Return the whole NIC pairs of a damaged TENT file, each under the hosts named last before it."""
    out: list[dict[str, Any]] = []
    for match in re.finditer(r'"(src|dst)_host"\s*:\s*"([^"]*)"|\{[^{}]*\}', text):
        if match.group(1) == "src":
            out.append({"src_host": match.group(2), "dst_host": "", "endpoints": []})
        elif match.group(1) == "dst" and out:
            out[-1]["dst_host"] = match.group(2)
        elif out and match.group(1) is None and '"src_dev"' in match.group(0):
            try:
                out[-1]["endpoints"].append(json.loads(match.group(0)))
            except json.JSONDecodeError:
                out[-1]["endpoints"].append({})  # reported as a pair that cannot be read
    return out
