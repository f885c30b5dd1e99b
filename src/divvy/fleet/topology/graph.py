"""The graph: places that bytes can be, links with one-way capacities, and where each number came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any


class Kind(StrEnum):
    """What a vertex is."""

    GPU = "gpu"
    NIC = "nic"
    PCIE_SWITCH = "pcie_switch"
    HOST_BRIDGE = "host_bridge"
    NUMA = "numa"
    MEMORY = "memory"
    NVSWITCH = "nvswitch"
    SWITCH = "switch"
    FABRIC = "fabric"
    NODE = "node"
    STORAGE = "storage"
    CXL = "cxl"
    PCI = "pci"


class LinkKind(StrEnum):
    """What a link is made of; the routes are named after it."""

    NVLINK = "nvlink"
    XGMI = "xgmi"
    C2C = "c2c"
    PCIE = "pcie"
    HOST = "host"
    MEMORY = "memory"
    SOCKET = "socket"
    NETWORK = "network"
    TCP = "tcp"
    STORAGE = "storage"
    CXL = "cxl"


class Origin(IntEnum):
    """Where a capacity came from; the higher number wins when inputs disagree."""

    DEFAULT = 0
    LABEL = 1
    WIDTH = 2
    MEASURED = 3


@dataclass(frozen=True, slots=True)
class Source:
    """The provenance of a number.

    Attributes:
        origin: The class of evidence.
        text: What was read or assumed, such as ``link_width 16 at 16 GT/s``.
        where: The input it was read from; empty for a default.
    """

    origin: Origin
    text: str
    where: str = ""

    @property
    def word(self) -> str:
        """Return ``measured``, ``width``, ``label`` or ``default``."""
        return self.origin.name.lower()


@dataclass(frozen=True, slots=True)
class Vertex:
    """A place or a junction.

    Attributes:
        id: Unique name; for devices of a matrix the name of their column.
        kind: What it is.
        name: The system's own name (``mlx5_0``), empty where unknown.
        bus: PCI address in lower case, empty where unknown.
        numa: NUMA node number, None where unknown.
        machine: The machine it belongs to, empty in a graph of one machine.
        model: Model name of the card where it is known.
        peer: Whether the device takes part in PCIe peer-to-peer; None means unknown (taken as yes).
        domain: NVLink domain of a cluster, empty elsewhere.
        facts: Further words from the input, shown to people.
    """

    id: str
    kind: Kind
    name: str = ""
    bus: str = ""
    numa: int | None = None
    machine: str = ""
    model: str = ""
    peer: bool | None = None
    domain: str = ""
    facts: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the vertex as the ``divvy.topo/1`` document shows it: only what is known."""
        out: dict[str, Any] = {"id": self.id, "kind": str(self.kind)}
        for key in ("name", "bus", "numa", "machine", "model", "peer", "domain"):
            value = getattr(self, key)
            if value not in ("", None):
                out[key] = value
        out.update({key: value for key, value in self.facts if key not in out})
        return out


@dataclass(frozen=True, slots=True)
class Link:
    """An edge; it carries `gb_per_s` in each direction at once.

    Attributes:
        a: One end (the outer one: the device, the child).
        b: The other end.
        kind: What it is made of.
        gb_per_s: One-way capacity, 1e9 bytes per second.
        source: Where the capacity came from.
        latency_us: One-way latency, microseconds.
        bridges: PCIe bridges folded into this link (for the labels).
        both_ways: Sum of both directions over one direction (2.0: full duplex).
        count: NVLinks bundled in it, 0 elsewhere.
    """

    a: str
    b: str
    kind: LinkKind
    gb_per_s: float
    source: Source
    latency_us: float = 1.0
    bridges: int = 0
    both_ways: float = 2.0
    count: int = 0

    @property
    def ends(self) -> tuple[str, str]:
        """Return the ends in a fixed order: the identity of the link together with its kind."""
        return (self.a, self.b) if self.a <= self.b else (self.b, self.a)

    def to_json(self) -> dict[str, Any]:
        """Return the link as the ``divvy.topo/1`` document shows it."""
        out: dict[str, Any] = {
            "a": self.a,
            "b": self.b,
            "kind": str(self.kind),
            "gb_per_s": round(self.gb_per_s, 6),
            "source": self.source.word,
            "source_text": self.source.text,
            "source_file": self.source.where,
            "latency_us": self.latency_us,
        }
        if self.both_ways != 2.0:
            out["both_ways_gb_per_s"] = round(self.gb_per_s * self.both_ways, 6)
        return out


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the reader of a topology should know.

    Attributes:
        code: Stable word.
        where: Row and column, device or link, with the input's name.
        text: What was seen.
        fix: What to do.
    """

    code: str
    where: str
    text: str
    fix: str

    def to_json(self) -> dict[str, str]:
        """Return the finding as the documents show it."""
        return {"code": self.code, "where": self.where, "text": self.text, "fix": self.fix}


@dataclass(frozen=True, slots=True)
class Peering:
    """How well the processor passes peer traffic from one PCIe root to another.

    A processor is a poor PCIe switch (NCCL issue 465): through a host bridge it moves less than its
    memory path does, and across sockets less still.

    Attributes:
        socket_gb_per_s: Through one socket, one way, all pairs together.
        cross_gb_per_s: From one socket to another, one way.
        allowed: Whether GPUs may use PCIe peer-to-peer at all.
    """

    socket_gb_per_s: float
    cross_gb_per_s: float
    allowed: bool = True


@dataclass(frozen=True, slots=True)
class Topology:
    """One merged picture of a machine or a cluster.

    Attributes:
        name: What to call it (the inputs' names).
        vertices: By id, in the order of the input.
        links: All links.
        pairs: Label of each device pair that is known, keyed (a, b) in the order of the input.
        findings: What is wrong or unknown.
        peering: The processor as a PCIe switch.
        sources: Names of the inputs.
    """

    name: str
    vertices: MappingProxyType[str, Vertex]
    links: tuple[Link, ...]
    pairs: MappingProxyType[tuple[str, str], str]
    findings: tuple[Finding, ...]
    peering: Peering
    sources: tuple[str, ...] = ()
    _aliases: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def of_kind(self, *kinds: Kind) -> list[Vertex]:
        """Return the vertices of these kinds, in order."""
        return [v for v in self.vertices.values() if v.kind in kinds]

    def neighbours(self) -> dict[str, list[tuple[str, Link]]]:
        """Return, for each vertex, its links with the vertex at their other end."""
        out: dict[str, list[tuple[str, Link]]] = {name: [] for name in self.vertices}
        for link in self.links:
            out[link.a].append((link.b, link))
            out[link.b].append((link.a, link))
        return out

    def label(self, a: str, b: str) -> str | None:
        """Return the label of a pair in either order, None where unknown."""
        return self.pairs.get((a, b)) or self.pairs.get((b, a))

    def resolve(self, text: str) -> str | None:
        """Return the vertex id that an id, a system name or a PCI address means."""
        if text in self.vertices:
            return text
        if not self._aliases:
            for vertex in self.vertices.values():
                for alias in (vertex.name, vertex.bus, vertex.id.lower()):
                    if alias:
                        self._aliases.setdefault(alias.lower(), vertex.id)
        return self._aliases.get(text.lower())

    def with_links(self, links: Iterable[Link]) -> Topology:
        """Return the same topology with other links."""
        return replace(self, links=tuple(links), _aliases={})

    def to_json(self) -> dict[str, Any]:
        """Return the ``divvy.topo/1`` document."""
        return {
            "schema": "divvy.topo/1",
            "name": self.name,
            "sources": list(self.sources),
            "vertices": [vertex.to_json() for vertex in self.vertices.values()],
            "links": [link.to_json() for link in self.links],
            "pairs": [{"a": a, "b": b, "label": label} for (a, b), label in self.pairs.items()],
            "peering": {
                "allowed": self.peering.allowed,
                "socket_gb_per_s": self.peering.socket_gb_per_s,
                "cross_gb_per_s": self.peering.cross_gb_per_s,
            },
            "warnings": [finding.to_json() for finding in self.findings],
        }


def topology(
    name: str,
    vertices: Iterable[Vertex],
    links: Iterable[Link],
    peering: Peering,
    *,
    pairs: dict[tuple[str, str], str] | None = None,
    findings: Iterable[Finding] = (),
    sources: Iterable[str] = (),
) -> Topology:
    """Return a topology from its parts, with vertices keyed by their id."""
    return Topology(
        name=name,
        vertices=MappingProxyType({vertex.id: vertex for vertex in vertices}),
        links=tuple(links),
        pairs=MappingProxyType(dict(pairs or {})),
        findings=tuple(findings),
        peering=peering,
        sources=tuple(sources),
    )


def pairs_of(ids: list[str]) -> Iterator[tuple[str, str]]:
    """Yield every unordered pair, in the order of the ids."""
    for i, a in enumerate(ids):
        for b in ids[i + 1 :]:
            yield a, b
