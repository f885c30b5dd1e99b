"""One door for all inputs: which kind a text is, and the graph of several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from divvy.errors import DivvyError, Fault, InputError
from divvy.fleet.topology.document import read_topology
from divvy.fleet.topology.graph import Topology
from divvy.fleet.topology.hwloc import read_hwloc
from divvy.fleet.topology.ibnet import read_ibnet, read_ibstat
from divvy.fleet.topology.matrix import read_matrix
from divvy.fleet.topology.merge import merge
from divvy.fleet.topology.nccl import read_nccl
from divvy.fleet.topology.overlays import read_bandwidth, read_json, read_peer_matrix
from divvy.fleet.topology.pcitree import PciNode
from divvy.fleet.topology.reading import Reading
from divvy.fleet.topology.topograph import read_topograph

ALLOWED: Final = (
    "nvidia-smi topo -m, -mp or -p2p r; NCCL or RCCL topology XML; hwloc XML; ibstat; ibnetdiscover; "
    "a topograph model "
    "(YAML); TENT cluster topology or Kubernetes nodes (JSON); a bandwidth matrix of "
    "p2pBandwidthLatencyTest or nvbandwidth; what divvy topo show --json printed"
)


#: Kinds of text by what only they have, in the order of asking.
_MARKS: Final = (
    ("ibnet", re.compile(r"^(?:vendid=|switchguid=|caguid=)", re.MULTILINE)),
    ("ibstat", re.compile(r"^\s*CA '", re.MULTILINE)),
    ("bandwidth", re.compile(r"Bandwidth\b.*Matrix \(GB/s\)|memcpy .*\(GB/s\)")),
    (
        "peers",
        re.compile(r"^\s*GPU\d+\s+(?:(?:X|OK|CNS|GNS|TNS|NS)\s+)*(?:OK|CNS|GNS|TNS|NS)\b", re.MULTILINE),
    ),
    ("topograph", re.compile(r"^(?:switches|blocks):", re.MULTILINE)),
    ("matrix", re.compile(r"(?:GPU|NIC)\d+")),
)


def kind_of(text: str) -> str:
    """Return the kind of an input, empty where it is none that is known."""
    head = text.lstrip("\ufeff \r\n\t")
    if head.startswith("<"):
        is_nccl = re.search(r"<system|<cpu", text) is not None
        return "hwloc" if re.search(r"<topology[\s>]|<object\s", text) else "nccl" if is_nccl else ""
    if re.match(r"\{|\[\s*[\]{]", head):
        if re.search(r'"schema"\s*:\s*"divvy\.topo/1"', text):
            return "merged"
        return "json" if re.search(r'"src_host"|"metadata"\s*:', text) else ""
    return next((kind for kind, mark in _MARKS if mark.search(text)), "")


def read(name: str, text: str, hints: dict[str, PciNode] | None = None) -> Reading:
    """Return what one input says.

    Raises:
        InputError: If the kind is unknown or nothing of it can be read.
    """
    kind = kind_of(text)
    readers = {
        "hwloc": read_hwloc,
        "ibnet": read_ibnet,
        "ibstat": read_ibstat,
        "bandwidth": read_bandwidth,
        "peers": read_peer_matrix,
        "topograph": read_topograph,
        "json": read_json,
        "matrix": read_matrix,
    }
    if kind == "nccl":
        return read_nccl(name, text, hints)
    if kind not in readers:
        raise InputError.one(
            "unreadable", f"{name} is no kind of topology input that is known", path=name, allowed=ALLOWED
        )
    return readers[kind](name, text)


def build(inputs: Sequence[tuple[str, str]]) -> Topology:
    """Return the merged graph of inputs given as (name, text).

    Raises:
        InputError: With one fault for each input that cannot be read, or if one of several is merged already.
    """
    if any(kind_of(text) == "merged" for _, text in inputs):
        if len(inputs) == 1:
            return read_topology(*inputs[0])
        raise InputError.one(
            "inputs-do-not-merge",
            f"of {', '.join(name for name, _ in inputs)} one is a merged graph already",
            path="--topo",
            fix="give it alone, or the inputs that it was merged from",
        )
    faults: list[Fault] = []
    readings: dict[int, Reading] = {}
    hints: dict[str, PciNode] = {}
    order = sorted(range(len(inputs)), key=lambda i: kind_of(inputs[i][1]) != "hwloc")
    for position in order:
        name, text = inputs[position]
        try:
            reading = read(name, text, hints)
        except DivvyError as error:
            faults.extend(error.faults)
            continue
        hints.update(reading.pci)
        readings[position] = reading
    if faults:
        raise InputError("some inputs cannot be read", faults)
    return merge([readings[i] for i in sorted(readings)])
