"""The roads of one batch as a small network of arrays: junctions only, in an order that names do not change.

Most states have one way in or one way out, or two of each. They are taken out, and the arcs on both sides of
them become arcs that use the resources of both. Shortest paths over what is left are the same, and found
several times as fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from divvy.fleet.topology.graph import Kind, LinkKind
from divvy.planners.transfers.canonical import canonical
from divvy.planners.transfers.plan import Transfer
from divvy.planners.transfers.roads import Path, Roads

Floats = NDArray[np.float64]
Chain = tuple[int, ...]

_BASE: Final = 1e-13
_FORBIDDEN: Final = 1e9
_MESH: Final = frozenset({LinkKind.NVLINK, LinkKind.XGMI})

#: What a plain way may not pass, one search each: nothing is forbidden; no NVLink; neither NVLink nor memory;
#: neither NVLink nor the processor as a switch.
_PLAIN: Final = (
    frozenset({"tcp"}),
    frozenset({"tcp", "mesh"}),
    frozenset({"tcp", "mesh", "memory"}),
    frozenset({"tcp", "mesh", "peer"}),
)


class Network:
    """Junctions, chains of arcs between them, and what each chain uses.

    Args:
        ways: The roads.
        transfers: What is to be moved; their ends stay junctions.

    Attributes:
        capacity: GB/s by resource, in the network's own order.
    """

    def __init__(self, ways: Roads, transfers: Sequence[Transfer]) -> None:
        order = canonical(ways, transfers)
        self._rank = {resource: i for i, resource in enumerate(order.resources)}
        self.capacity: Floats = ways.capacity[order.resources]
        self._ways = ways
        ends = {s for t in transfers for s in (ways.sources[t.source], ways.sinks[t.target])}
        chains = _contract(ways, order.states, ends)
        place: dict[int, int] = {}
        for state in order.states:
            if state in chains or state in ends:
                place[state] = len(place)
        self.count = len(place)
        rows = sorted(
            (
                (place[tail], place[head], arcs)
                for tail, heads in chains.items()
                for head, several in heads.items()
                for arcs in several
            ),
            key=lambda row: row[:2],
        )
        self._chains = [arcs for _, _, arcs in rows]
        ends_of = [row[:2] for row in rows]
        self._first = np.array(
            [i for i, pair in enumerate(ends_of) if i == 0 or pair != ends_of[i - 1]], dtype=np.int64
        )
        last = [*self._first[1:].tolist(), len(rows)]
        self._group = {ends_of[i]: (i, end) for i, end in zip(self._first.tolist(), last, strict=True)}
        self._uses = [[self._rank[r] for a in arcs for r in ways.arcs[a].resources] for arcs in self._chains]
        self.heads = np.array([ends_of[i][1] for i in self._first], dtype=np.int32)
        tails = np.array([ends_of[i][0] for i in self._first], dtype=np.int64)
        self.pointer = np.concatenate([[0], np.cumsum(np.bincount(tails, minlength=self.count))]).astype(
            np.int32
        )
        pairs = [(row, r) for row, used in enumerate(self._uses) for r in used]
        self.arc_row = np.array([p[0] for p in pairs], dtype=np.int64)
        self.arc_resource = np.array([p[1] for p in pairs], dtype=np.int64)
        # Among ways of equal price the one with less latency: keeps plans simple and prices positive.
        self.latency = np.array([sum(1.0 + ways.arcs[a].latency_us for a in arcs) for arcs in self._chains])
        sources = [place[ways.sources[t.source]] for t in transfers]
        self._goals = [place[ways.sinks[t.target]] for t in transfers]
        self._starts = sorted(set(sources))
        position = {start: i for i, start in enumerate(self._starts)}
        self._rows = [position[s] for s in sources]
        self._paths: dict[Chain, Path] = {}

    def cheapest(self, prices: Floats) -> tuple[Floats, list[Chain | None]]:
        """Return, for each transfer, the least price of a byte and its chains (None: there is no way).

        Args:
            prices: By resource.
        """
        priced = np.bincount(self.arc_row, weights=prices[self.arc_resource], minlength=len(self.latency))
        return self._search(_BASE * self.latency + priced)

    def plain(self) -> list[tuple[int, Path]]:
        """Return the plainest ways of each transfer as (index, path): of each sort the least latency."""
        marks = [self._marks(arcs) for arcs in self._chains]
        found: dict[tuple[int, Chain], None] = {}
        for forbidden in _PLAIN:
            costs = self.latency + np.array([_FORBIDDEN if mark & forbidden else 0.0 for mark in marks])
            far, ways = self._search(costs)
            for i, (cost, way) in enumerate(zip(far, ways, strict=True)):
                if way is not None and cost < _FORBIDDEN:
                    found.setdefault((i, way))
        return [(i, self.path(way)) for i, way in sorted(found, key=lambda item: item[0])]

    def path(self, chains: Chain) -> Path:
        """Return the path along some chains; its resources are numbered in the network's order."""
        known = self._paths.get(chains)
        if known is None:
            count: dict[int, int] = {}
            for chain in chains:
                for resource in self._uses[chain]:
                    count[resource] = count.get(resource, 0) + 1
            arcs = tuple(arc for chain in chains for arc in self._chains[chain])
            known = self._paths[chains] = Path(arcs, tuple(sorted(count.items())))
        return known

    def _marks(self, arcs: Sequence[int]) -> frozenset[str]:
        """Return which sorts of places a chain passes."""
        ways, marks = self._ways, set()
        for index in arcs:
            arc = ways.arcs[index]
            kind = ways.topo.links[arc.link].kind if arc.link >= 0 else None
            name, state = ways.names[arc.head]
            if kind in _MESH:
                marks.add("mesh")
            if kind is LinkKind.TCP:
                marks.add("tcp")
            if ways.topo.vertices[name].kind is Kind.MEMORY:
                marks.add("memory")
            if state in ("peer", "P"):
                marks.add("peer")
        return frozenset(marks)

    def _search(self, costs: Floats) -> tuple[Floats, list[Chain | None]]:
        """Return the cheapest way of each transfer at some costs of chains."""
        from scipy.sparse import csr_matrix  # noqa: PLC0415 - scipy takes 0.2 s; parsers do without it
        from scipy.sparse.csgraph import dijkstra  # noqa: PLC0415 - same

        sparse: Any = csr_matrix
        least = np.minimum.reduceat(costs, self._first)
        graph = sparse((least, self.heads, self.pointer), shape=(self.count, self.count))
        far, before = dijkstra(graph, indices=self._starts, return_predecessors=True)
        ends = far[self._rows, self._goals]
        trees = before.tolist()
        ways = [
            self._trace(trees[row], goal, costs) if np.isfinite(cost) else None
            for row, goal, cost in zip(self._rows, self._goals, ends, strict=True)
        ]
        return ends, ways

    def _trace(self, before: list[int], state: int, costs: Floats) -> Chain:
        """Return the chains that lead to a state; of several between two junctions the cheapest."""
        out: list[int] = []
        while before[state] >= 0:
            tail = before[state]
            first, end = self._group[tail, state]
            out.append(first if end == first + 1 else first + int(np.argmin(costs[first:end])))
            state = tail
        return tuple(reversed(out))


def _contract(ways: Roads, order: Sequence[int], ends: set[int]) -> dict[int, dict[int, list[Chain]]]:
    """Return chains of arcs by tail and head, without the states that save no arcs."""
    out: dict[int, dict[int, list[Chain]]] = {state: {} for state in order}
    into: dict[int, set[int]] = {state: set() for state in order}
    for index, arc in enumerate(ways.arcs):
        out[arc.tail].setdefault(arc.head, []).append((index,))
        into[arc.head].add(arc.tail)
    rank = {state: i for i, state in enumerate(order)}
    waiting = [state for state in order if state not in ends]
    while waiting:
        again = []
        for state in waiting:
            tails, heads = sorted(into[state], key=rank.__getitem__), out[state]
            before = sum(len(out[tail][state]) for tail in tails)
            after = sum(map(len, heads.values()))
            if before * after > before + after:
                again.append(state)
                continue
            for tail in tails:
                for head, chains in heads.items():
                    if head != tail:
                        joined = [(*a, *b) for a in out[tail][state] for b in chains]
                        out[tail].setdefault(head, []).extend(joined)
                        into[head].add(tail)
                del out[tail][state]
            for head in heads:
                into[head].discard(state)
            del out[state], into[state]
        if len(again) == len(waiting):
            break
        waiting = again
    return out
