"""The best split of all transfers over all paths, by column generation; and a bound that no plan can beat.

Moving everything by the earliest time is a linear program: how many bytes of which transfer go over which
path in which time window, so that no resource carries more than its capacity. There are too many paths to
list, so the program starts with few and asks, at the prices that its solution puts on the resources, for
the cheapest path of each transfer in the whole graph (Dijkstra). When no path is cheaper than those it has,
the split is optimal over *all* paths. The prices also give a bound: whatever prices one puts on resources,

    makespan >= last window's begin + sum of bytes * cheapest price - sum of window * capacity * price

(linear programming duality), so the bound holds even if the search stops early. It is taken over the graph
itself and never over the planner's own candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from divvy.planners.transfers.plan import Transfer
from divvy.planners.transfers.program import Program
from divvy.planners.transfers.roads import Path, Roads, path_of

GB: Final = 1e9
_ROUNDS: Final = 60
_GAP: Final = (1e-3, 1e-2)
_LARGE: Final = 20_000
_TINY: Final = 1e-7
_BASE: Final = 1e-13
_SMOOTH: Final = 0.7
_WARM: Final = (4, 160)
_NO_GAIN: Final = 0.995


@dataclass(frozen=True, slots=True)
class Column:
    """A path of a transfer."""

    transfer: int
    path: Path


@dataclass(slots=True)
class Split:
    """A solved program.

    Attributes:
        makespan_s: When the last byte arrives, start-up aside.
        bound_s: No split over any paths ends before this.
        columns: Paths that were found.
        gigabytes: Bytes in 1e9 by column and window.
        windows: Begin of each window, seconds; the last one is open.
        rounds: Programs solved.
    """

    makespan_s: float
    bound_s: float
    columns: list[Column]
    gigabytes: NDArray[np.float64]
    windows: list[float]
    rounds: int = 0


class Network:
    """The roads as arrays for Dijkstra, in the order of compressed rows; made once for each topology."""

    def __init__(self, ways: Roads) -> None:
        self.by_ends = {(arc.tail, arc.head): index for index, arc in enumerate(ways.arcs)}
        keys = sorted(self.by_ends)
        order = [self.by_ends[key] for key in keys]
        self.count = len(ways.names)
        self.heads = np.array([key[1] for key in keys], dtype=np.int32)
        tails = np.array([key[0] for key in keys])
        rows = np.cumsum(np.bincount(tails, minlength=self.count))
        self.pointer = np.concatenate([[0], rows]).astype(np.int32)
        pairs = [(row, r) for row, i in enumerate(order) for r in ways.arcs[i].resources]
        self.arc_row = np.array([p[0] for p in pairs], dtype=np.int64)
        self.arc_resource = np.array([p[1] for p in pairs], dtype=np.int64)
        # Among ways of equal price the one with less latency: keeps plans simple and prices positive.
        self.base = np.array([_BASE * (1.0 + ways.arcs[i].latency_us) for i in order])


def network_of(ways: Roads) -> Network:
    """Return the arrays of some roads."""
    known = ways.arrays.get("network")
    if not isinstance(known, Network):
        known = Network(ways)
        ways.arrays["network"] = known
    return known


class Pricing:
    """Finds the cheapest path of each transfer at given prices of resources, over the whole graph."""

    def __init__(self, ways: Roads, transfers: Sequence[Transfer]) -> None:
        self.network = network_of(ways)
        self.starts = sorted({ways.sources[t.source] for t in transfers})
        row = {state: i for i, state in enumerate(self.starts)}
        self.rows = [row[ways.sources[t.source]] for t in transfers]
        self.goals = [ways.sinks[t.target] for t in transfers]

    def cheapest(
        self, prices: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], list[tuple[int, ...] | None]]:
        """Return, for each transfer, the least price of a byte and its arcs (None: there is no way)."""
        from scipy.sparse import csr_matrix  # noqa: PLC0415 - scipy takes 0.2 s; parsers do without it
        from scipy.sparse.csgraph import dijkstra  # noqa: PLC0415 - same

        net = self.network
        priced = np.bincount(net.arc_row, weights=prices[net.arc_resource], minlength=len(net.base))
        sparse: Any = csr_matrix
        graph = sparse((net.base + priced, net.heads, net.pointer), shape=(net.count, net.count))
        far, before = dijkstra(graph, indices=self.starts, return_predecessors=True)
        costs = far[self.rows, self.goals]
        trees = before.tolist()
        ways = [
            self._trace(trees[row], goal) if np.isfinite(cost) else None
            for row, goal, cost in zip(self.rows, self.goals, costs, strict=True)
        ]
        return costs, ways

    def _trace(self, before: list[int], state: int) -> tuple[int, ...]:
        out: list[int] = []
        while before[state] >= 0:
            tail = before[state]
            out.append(self.network.by_ends[tail, state])
            state = tail
        return tuple(reversed(out))


def solve(
    ways: Roads,
    transfers: Sequence[Transfer],
    windows: Sequence[float],
    seeds: Sequence[Column] = (),
    *,
    certify: bool = True,
) -> Split:
    """Return the best split of transfers that all have a way.

    Args:
        ways: The roads.
        transfers: What to move.
        windows: Begins of the windows, ascending; every release is one of them.
        seeds: Paths to start with.
        certify: Go on until the bound proves the split; else stop as soon as twice the paths gain nothing.
    """
    master = _Master(ways, transfers, list(windows))
    pricing = Pricing(ways, transfers)
    for column in seeds:
        master.add(column)
    warm = _Warm(master, pricing)
    turns, before = _WARM[0], float("inf")
    while True:
        warm.run(turns)
        master.solve()
        if not certify and master.makespan >= before * _NO_GAIN:
            break
        better = _price(master, pricing, master.prices)
        if not better or master.gap <= master.allowed or warm.turns >= _WARM[1]:
            break
        turns, before = warm.turns, master.makespan
    if certify:
        _refine(master, pricing, warm.best)
    solved = master.columns[: len(master.amounts)]  # paths found after the last program are not in it
    return Split(master.makespan, master.best_bound, solved, master.amounts, list(windows), master.rounds)


def _refine(master: _Master, pricing: Pricing, best: NDArray[np.float64]) -> None:
    """Add the cheapest paths and solve again until no path is cheaper or the bound is met.

    Prices of the last program jump about; mixed with the best ones so far they converge (Wentges).
    """
    while master.gap > master.allowed and master.rounds < _ROUNDS:
        better = False
        for share in (_SMOOTH, 0.0):
            prices = share * best + (1 - share) * master.prices
            before = master.best_bound
            better = _price(master, pricing, prices)
            if master.best_bound > before:
                best = prices
            if better or master.gap <= master.allowed:
                break
        if not better:
            return
        master.solve()


class _Warm:
    """Fills the program with paths by raising the prices of what is loaded most (multiplicative weights)."""

    def __init__(self, master: _Master, pricing: Pricing) -> None:
        self.master, self.pricing = master, pricing
        self.capacity = np.maximum(master.ways.capacity, 1e-9)
        self.prices = 1.0 / (self.capacity * len(self.capacity))
        self.load = np.zeros(len(self.capacity))
        self.best = np.tile(self.prices, (len(master.windows), 1))
        self.turns = 0

    def run(self, turns: int) -> None:
        """Send everything along the cheapest paths so many times, pricing by the load so far."""
        master, count = self.master, len(self.master.windows)
        for _ in range(turns):
            self.turns += 1
            costs, arcs_of = self.pricing.cheapest(self.prices)
            for i, arcs in enumerate(arcs_of):
                if arcs is not None:
                    path = path_of(master.ways, arcs)
                    master.add(Column(i, path))
                    for resource, times in path.uses:
                        self.load[resource] += times * master.need[i]
            before = master.best_bound
            if count == 1:
                master.bound(self.prices[None, :], [costs])
            if master.best_bound > before:
                self.best = self.prices[None, :]
            share = self.load / self.turns / self.capacity
            raw = np.exp(8.0 * (share / max(float(share.max()), 1e-30) - 1.0)) / self.capacity
            self.prices = raw / float(raw @ self.capacity)


def _price(master: _Master, pricing: Pricing, prices: NDArray[np.float64]) -> bool:
    """Add the paths that are cheapest at some prices and cheaper than their transfer's worth."""
    better = False
    priced: list[NDArray[np.float64]] = []
    for window in range(len(master.windows)):
        costs, arcs_of = pricing.cheapest(prices[window])
        priced.append(costs)
        for i, arcs in enumerate(arcs_of):
            if arcs is None or master.first[i] > window:
                continue
            path = path_of(master.ways, arcs)
            real = sum(times * master.prices[window][r] for r, times in path.uses)
            if real < master.worth[i] - _TINY * max(1e-6, master.worth[i]):
                better = master.add(Column(i, path)) or better
    master.bound(prices, priced)
    return better


class _Master:
    """The program over the paths found so far."""

    def __init__(self, ways: Roads, transfers: Sequence[Transfer], windows: list[float]) -> None:
        self.ways, self.transfers, self.windows = ways, transfers, windows
        self.need = np.array([t.size_bytes / GB for t in transfers])
        begins = np.array(windows)
        self.first = np.searchsorted(begins, np.array([t.release_s for t in transfers]) - 1e-12)
        self.columns: list[Column] = []
        self.known: set[tuple[int, tuple[int, ...]]] = set()
        self.makespan = float("inf")
        self.amounts = np.zeros((0, len(windows)))
        self.prices = np.zeros((len(windows), len(ways.capacity)))
        self.worth = np.zeros(len(transfers))
        self.best_bound = 0.0
        self.rounds = 0
        is_large = len(ways.names) * len(transfers) > _LARGE
        self.allowed = _GAP[1] if is_large else _GAP[0]

    @property
    def gap(self) -> float:
        """Return how far the program's end is above the bound, as a fraction."""
        return self.makespan / self.best_bound - 1 if self.best_bound > 0 else float("inf")

    def add(self, column: Column) -> bool:
        """Add a path; return whether it is new."""
        key = (column.transfer, column.path.arcs)
        if key in self.known:
            return False
        self.known.add(key)
        self.columns.append(column)
        return True

    def solve(self) -> None:
        """Solve it and keep amounts, prices of resources and worth of a byte of each transfer."""
        owner = np.array([c.transfer for c in self.columns])
        program = Program([c.path for c in self.columns], owner, self.need, self.ways.capacity)
        count, span = len(self.windows), len(self.columns)
        is_open = [self.first[owner] <= window for window in range(count)]
        lengths = [*(float(x) for x in np.diff(self.windows)), None]
        answer = program.solve(lengths, is_open, [np.ones(span)] * count, np.zeros(span * count))
        if answer is None:
            raise ArithmeticError("the program of a feasible batch was not solved")
        self.rounds += 1
        self.makespan = self.windows[-1] + answer.last_s
        self.amounts, self.prices, self.worth = answer.amounts, answer.prices, answer.worth

    def bound(self, prices: NDArray[np.float64], priced: Sequence[NDArray[np.float64]]) -> None:
        """Raise the bound to what some prices give, once scaled so that the open window's sum to one."""
        total = float(prices[-1] @ self.ways.capacity)
        if total <= 0:
            return
        cheapest = np.full(len(self.transfers), np.inf)
        for window, costs in enumerate(priced):
            cheapest = np.where(self.first <= window, np.minimum(cheapest, costs), cheapest)
        # The search adds a tiny cost per step (see Pricing); a longest path of it is taken off again.
        cheapest = np.maximum(cheapest - _BASE * 64 * 32, 0.0)
        closed = sum(
            (self.windows[w + 1] - self.windows[w]) * float(prices[w] @ self.ways.capacity)
            for w in range(len(self.windows) - 1)
        )
        value = self.windows[-1] + (float(self.need @ cheapest) - closed) / total
        self.best_bound = max(self.best_bound, value)
