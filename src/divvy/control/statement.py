"""Statements: what each account was owed and what it got, hour by hour (budgets.md, "Measures").

- capacity of an hour: healthy devices, integrated.
- demand: devices of running and queued allocated jobs, averaged over the hour.
- owed: min(share x capacity, demand). An inner account is owed by the same rule, with its own share and the
  demand of all its leaves; that can be more than its leaves are owed together, because what one of them
  leaves unused is owed to its siblings first.
- delivered: useful allocated time. Work that is known to be lost (a run that was preempted and could not be
  resumed) is not delivered; work since the last checkpoint of a resumable job is not known here and counts.

Pure, in GPU-milliseconds of devices, unweighted. All sums over hours are integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from divvy.fleet.account import ROOT, AccountTree
from divvy.units import HOUR

Hours = npt.NDArray[np.int64]


class Demand(NamedTuple):
    """An allocated job that was queued or running from ``start`` to ``end`` (ms)."""

    account: str
    start: int
    end: int
    gpus: int


class Occupancy(NamedTuple):
    """A run, or the part of it so far.

    Attributes:
        account: Leaf account.
        start: Begin, ms.
        end: End, ms.
        gpus: Devices.
        weight: Charge per ms of the whole gang.
        allocated: Whether it is charged.
        lost: Whether its work is known to be lost.
        declared: Declared minimum runtime, ms.
    """

    account: str
    start: int
    end: int
    gpus: int
    weight: int
    allocated: bool
    lost: bool
    declared: int


class Stint(NamedTuple):
    """A job as far as a statement is concerned; times are ms, None where there is none yet."""

    job: str
    account: str
    gpus: int
    min_runtime: int
    resumable: bool
    refused: bool
    submitted: int
    started: int | None
    stopped: int | None
    attempt: int
    rate: int
    stop_cause: int | None


class Adjustment(NamedTuple):
    """Charge added at an instant, with its cause."""

    account: str
    at: int
    charge: int
    cause: str


class Capacity(NamedTuple):
    """Healthy devices since an instant."""

    at: int
    gpus: int


class Epoch(NamedTuple):
    """The account tree that holds since an instant."""

    at: int
    tree: AccountTree


@dataclass(slots=True)
class Row:
    """One account over the period; GPU-milliseconds per hour.

    Attributes:
        account: Path.
        entitled: Share x capacity.
        capacity: Of the whole fleet.
        demand: Of the account.
        delivered: Useful allocated time.
        unallocated: Free time.
        lost: Allocated time whose work was lost, in all.
        declared: Declared minimum runtime of the runs that began in the period, in all.
        used: How much of it they ran for, in all.
        charged: Occupancy charge, exact.
        adjustments: Explicit entries.
    """

    account: str
    capacity: Hours
    entitled: Hours
    demand: Hours
    delivered: Hours
    unallocated: Hours
    lost: int = 0
    declared: int = 0
    used: int = 0
    charged: int = 0
    adjustments: list[Adjustment] = field(default_factory=list)

    @property
    def owed(self) -> Hours:
        """Return what was owed in each hour."""
        return np.minimum(self.entitled, self.demand)

    @property
    def capped(self) -> int:
        """Return what was delivered, counted in every hour up to what was owed in it."""
        return int(np.minimum(self.owed, self.delivered).sum())


class HourSums:
    """Integrals of step functions, hour by hour, in O(1) per step.

    Args:
        start: Begin of the period, ms; hours are those of the clock, the first and last may be partial.
        end: End of the period, ms.
    """

    __slots__ = ("_edge", "_end", "_first", "_inner", "_start")

    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end
        self._first = start // HOUR
        count = max(-(-end // HOUR) - self._first, 0)
        self._edge = [0] * (count + 1)
        self._inner = [0] * (count + 1)

    def add(self, start: int, end: int, rate: int) -> int:
        """Add a rate that held over [start, end); return what of it falls into the period."""
        start, end = max(start, self._start), min(end, self._end)
        if start >= end:
            return 0
        first, last = start // HOUR - self._first, end // HOUR - self._first
        if first == last:
            self._edge[first] += rate * (end - start)
        else:
            self._edge[first] += rate * ((first + 1 + self._first) * HOUR - start)
            self._edge[last] += rate * (end - (last + self._first) * HOUR)
            self._inner[first + 1] += rate * HOUR
            self._inner[last] -= rate * HOUR
        return rate * (end - start)

    def hours(self) -> Hours:
        """Return the integral per hour."""
        whole = np.cumsum(np.array(self._inner, dtype=np.int64)) + np.array(self._edge, dtype=np.int64)
        return whole[:-1]


@dataclass(frozen=True, slots=True)
class Statement:
    """Rows in tree order, inner accounts with the sums of their leaves.

    Attributes:
        start: Begin, ms.
        end: End, ms.
        hours: Begin of every hour of the rows, ms.
        rows: One per account.
        mean_weight: Weight of an average device over the period, to turn charge into GPU-hours.
    """

    start: int
    end: int
    hours: tuple[int, ...]
    rows: tuple[Row, ...]
    mean_weight: float = 1.0


def make_statement(
    start: int,
    end: int,
    epochs: Sequence[Epoch],
    capacity: Sequence[Capacity],
    demands: Iterable[Demand],
    occupancies: Iterable[Occupancy],
    adjustments: Iterable[Adjustment] = (),
    mean_weight: float = 1.0,
) -> Statement:
    """Return owed and delivered of every account of the tree in force at the end of the period.

    Args:
        start: Begin of the period, ms.
        end: End of the period, ms; not before the begin.
        epochs: The trees that held in the period, oldest first; the first holds from the begin.
        capacity: Healthy devices, oldest first; nothing is assumed before the first.
        demands: Allocated jobs.
        occupancies: Runs, allocated and not; accounts that are no longer in the tree are left out.
        adjustments: Explicit ledger entries.
        mean_weight: Passed on.
    """
    tree = epochs[-1].tree
    book = _Book(tree, start, end)
    book.owe(epochs, capacity)
    for demand in demands:
        book.want(demand)
    for occupancy in occupancies:
        book.deliver(occupancy)
    for adjustment in adjustments:
        row = tree.row.get(adjustment.account)
        if row is not None and start <= adjustment.at < end:
            for level in tree.lineage[row]:
                book.adjustments[level].append(adjustment)
    first, last = start // HOUR, -(-end // HOUR)
    return Statement(
        start, end, tuple(max(hour * HOUR, start) for hour in range(first, last)), book.rows(), mean_weight
    )


class _Book:
    """Sums per tree row while a statement is made; leaves first, levels above at the end."""

    def __init__(self, tree: AccountTree, start: int, end: int) -> None:
        self._tree, self._start, self._end = tree, start, end
        fresh = range(len(tree))
        self._demand = [HourSums(start, end) for _ in fresh]
        self._delivered = [HourSums(start, end) for _ in fresh]
        self._free = [HourSums(start, end) for _ in fresh]
        self._totals = [[0, 0, 0, 0] for _ in fresh]
        self.adjustments: list[list[Adjustment]] = [[] for _ in fresh]
        self._capacity: Hours = HourSums(start, end).hours()
        self._entitled: list[Hours] = []

    def owe(self, epochs: Sequence[Epoch], capacity: Sequence[Capacity]) -> None:
        """Compute share x capacity per hour and account, over changes of both."""
        entitled = [np.zeros(len(self._capacity)) for _ in range(len(self._tree))]
        total = HourSums(self._start, self._end)
        for index, epoch in enumerate(epochs):
            since = epoch.at if index else self._start
            until = epochs[index + 1].at if index + 1 < len(epochs) else self._end
            part = HourSums(self._start, self._end)
            for step, (at, gpus) in enumerate(capacity):
                till = capacity[step + 1].at if step + 1 < len(capacity) else self._end
                part.add(max(at, since), min(till, until), gpus)
            hours = part.hours()
            for row, path in enumerate(self._tree.paths):
                there = epoch.tree.row.get(path)
                if there is not None:
                    entitled[row] += float(epoch.tree.share[there]) * hours
        for step, (at, gpus) in enumerate(capacity):
            total.add(at, capacity[step + 1].at if step + 1 < len(capacity) else self._end, gpus)
        self._capacity = total.hours()
        self._entitled = [np.rint(each).astype(np.int64) for each in entitled]

    def want(self, demand: Demand) -> None:
        """Count what a job asked for."""
        row = self._tree.row.get(demand.account)
        if row is not None:
            self._demand[row].add(demand.start, demand.end, demand.gpus)

    def deliver(self, run: Occupancy) -> None:
        """Count a run; a run that only touches the period is charged by its part of it."""
        row = self._tree.row.get(run.account)
        if row is None or run.end <= run.start:
            return
        if not run.allocated:
            self._free[row].add(run.start, run.end, run.gpus)
            return
        inside = max(min(run.end, self._end) - max(run.start, self._start), 0)
        totals = self._totals[row]
        if run.lost:
            totals[0] += inside * run.gpus
        else:
            self._delivered[row].add(run.start, run.end, run.gpus)
        if self._start <= run.start < self._end:
            totals[1] += run.declared * run.gpus
            totals[2] += min(run.declared, run.end - run.start) * run.gpus
        totals[3] += inside * run.weight

    def rows(self) -> tuple[Row, ...]:
        """Sum the leaves into every level and return the rows in tree order."""
        tree, totals = self._tree, self._totals
        demand, delivered, free = (
            [sums.hours() for sums in column] for column in (self._demand, self._delivered, self._free)
        )
        for row in range(len(tree) - 1, ROOT, -1):
            above = tree.parent[row]
            for column in (demand, delivered, free):
                column[above] += column[row]
            totals[above] = [a + b for a, b in zip(totals[above], totals[row], strict=True)]
        rows: list[Row] = []
        for row in range(ROOT + 1, len(tree)):
            lost, declared, used, charged = totals[row]
            columns = (self._capacity, self._entitled[row], demand[row], delivered[row], free[row])
            rows.append(Row(tree.paths[row], *columns, lost, declared, used, charged, self.adjustments[row]))
        return tuple(rows)
