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
from typing import Final

import numpy as np
from numpy.typing import NDArray

from divvy.planners.transfers.network import Network
from divvy.planners.transfers.plan import Transfer
from divvy.planners.transfers.program import Program
from divvy.planners.transfers.roads import Path, Roads

GB: Final = 1e9
_ROUNDS: Final = 60
_GAP: Final = (1e-3, 1e-2)
_LARGE: Final = 8_000
_TINY: Final = 1e-7
_LONGEST: Final = 1e-13 * 64 * 32
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
        capacity: GB/s by resource, in the order that the columns' paths number them.
        columns: Paths that were found.
        plain: How many of the first columns are the plain ways that the search began with.
        gigabytes: Bytes in 1e9 by column and window.
        rounds: Programs solved.
    """

    makespan_s: float
    bound_s: float
    capacity: NDArray[np.float64]
    columns: list[Column]
    plain: int
    gigabytes: NDArray[np.float64]
    rounds: int = 0


def solve(
    ways: Roads,
    transfers: Sequence[Transfer],
    windows: Sequence[float],
    *,
    certify: bool = True,
) -> Split:
    """Return the best split of transfers that all have a way.

    Args:
        ways: The roads.
        transfers: What to move.
        windows: Begins of the windows, ascending; every release is one of them.
        certify: Go on until the bound proves the split; else a large program stops as soon as twice the
            paths gain nothing.
    """
    network = Network(ways, transfers)
    master = _Master(network, transfers, list(windows))
    for i, path in network.plain():
        master.add(Column(i, path))
    plain = len(master.columns)
    warm = _Warm(master, network)
    turns, before = _WARM[0], float("inf")
    while True:
        warm.run(turns)
        master.solve()
        if not certify and master.is_large and master.makespan >= before * _NO_GAIN:
            break
        better = _price(master, network, master.prices)
        if not better or master.gap <= master.allowed or warm.turns >= _WARM[1]:
            break
        turns, before = warm.turns, master.makespan
    if certify:
        _refine(master, network, warm.best)
    solved = master.columns[: len(master.amounts)]  # paths found after the last program are not in it
    return Split(
        master.makespan, master.best_bound, network.capacity, solved, plain, master.amounts, master.rounds
    )


def _refine(master: _Master, network: Network, best: NDArray[np.float64]) -> None:
    """Add the cheapest paths and solve again until no path is cheaper or the bound is met.

    Prices of the last program jump about; mixed with the best ones so far they converge (Wentges).
    """
    while master.gap > master.allowed and master.rounds < _ROUNDS:
        better = False
        for share in (_SMOOTH, 0.0):
            prices = share * best + (1 - share) * master.prices
            before = master.best_bound
            better = _price(master, network, prices)
            if master.best_bound > before:
                best = prices
            if better or master.gap <= master.allowed:
                break
        if not better:
            return
        master.solve()


class _Warm:
    """Fills the program with paths by raising the prices of what is loaded most (multiplicative weights)."""

    def __init__(self, master: _Master, network: Network) -> None:
        self.master, self.network = master, network
        self.capacity = np.maximum(master.capacity, 1e-9)
        self.prices = 1.0 / (self.capacity * len(self.capacity))
        self.load = np.zeros(len(self.capacity))
        self.best = np.tile(self.prices, (len(master.windows), 1))
        self.turns = 0

    def run(self, turns: int) -> None:
        """Send everything along the cheapest paths so many times, pricing by the load so far."""
        master, count = self.master, len(self.master.windows)
        for _ in range(turns):
            self.turns += 1
            costs, arcs_of = self.network.cheapest(self.prices)
            for i, arcs in enumerate(arcs_of):
                if arcs is not None:
                    path = self.network.path(arcs)
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


def _price(master: _Master, network: Network, prices: NDArray[np.float64]) -> bool:
    """Add the paths that are cheapest at some prices and cheaper than their transfer's worth."""
    better = False
    priced: list[NDArray[np.float64]] = []
    for window in range(len(master.windows)):
        costs, arcs_of = network.cheapest(prices[window])
        priced.append(costs)
        for i, arcs in enumerate(arcs_of):
            if arcs is None or master.first[i] > window:
                continue
            path = network.path(arcs)
            real = sum(times * master.prices[window][r] for r, times in path.uses)
            if real < master.worth[i] - _TINY * max(1e-6, master.worth[i]):
                better = master.add(Column(i, path)) or better
    master.bound(prices, priced)
    return better


class _Master:
    """The program over the paths found so far."""

    def __init__(self, network: Network, transfers: Sequence[Transfer], windows: list[float]) -> None:
        self.capacity, self.transfers, self.windows = network.capacity, transfers, windows
        self.need = np.array([t.size_bytes / GB for t in transfers])
        begins = np.array(windows)
        self.first = np.searchsorted(begins, np.array([t.release_s for t in transfers]) - 1e-12)
        self.columns: list[Column] = []
        self.known: set[tuple[int, tuple[int, ...]]] = set()
        self.makespan = float("inf")
        self.amounts = np.zeros((0, len(windows)))
        self.prices = np.zeros((len(windows), len(self.capacity)))
        self.worth = np.zeros(len(transfers))
        self.best_bound = 0.0
        self.rounds = 0
        self.is_large = network.count * len(transfers) > _LARGE
        self.allowed = _GAP[1] if self.is_large else _GAP[0]

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
        program = Program([c.path for c in self.columns], owner, self.need, self.capacity)
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
        total = float(prices[-1] @ self.capacity)
        if total <= 0:
            return
        cheapest = np.full(len(self.transfers), np.inf)
        for window, costs in enumerate(priced):
            cheapest = np.where(self.first <= window, np.minimum(cheapest, costs), cheapest)
        # The search adds a tiny cost per step (see Pricing); a longest path of it is taken off again.
        cheapest = np.maximum(cheapest - _LONGEST, 0.0)
        closed = sum(
            (self.windows[w + 1] - self.windows[w]) * float(prices[w] @ self.capacity)
            for w in range(len(self.windows) - 1)
        )
        value = self.windows[-1] + (float(self.need @ cheapest) - closed) / total
        self.best_bound = max(self.best_bound, value)
