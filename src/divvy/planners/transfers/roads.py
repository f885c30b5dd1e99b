"""The topology as roads: which turns are possible, and which shared resource each step uses.

A link has the same capacity in each direction, but not every path through the links is a route: a GPU
without peer-to-peer must go through memory, a NIC without GPUDirect must be fed from memory, a processor
passes peer traffic worse than memory traffic. So each vertex is split into the *states* in which bytes can
be there, and arcs between states stand for steps. Routes, plans and bounds all search this one graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from divvy.errors import InputError
from divvy.fleet.topology.graph import Kind, Link, LinkKind, Topology
from divvy.perf.transfer import KINDS, KindCost

_TREE: Final = frozenset({LinkKind.PCIE, LinkKind.HOST, LinkKind.C2C, LinkKind.STORAGE, LinkKind.CXL})
_MESH: Final = frozenset({LinkKind.NVLINK, LinkKind.XGMI})
_NET: Final = frozenset({LinkKind.NETWORK, LinkKind.TCP})


class Arc(NamedTuple):
    """One step.

    Attributes:
        tail: State it leaves.
        head: State it enters.
        link: Index of the link it crosses, -1 for a turn inside a vertex.
        forward: Whether it crosses from the link's ``a`` to ``b``.
        resources: Indices of what it uses up, one unit of bytes each.
        latency_us: Added latency.
    """

    tail: int
    head: int
    link: int
    forward: bool
    resources: tuple[int, ...]
    latency_us: float


@dataclass(slots=True)
class Roads:
    """States, arcs and resources of one topology.

    Attributes:
        topo: The topology.
        names: (vertex, state) by state index.
        arcs: All steps.
        capacity: GB/s by resource.
        labels: What each resource is, for people.
        sources: State where the bytes of a vertex begin.
        sinks: State where bytes for a vertex end.
        leaving: Arcs that leave each state.
        arrays: The roads in other forms, made when they are first needed.
        near: NICs from near to far by vertex, filled when they are first asked for.
        costs: What each kind of route costs besides its bytes.
    """

    topo: Topology
    names: list[tuple[str, str]] = field(default_factory=list)
    arcs: list[Arc] = field(default_factory=list)
    capacity: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    labels: list[str] = field(default_factory=list)
    sources: dict[str, int] = field(default_factory=dict)
    sinks: dict[str, int] = field(default_factory=dict)
    leaving: list[list[int]] = field(default_factory=list)
    arrays: dict[str, object] = field(default_factory=dict)
    near: dict[tuple[str, bool], tuple[str, ...]] = field(default_factory=dict)
    costs: Mapping[str, KindCost] = field(default_factory=lambda: KINDS)

    def end(self, text: str, *, source: bool) -> str:
        """Return the vertex that a name means, if bytes can begin or end there.

        Raises:
            InputError: If there is none; the message lists the valid ones.
        """
        vertex = self.topo.resolve(text)
        places = self.sources if source else self.sinks
        if vertex is None or vertex not in places:
            valid = [
                v
                for v in places
                if self.topo.vertices[v].kind in (Kind.GPU, Kind.NODE, Kind.MEMORY, Kind.STORAGE, Kind.CXL)
            ]
            shown = ", ".join(valid[:24]) + (f" ... ({len(valid)} in all)" if len(valid) > 24 else "")
            raise InputError.one(
                "place-unknown",
                f"{text!r} is no place in {self.topo.name} where bytes can {'begin' if source else 'end'}",
                path="from" if source else "to",
                allowed=shown,
            )
        return vertex


def roads(topo: Topology, costs: Mapping[str, KindCost] = KINDS) -> Roads:
    """Return the roads of a topology."""
    ways = _Builder(topo).build()
    ways.costs = costs
    return ways


class _Builder:
    """Splits vertices into states and adds the arcs of every link."""

    def __init__(self, topo: Topology) -> None:
        self.topo = topo
        self.out = Roads(topo)
        self.state: dict[tuple[str, str], int] = {}
        self.capacity: list[float] = []
        self.peer_of: dict[str, int] = {}
        self.cross: dict[str, int] = {}
        self.joined: set[tuple[int, int]] = set()

    def build(self) -> Roads:
        """Return the finished roads."""
        for link_index, link in enumerate(self.topo.links):
            self._link(link_index, link)
        for vertex in self.topo.vertices.values():
            self._turns(vertex.id, vertex.kind)
            self._ends(vertex.id, vertex.kind)
        self.out.capacity = np.array(self.capacity, dtype=np.float64)
        self.out.leaving = [[] for _ in self.out.names]
        for index, arc in enumerate(self.out.arcs):
            self.out.leaving[arc.tail].append(index)
        return self.out

    def _at(self, vertex: str, state: str = "") -> int:
        key = (vertex, state)
        if key not in self.state:
            self.state[key] = len(self.out.names)
            self.out.names.append(key)
        return self.state[key]

    def _resource(self, capacity: float, label: str) -> int:
        self.capacity.append(capacity)
        self.out.labels.append(label)
        return len(self.capacity) - 1

    def _arc(
        self, tail: int, head: int, resources: tuple[int, ...], link: int = -1, *, forward: bool = True
    ) -> None:
        latency = self.topo.links[link].latency_us if link >= 0 else 0.0
        if (tail, head) in self.joined:  # a second link between the same states goes by a state of its own
            beside = self._at(self.out.names[head][0], f"beside {len(self.out.arcs)}")
            self.out.arcs.append(Arc(tail, beside, link, forward, resources, latency))
            tail, link, resources, latency = beside, -1, (), 0.0
        self.joined.add((tail, head))
        self.out.arcs.append(Arc(tail, head, link, forward, resources, latency))

    def _peer(self, vertex: str) -> int:
        """Return the resource of peer traffic through the socket of a vertex."""
        place = self.topo.vertices[vertex]
        key = f"{place.machine}/{place.numa if place.numa is not None else vertex}"
        if key not in self.peer_of:
            self.peer_of[key] = self._resource(
                self.topo.peering.socket_gb_per_s, f"peer traffic through {vertex}"
            )
        return self.peer_of[key]

    def _is_peer(self, vertex: str) -> bool:
        """Return whether a device takes part in peer-to-peer."""
        place = self.topo.vertices[vertex]
        allowed = self.topo.peering.allowed or place.kind is not Kind.GPU
        return allowed and place.peer is not False

    def _link(self, index: int, link: Link) -> None:
        forward = self._resource(link.gb_per_s, f"{link.a} -> {link.b}")
        backward = self._resource(link.gb_per_s, f"{link.b} -> {link.a}")
        up: tuple[int, ...] = (forward,)
        down: tuple[int, ...] = (backward,)
        if link.both_ways < 2.0:
            both = self._resource(link.gb_per_s * link.both_ways, f"{link.a} <-> {link.b}")
            up, down = (forward, both), (backward, both)
        if link.kind in _MESH or link.kind in _NET or Kind.NODE in (self._kind(link.a), self._kind(link.b)):
            self._plain(index, link, up, down)
        elif link.kind is LinkKind.MEMORY or (link.kind is LinkKind.CXL and self._on_socket(link)):
            memory, numa = (link.b, link.a) if self._kind(link.a) is Kind.NUMA else (link.a, link.b)
            is_up = memory == link.a
            self._arc(self._at(numa, "to"), self._at(memory), down if is_up else up, index, forward=not is_up)
            self._arc(self._at(memory), self._at(numa, "from"), up if is_up else down, index, forward=is_up)
        elif link.kind is LinkKind.SOCKET:
            self._socket(index, link, up, down)
        elif link.kind in _TREE:
            self._tree(index, link, up, down)

    def _on_socket(self, link: Link) -> bool:
        return Kind.NUMA in (self._kind(link.a), self._kind(link.b))

    def _kind(self, vertex: str) -> Kind:
        return self.topo.vertices[vertex].kind

    def _plain(self, index: int, link: Link, up: tuple[int, ...], down: tuple[int, ...]) -> None:
        """Add a link that is crossed without conditions; NICs and nodes differ by direction."""
        for a, b, resources, forward in ((link.a, link.b, up, True), (link.b, link.a, down, False)):
            outward = self._kind(a) is Kind.NODE or (
                self._kind(a) is Kind.NIC and self._kind(b) is not Kind.NODE
            )
            tail = self._at(a, ("out" if outward else "in") if self._kind(a) in (Kind.NIC, Kind.NODE) else "")
            head_out = self._kind(a) is Kind.NODE and self._kind(b) is Kind.NIC
            head = self._at(
                b, ("out" if head_out else "in") if self._kind(b) in (Kind.NIC, Kind.NODE) else ""
            )
            self._arc(tail, head, resources, index, forward=forward)

    def _socket(self, index: int, link: Link, up: tuple[int, ...], down: tuple[int, ...]) -> None:
        machine = self.topo.vertices[link.a].machine
        for a, b, resources, forward in ((link.a, link.b, up, True), (link.b, link.a, down, False)):
            key = f"{machine}/{a}>{b}"
            cross = self.cross.setdefault(key, len(self.capacity))
            if cross == len(self.capacity):
                self._resource(self.topo.peering.cross_gb_per_s, f"peer traffic {a} -> {b}")
            self._arc(self._at(a, "to"), self._at(b, "to"), resources, index, forward=forward)
            self._arc(self._at(a, "from"), self._at(b, "from"), resources, index, forward=forward)
            self._arc(self._at(a, "peer"), self._at(b, "peer"), (*resources, cross), index, forward=forward)

    def _tree(self, index: int, link: Link, up: tuple[int, ...], down: tuple[int, ...]) -> None:
        """Add a link of the PCIe tree: `a` hangs below `b`."""
        child, parent = self._kind(link.a), self._kind(link.b)
        is_bridge = child in (Kind.PCIE_SWITCH, Kind.HOST_BRIDGE)
        rising = (("U", True), ("V", False)) if is_bridge else (("", self._is_peer(link.a)),)
        for state, may_turn in rising:
            tail = self._at(link.a, state if is_bridge else ("in" if child is Kind.NIC else ""))
            if parent is Kind.NUMA:
                self._arc(tail, self._at(link.b, "to"), up, index)
                if may_turn:
                    self._arc(tail, self._at(link.b, "peer"), (*up, self._peer(link.b)), index)
            else:
                self._arc(tail, self._at(link.b, "U" if may_turn else "V"), up, index)
        for above, below in (
            ("peer" if parent is Kind.NUMA else "P", "P"),
            ("from" if parent is Kind.NUMA else "D", "D"),
        ):
            if is_bridge:
                head = self._at(link.a, below)
            elif below == "P" and not self._is_peer(link.a):
                continue
            else:
                head = self._at(link.a, "out" if child is Kind.NIC else "")
            self._arc(self._at(link.b, above), head, down, index, forward=False)

    def _turns(self, vertex: str, kind: Kind) -> None:
        """Add the turn from up to down inside a switch, and inside a host bridge through the processor."""
        if kind is Kind.PCIE_SWITCH and (vertex, "U") in self.state:
            self._arc(self._at(vertex, "U"), self._at(vertex, "P"), ())
        elif kind is Kind.HOST_BRIDGE and (vertex, "U") in self.state:
            self._arc(self._at(vertex, "U"), self._at(vertex, "P"), (self._peer(vertex),))

    def _ends(self, vertex: str, kind: Kind) -> None:
        """Name the states where bytes begin and end; a socket means its memory."""
        if kind in (Kind.GPU, Kind.MEMORY, Kind.STORAGE, Kind.CXL):
            self.out.sources[vertex] = self.out.sinks[vertex] = self._at(vertex)
        elif kind in (Kind.NODE, Kind.NIC):
            self.out.sources[vertex] = self._at(vertex, "out")
            self.out.sinks[vertex] = self._at(vertex, "in")


@dataclass(frozen=True, slots=True)
class Path:
    """A way from a source to a sink.

    Attributes:
        arcs: Indices of its arcs, in order.
        uses: How often it uses each resource.
    """

    arcs: tuple[int, ...]
    uses: tuple[tuple[int, int], ...]


def path_of(ways: Roads, arcs: tuple[int, ...]) -> Path:
    """Return the path of some arcs, with its multiplicities counted."""
    count: dict[int, int] = defaultdict(int)
    for index in arcs:
        for resource in ways.arcs[index].resources:
            count[resource] += 1
    return Path(arcs, tuple(sorted(count.items())))


def solo_rate(ways: Roads, path: Path) -> float:
    """Return the rate in GB/s that a path reaches alone."""
    return min((ways.capacity[r] / times for r, times in path.uses), default=float("inf"))


def bottleneck(ways: Roads, path: Path) -> int:
    """Return the resource that limits a path used alone."""
    return min(path.uses, key=lambda use: (ways.capacity[use[0]] / use[1], use[0]))[0]
