"""From labels to a PCIe tree: PIX shares a switch, PXB a root, PHB a host bridge, NODE a socket."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import Final

from divvy.fleet.topology.graph import Kind, Link, LinkKind, Origin, Source, Vertex, pairs_of
from divvy.fleet.topology.pcitree import FABRIC
from divvy.fleet.topology.reading import RANK, Reading, nvlinks
from divvy.fleet.topology.speeds import (
    HOST_MEMORY_GB_PER_S,
    NVLINK_C2C_GB_PER_S,
    PCIE_BOTH_WAYS,
    PCIE_LANE_GB_PER_S,
)

_SPAN: Final = re.compile(r"(\d+)-(\d+)", re.ASCII)
_GRACE_CORES: Final = 72
_NIC_GBIT: Final = {8.0: 100.0, 16.0: 200.0, 32.0: 400.0}
_SOCKET: Final = {8.0: 10.0, 16.0: 16.0, 32.0: 22.0}


class Classes:
    """Devices joined step by step from near to far."""

    def __init__(self, items: list[str]) -> None:
        self._root = {item: item for item in items}
        self.items = items

    def find(self, item: str) -> str:
        """Return the class of an item."""
        while self._root[item] != item:
            item = self._root[item]
        return item

    def join(self, a: str, b: str) -> None:
        """Put two items into one class, named after the first in the order of the input."""
        first, second = sorted((self.find(a), self.find(b)), key=self.items.index)
        self._root[second] = first

    def groups(self, within: list[str] | None = None) -> list[list[str]]:
        """Return the classes of some items, in order."""
        out: dict[str, list[str]] = defaultdict(list)
        for item in within if within is not None else self.items:
            out[self.find(item)].append(item)
        return list(out.values())

    def copy(self) -> Classes:
        """Return the same classes, to be joined further."""
        other = Classes(self.items)
        other._root = dict(self._root)
        return other


def classes(reading: Reading) -> list[Classes]:
    """Return the classes at each level: PIX, PXB, PHB, NODE (and the same NUMA node)."""
    devices = list(reading.vertices)
    current = Classes(devices)
    levels: list[Classes] = []
    for rank in range(1, 5):
        for (a, b), label in reading.labels.items():
            if RANK.get(label, 9) <= rank:
                current.join(a, b)
        if rank == 4:
            _by_affinity(reading, current)
        levels.append(current)
        current = current.copy()
    _contradictions(reading, levels)
    return levels


def _by_affinity(reading: Reading, current: Classes) -> None:
    """Join GPUs with the same affinity, unless a label says that they are on different sockets."""
    gpus = [v for v in reading.vertices.values() if v.kind is Kind.GPU]
    apart = {
        frozenset({current.find(a), current.find(b)})
        for (a, b), label in reading.labels.items()
        if label == "SYS"
    }
    for i, a in enumerate(gpus):
        for b in gpus[i + 1 :]:
            same_numa = a.numa is not None and a.numa == b.numa
            same_cpus = a.numa is None and b.numa is None and a.facts[:1] == b.facts[:1] and a.facts[:1]
            key = frozenset({current.find(a.id), current.find(b.id)})
            if (same_numa or same_cpus) and len(key) == 2 and key not in apart:
                current.join(a.id, b.id)
                apart = {
                    frozenset({current.find(x), current.find(y)})
                    for (x, y), label in reading.labels.items()
                    if label == "SYS"
                }


def _contradictions(reading: Reading, levels: list[Classes]) -> None:
    """Report labels that say 'far' about devices which other labels put close together."""
    for (a, b), label in reading.labels.items():
        rank = RANK.get(label)
        if rank is None:
            continue
        level = next((i for i, c in enumerate(levels, start=1) if c.find(a) == c.find(b)), 5)
        if level < rank:
            word = ("PIX", "PXB", "PHB", "NODE", "SYS")[level - 1]
            reading.warn(
                "label-contradicts",
                f"row {a}, column {b}",
                f"{a} - {b} reads {label}, but through other devices they are within {word} of each "
                f"other; {label} is shown, "
                f"the tree follows the nearer one",
                "read the matrix again; a virtual machine may show a PCIe tree that is not the real one",
            )


def generation(reading: Reading) -> tuple[float, str]:
    """Return the PCIe rate in GT/s that the NVLinks suggest, and why."""
    total: dict[str, int] = defaultdict(int)
    most = 0
    for (a, b), label in reading.labels.items():
        count = nvlinks(label)
        most = max(most, count)
        total[a] += count
        total[b] += count
    if most > 12:
        return 32.0, f"NV{most} is of the PCIe 5 generation"
    if most == 0 or most > 2:
        return 16.0, "PCIe 4 assumed"
    return (
        (8.0, "NV1 and NV2 meshes are of the PCIe 3 generation")
        if max(total.values()) > 2
        else (16.0, "PCIe 4 assumed")
    )


def is_grace(reading: Reading) -> bool:
    """Return whether the GPUs sit on Grace: GPU memory with NUMA ids, or sockets of 72 cores with NV18."""
    gpus = [v for v in reading.vertices.values() if v.kind is Kind.GPU]
    if any(dict(v.facts).get("gpu_numa_id", "N/A").isdigit() for v in gpus):
        return True
    spans = [dict(v.facts).get("cpu_affinity", "") for v in gpus]
    ranges = [match.groups() for span in spans if (match := _SPAN.fullmatch(span)) is not None]
    has_18 = any(nvlinks(label) == 18 for label in reading.labels.values())
    return (
        bool(ranges) and has_18 and all(int(last) - int(first) + 1 == _GRACE_CORES for first, last in ranges)
    )


def build_tree(reading: Reading) -> None:
    """Add sockets, bridges, switches and links to a reading that has labels only."""
    levels = classes(reading)
    rate, why = generation(reading)
    lane = PCIE_LANE_GB_PER_S[rate] * 16
    taken = {v.numa for v in reading.vertices.values() if v.numa is not None}
    free = (i for i in range(len(reading.vertices) + len(taken) + 1) if i not in taken)
    builder = _Builder(reading, levels, lane, Source(Origin.DEFAULT, f"x16; {why}"), grace=is_grace(reading))
    for group in levels[3].groups():
        numbers = [reading.vertices[d].numa for d in group if reading.vertices[d].numa is not None]
        number = numbers[0] if numbers else next(free)
        numa = f"numa{number}"
        if numa in reading.vertices:  # one NUMA number on both sides of a SYS label
            numa = f"numa{next(free)}"
        reading.vertices[numa] = Vertex(numa, Kind.NUMA, numa=number)
        builder.socket(numa, group)
    nics = [v.id for v in reading.vertices.values() if v.kind is Kind.NIC]
    gbit = _NIC_GBIT[rate]
    for nic in nics:
        source = Source(Origin.DEFAULT, f"rate not in the matrix; {gbit:g} Gb/s, {why}")
        reading.links.append(Link(nic, FABRIC, LinkKind.NETWORK, gbit / 8, source, 2.0))
    numas = [v.id for v in reading.vertices.values() if v.kind is Kind.NUMA]
    for a, b in pairs_of(numas):
        socket = 100.0 if builder.grace else _SOCKET[rate]
        text = "Grace to Grace" if builder.grace else "socket to socket as NCCL assumes it"
        reading.links.append(
            Link(a, b, LinkKind.SOCKET, socket, Source(Origin.DEFAULT, f"{text}; {why}"), 0.3)
        )


class _Builder:
    """Adds the PCIe tree of each socket."""

    def __init__(
        self, reading: Reading, levels: list[Classes], lane: float, source: Source, *, grace: bool
    ) -> None:
        self.reading, self.levels, self.lane, self.source, self.grace = reading, levels, lane, source, grace
        self._numa: int | None = None
        self._count = defaultdict(int, {"hb": 0, "sw": 0})

    def _new(self, prefix: str, kind: Kind) -> str:
        name = f"{prefix}{self._count[prefix]}"
        self._count[prefix] += 1
        self.reading.vertices[name] = Vertex(name, kind, numa=self._numa)
        return name

    def _link(self, child: str, parent: str, bridges: int = 0) -> None:
        self.reading.links.append(
            Link(
                child,
                parent,
                LinkKind.PCIE,
                self.lane,
                self.source,
                0.5,
                bridges=bridges,
                both_ways=PCIE_BOTH_WAYS,
            )
        )

    def socket(self, numa: str, devices: list[str]) -> None:
        """Add the host bridges of one socket; a NIC is on the socket that its labels put it on."""
        self._numa = self.reading.vertices[numa].numa
        for device in devices:
            if self.reading.vertices[device].kind is Kind.NIC:
                self.reading.vertices[device] = replace(self.reading.vertices[device], numa=self._numa)
        if self.grace:
            source = Source(Origin.DEFAULT, "NVLink-C2C between Grace and its GPU")
            for device in [d for d in devices if self.reading.vertices[d].kind is Kind.GPU]:
                self.reading.links.append(Link(device, numa, LinkKind.C2C, NVLINK_C2C_GB_PER_S, source, 0.6))
            devices = [d for d in devices if self.reading.vertices[d].kind is not Kind.GPU]
        for group in self.levels[2].groups(devices):
            bridge = self._new("hb", Kind.HOST_BRIDGE)
            source = Source(Origin.DEFAULT, "the processor's own fabric; not a limit by itself")
            self.reading.links.append(Link(bridge, numa, LinkKind.HOST, HOST_MEMORY_GB_PER_S, source, 0.3))
            for root in self.levels[1].groups(group):
                self._root(bridge, root)

    def _root(self, bridge: str, devices: list[str]) -> None:
        """Add one root port: a device, a switch, or switches below a switch."""
        inner = self.levels[0].groups(devices)
        if len(devices) == 1:
            self._link(devices[0], bridge)
            return
        top = self._new("sw", Kind.PCIE_SWITCH)
        self._link(top, bridge)
        for group in inner:
            parent, bridges = top, 1 if len(inner) > 1 else 0
            if len(inner) > 1 and len(group) > 1:
                parent, bridges = self._new("sw", Kind.PCIE_SWITCH), 0
                self._link(parent, top)
            for device in group:
                self._link(device, parent, bridges)
