"""Candidate routes between two places, each with its kind: what is explained and what peers choose from."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from divvy.fleet.topology.graph import Kind, LinkKind, Vertex
from divvy.fleet.topology.reading import RANK
from divvy.perf.transfer import KindCost
from divvy.planners.transfers.roads import Path, Roads, path_of, solo_rate

_MESH: Final = frozenset({LinkKind.NVLINK, LinkKind.XGMI})
_NET: Final = frozenset({LinkKind.NETWORK, LinkKind.TCP})
_HOST: Final = frozenset(
    {LinkKind.PCIE, LinkKind.HOST, LinkKind.C2C, LinkKind.SOCKET, LinkKind.STORAGE, LinkKind.CXL}
)
_MEMORIES: Final = (Kind.MEMORY, Kind.CXL)
_MOST_NICS: Final = 4

#: Kinds from the plainest to the most involved; the order in which people read them.
ORDER: Final = (
    "nvlink",
    "nvlink-relay",
    "pcie-p2p",
    "host-staged",
    "rdma-affine",
    "rdma-other",
    "rdma-relay",
    "rdma-staged",
    "relay",
    "tcp",
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible route.

    Attributes:
        kind: Its kind.
        path: Its path.
        gb_per_s: Rate that it reaches alone.
        via: Relay GPUs and NICs on the way, for people.
        cost: What its kind costs besides the bytes.
    """

    kind: str
    path: Path
    gb_per_s: float
    via: tuple[str, ...]
    cost: KindCost


def vertices_on(ways: Roads, path: Path) -> list[str]:
    """Return the vertices of a path in order, each visit once."""
    out = [ways.names[ways.arcs[path.arcs[0]].tail][0]]
    for index in path.arcs:
        vertex = ways.names[ways.arcs[index].head][0]
        if vertex != out[-1]:
            out.append(vertex)
    return out


def distance(ways: Roads, device: str, nic: str) -> int:
    """Return the rank of the label between a device and a NIC (1 is PIX), 9 where unknown."""
    label = ways.topo.label(device, nic)
    return RANK.get(label, 9) if label else 9


def nics_of(ways: Roads, vertex: str, *, tcp: bool = False) -> tuple[str, ...]:
    """Return the NICs of a vertex's machine from near to far, in a fixed order."""
    known = ways.near.get((vertex, tcp))
    if known is not None:
        return known
    place = ways.topo.vertices[vertex]
    mine = [
        v
        for v in ways.topo.of_kind(Kind.NIC)
        if v.machine == place.machine and (dict(v.facts).get("transport") == "tcp") == tcp
    ]

    def key(item: tuple[int, Vertex]) -> tuple[int, bool, int]:
        position, nic = item
        same = nic.numa is not None and nic.numa == place.numa
        return (distance(ways, vertex, nic.id), not same, position)

    found = tuple(nic.id for _, nic in sorted(enumerate(mine), key=key))
    ways.near[vertex, tcp] = found
    return found


def affine(ways: Roads, vertex: str) -> list[str]:
    """Return the NICs that are as near to a vertex as its nearest."""
    nics = nics_of(ways, vertex)
    if not nics:
        return []
    best = distance(ways, vertex, nics[0])
    return [nic for nic in nics if distance(ways, vertex, nic) == best]


def kind_of(ways: Roads, path: Path) -> str:
    """Return the kind of a path: what it crosses and whom it passes."""
    kinds = {ways.topo.links[ways.arcs[i].link].kind for i in path.arcs if ways.arcs[i].link >= 0}
    places = vertices_on(ways, path)
    inner = [ways.topo.vertices[v] for v in places[1:-1]]
    has_relay = any(v.kind is Kind.GPU for v in inner)
    has_memory = any(v.kind is Kind.MEMORY for v in inner)
    if LinkKind.TCP in kinds:
        return "tcp"
    if LinkKind.NETWORK in kinds:
        return "rdma-relay" if has_relay else "rdma-staged" if has_memory else _rdma(ways, places)
    if kinds <= _MESH:
        return "nvlink-relay" if has_relay else "nvlink"
    if has_relay:
        return "relay"
    ends_in_memory = any(ways.topo.vertices[v].kind in _MEMORIES for v in (places[0], places[-1]))
    return "host-staged" if has_memory or ends_in_memory else "pcie-p2p"


def _rdma(ways: Roads, places: list[str]) -> str:
    """Return whether both NICs are as near to their ends as any."""
    nics = [v for v in places[1:-1] if ways.topo.vertices[v].kind is Kind.NIC]
    ends = [(nics[0], places[0]), (nics[-1], places[-1])] if nics else []
    is_near = all(
        nic in affine(ways, end) for nic, end in ends if ways.topo.vertices[end].kind is not Kind.NIC
    )
    return "rdma-affine" if is_near else "rdma-other"


def search(
    ways: Roads, start: int, goals: frozenset[int], allow: Callable[[int], bool]
) -> tuple[int, ...] | None:
    """Return the arcs of the way with the least latency over allowed arcs, None where there is none.

    Of ways with equal latency the one with fewer arcs wins, then the first in the order of the input.
    """
    queue: list[tuple[float, int, int]] = [(0.0, 0, start)]
    best: dict[int, tuple[float, int]] = {start: (0.0, 0)}
    came: dict[int, int] = {}
    while queue:
        cost, steps, state = heapq.heappop(queue)
        if (cost, steps) > best[state]:
            continue
        if state in goals:
            return _trace(ways, came, start, state)
        for index in ways.leaving[state]:
            if not allow(index):
                continue
            arc = ways.arcs[index]
            new = (cost + arc.latency_us + 0.01, steps + 1)
            if arc.head not in best or new < best[arc.head]:
                best[arc.head] = new
                came[arc.head] = index
                heapq.heappush(queue, (*new, arc.head))
    return None


def _trace(ways: Roads, came: dict[int, int], start: int, state: int) -> tuple[int, ...]:
    """Return the arcs from the start to a state."""
    out: list[int] = []
    while state != start:
        out.append(came[state])
        state = ways.arcs[came[state]].tail
    return tuple(reversed(out))


class Finder:
    """Finds candidate routes; keeps what it found, so that many transfers of one pair cost one search."""

    def __init__(self, ways: Roads) -> None:
        self.ways = ways
        self._known: dict[tuple[str, str], list[Candidate]] = {}
        self._legs: dict[tuple[int, int, bool, bool, str], tuple[int, ...] | None] = {}

    def between(self, source: str, target: str) -> list[Candidate]:
        """Return the candidates between two vertices, in the order of `ORDER`, then by rate."""
        key = (source, target)
        if key not in self._known:
            found: dict[tuple[int, ...], Candidate] = {}
            for arcs in (
                *self._inside(source, target),
                *self._relays(source, target),
                *self._network(source, target),
                *self._relayed_network(source, target),
            ):
                if arcs:
                    candidate = self.candidate(arcs)
                    found.setdefault(candidate.path.arcs, candidate)
            self._known[key] = sorted(found.values(), key=lambda c: (ORDER.index(c.kind), -c.gb_per_s))
        return self._known[key]

    def candidate(self, arcs: Sequence[int]) -> Candidate:
        """Return the candidate of some arcs."""
        path = path_of(self.ways, tuple(arcs))
        inner = vertices_on(self.ways, path)[1:-1]
        via = tuple(v for v in inner if self.ways.topo.vertices[v].kind in (Kind.GPU, Kind.NIC))
        kind = kind_of(self.ways, path)
        return Candidate(kind, path, solo_rate(self.ways, path), via, self.ways.costs[kind])

    def mesh(self, source: str, target: str, *, relay: bool) -> tuple[int, ...] | None:
        """Return the way over NVLink only; with `relay` it may pass another GPU."""
        ends = {source, target}

        def allow(index: int) -> bool:
            arc = self.ways.arcs[index]
            if arc.link < 0 or self.ways.topo.links[arc.link].kind not in _MESH:
                return False
            vertex = self.ways.topo.vertices[self.ways.names[arc.head][0]]
            return relay or vertex.kind is not Kind.GPU or vertex.id in ends

        return search(self.ways, self.ways.sources[source], frozenset({self.ways.sinks[target]}), allow)

    def host(self, start: int, goal: int, *, memory: bool) -> tuple[int, ...] | None:
        """Return the way between two states of one machine over PCIe; with `memory` it is staged there."""
        machine = self.ways.topo.vertices[self.ways.names[start][0]].machine
        key = (start, goal, memory, False, "")
        if key in self._legs:
            return self._legs[key]
        names, vertices, links = self.ways.names, self.ways.topo.vertices, self.ways.topo.links
        end = names[goal][0]

        def allow(index: int) -> bool:
            arc = self.ways.arcs[index]
            name, state = names[arc.head]
            vertex = vertices[name]
            if vertex.machine != machine or (
                vertex.kind in (Kind.GPU, Kind.NIC, Kind.STORAGE, Kind.CXL) and name != end
            ):
                return False
            if not memory and (vertex.kind is Kind.MEMORY or state == "to") and name != end:
                return state == "to" and vertices[end].kind in _MEMORIES
            if memory and state in ("P", "peer"):
                return False
            return arc.link < 0 or links[arc.link].kind in _HOST or links[arc.link].kind is LinkKind.MEMORY

        self._legs[key] = search(self.ways, start, frozenset({goal}), allow)
        return self._legs[key]

    def net(self, out: str, into: str) -> tuple[int, ...] | None:
        """Return the way over the network from one NIC to another."""
        ways = self.ways
        start, goal = ways.sources[out], ways.sinks[into]

        def allow(index: int) -> bool:
            arc = ways.arcs[index]
            vertex = ways.topo.vertices[ways.names[arc.head][0]]
            is_net = arc.link >= 0 and ways.topo.links[arc.link].kind in _NET
            return is_net and (vertex.kind is not Kind.NIC or vertex.id == into)

        key = (start, goal, False, True, "")
        if key not in self._legs:
            self._legs[key] = search(ways, start, frozenset({goal}), allow)
        return self._legs[key]

    def rdma(
        self, source: str, out: str, into: str, target: str, *, staged: bool = False
    ) -> tuple[int, ...] | None:
        """Return the way through two named NICs; staged in memory on both sides if asked or needed."""
        ways = self.ways
        middle = self.net(out, into)
        if middle is None:
            return None
        first = self._leg(ways.sources[source], ways.sources[out], staged=staged)
        last = self._leg(ways.sinks[into], ways.sinks[target], staged=staged)
        return None if first is None or last is None else (*first, *middle, *last)

    def _leg(self, start: int, goal: int, *, staged: bool) -> tuple[int, ...] | None:
        if start == goal:
            return ()
        node = self.ways.topo.vertices[self.ways.names[start][0]].kind is Kind.NODE
        node = node or self.ways.topo.vertices[self.ways.names[goal][0]].kind is Kind.NODE
        if node:
            return search(
                self.ways, start, frozenset({goal}), lambda index: self.ways.arcs[index].head == goal
            )
        direct = None if staged else self.host(start, goal, memory=False)
        return direct if direct is not None else self.host(start, goal, memory=True)

    def _inside(self, source: str, target: str) -> list[tuple[int, ...] | None]:
        ways = self.ways
        if ways.topo.vertices[source].machine != ways.topo.vertices[target].machine:
            return [self.mesh(source, target, relay=False)]
        start, goal = ways.sources[source], ways.sinks[target]
        return [
            self.mesh(source, target, relay=False),
            self.host(start, goal, memory=False),
            self.host(start, goal, memory=True),
        ]

    def _relays(self, source: str, target: str) -> list[tuple[int, ...] | None]:
        """Return ways over NVLink through each GPU that both ends reach."""
        ways = self.ways
        if self.mesh(source, target, relay=True) is None:
            return []
        out: list[tuple[int, ...] | None] = []
        machine = ways.topo.vertices[source].machine
        for gpu in ways.topo.of_kind(Kind.GPU):
            if gpu.id in (source, target) or gpu.machine != machine or len(out) >= 8:
                continue
            first, second = self.mesh(source, gpu.id, relay=False), self.mesh(gpu.id, target, relay=False)
            if first and second and not {self.ways.names[ways.arcs[i].head][0] for i in first[:-1]}:
                out.append((*first, *second))
        return out or [self.mesh(source, target, relay=True)]

    def _network(self, source: str, target: str) -> list[tuple[int, ...] | None]:
        """Return ways by the nearest NICs of both ends, GPU-direct and staged, and by kernel TCP."""
        out: list[tuple[int, ...] | None] = []
        sources, targets = nics_of(self.ways, source)[:_MOST_NICS], nics_of(self.ways, target)[:_MOST_NICS]
        for position, nic in enumerate(sources):
            others = targets[position : position + 1] or targets[:1] if position else targets[:2]
            out.extend(self.rdma(source, nic, other, target) for other in others if nic != other)
        if sources and targets and sources[0] != targets[0]:
            out.append(self.rdma(source, sources[0], targets[0], target, staged=True))
        slow, far = nics_of(self.ways, source, tcp=True)[:1], nics_of(self.ways, target, tcp=True)[:1]
        out.extend(self.rdma(source, a, b, target, staged=True) for a in slow for b in far if a != b)
        return out

    def _relayed_network(self, source: str, target: str) -> list[tuple[int, ...] | None]:
        """Return ways by the NIC of a neighbour over NVLink (NCCL calls it PXN), where the own NIC is far."""
        ways = self.ways
        if ways.topo.vertices[source].kind is not Kind.GPU or ways.topo.vertices[target].kind is not Kind.GPU:
            return []
        out: list[tuple[int, ...] | None] = []
        targets = nics_of(ways, target)
        machine = ways.topo.vertices[source].machine
        for gpu in ways.topo.of_kind(Kind.GPU):
            if gpu.machine != machine or gpu.id in (source, target) or len(out) >= _MOST_NICS or not targets:
                continue
            hop = self.mesh(source, gpu.id, relay=False)
            nics = [nic for nic in affine(ways, gpu.id) if nic not in affine(ways, source)][:1]
            for nic in nics if hop else []:
                into = next((t for t in targets if t != nic), None)
                rest = self.rdma(gpu.id, nic, into, target) if into else None
                if rest is not None:
                    out.append((*(hop or ()), *rest))
        return out
