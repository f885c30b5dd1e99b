"""Statements: what each account was owed and what it got, hour by hour (budgets.md, "Measures").

- capacity of an hour: healthy devices, integrated.
- demand: devices of running and queued allocated jobs, averaged over the hour.
- owed: min(share x capacity, demand) of a leaf, and of no device model more than there is (`owed.py`).
  What an inner account is owed is the sum of its children; by the same rule as a leaf it could be more
  (``as_one``), because what one child leaves unused its siblings may have first.
- delivered: useful allocated time. Work that is known to be lost is not delivered.
- carried: owed and not delivered since the begin of the period; negative where an account got more.
- protected: the part of the allocated time inside a minimum runtime.
- lost: allocated time whose work is known to be gone, restoring included.

Pure, in GPU-milliseconds of devices, unweighted. All sums over hours are integers, and the figures of an
account are the sums of those of its children, hour by hour (share, capacity and ``as_one`` apart).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from divvy.control.facts import Adjustment, Capacity, Demand, Epoch, Occupancy
from divvy.control.hourly import Blocks, HourMarks, Hours, HourSums
from divvy.control.owed import owed_in_cells
from divvy.fleet.account import ROOT, AccountTree
from divvy.units import HOUR


@dataclass(slots=True)
class Row:
    """One account over the period; GPU-milliseconds per hour.

    Attributes:
        account: Path.
        leaf: Whether it has no children.
        capacity: Of the whole fleet.
        entitled: Share x capacity.
        demand: Of the account.
        owed: What was owed.
        delivered: Useful allocated time.
        unallocated: Free time.
        protected: Allocated time inside a minimum runtime.
        lost: Allocated time whose work is known to be lost.
        adjusted: Charge of the explicit entries, weighted.
        marks: Ledger entries that touch each hour.
        capped_by_hour: Delivered, counted in every hour up to what each leaf was owed in it, in all.
        capped: Delivered, counted over the period up to what each leaf was owed in it, in all.
        declared: Declared minimum runtime of the runs that began in the period, in all.
        used: How much of it they ran for, in all.
        charged: Occupancy charge, exact.
        adjustments: Explicit entries.
        running: Runs of the account that are not over, as ``JOB/ATTEMPT``.
    """

    account: str
    leaf: bool
    capacity: Hours
    entitled: Hours
    demand: Hours
    owed: Hours
    delivered: Hours
    unallocated: Hours
    protected: Hours
    lost: Hours
    adjusted: Hours
    marks: HourMarks
    capped_by_hour: int = 0
    capped: int = 0
    declared: int = 0
    used: int = 0
    charged: int = 0
    adjustments: list[Adjustment] = field(default_factory=list)
    running: list[str] = field(default_factory=list)

    @property
    def as_one(self) -> Hours:
        """Return what would be owed if the account were a leaf with all its demand."""
        return np.minimum(self.entitled, self.demand)

    @property
    def carried(self) -> Hours:
        """Return what was owed and not delivered by the end of each hour, since the begin of the period."""
        running: Hours = np.cumsum(self.owed - self.delivered)
        return running


@dataclass(frozen=True, slots=True)
class Sources:
    """What a statement was made from, as far as it touches the period and the tree.

    Attributes:
        epochs: Trees.
        capacity: Healthy devices.
        demands: Allocated jobs.
        occupancies: Runs.
    """

    epochs: tuple[Epoch, ...]
    capacity: tuple[Capacity, ...]
    demands: tuple[Demand, ...]
    occupancies: tuple[Occupancy, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """Rows in tree order, inner accounts with the sums of their children.

    Attributes:
        start: Begin, ms.
        end: End, ms.
        hours: Begin of every hour of the rows, ms.
        rows: One per account.
        mean_weight: Weight of an average device over the period, to turn charge into GPU-hours.
        sources: What it was made from.
    """

    start: int
    end: int
    hours: tuple[int, ...]
    rows: tuple[Row, ...]
    mean_weight: float
    sources: Sources


def make_statement(
    start: int,
    end: int,
    epochs: Sequence[Epoch],
    capacity: Sequence[Capacity],
    demands: Iterable[Demand],
    occupancies: Iterable[Occupancy],
    adjustments: Iterable[Adjustment] = (),
    mean_weight: float = 1.0,
    *,
    listed: bool = False,
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
        listed: Whether the numbers of all entries are kept per hour, not only their range.
    """
    tree = epochs[-1].tree
    book = _Book(tree, start, end, listed=listed)
    book.owe(epochs, capacity)
    wanted = [demand for demand in demands if book.want(demand)]
    seen = [occupancy for occupancy in occupancies if book.deliver(occupancy)]
    for adjustment in adjustments:
        book.adjust(adjustment)
    sources = Sources(tuple(epochs), tuple(capacity), tuple(wanted), tuple(seen))
    return Statement(start, end, _hours_of(start, end), book.rows(), mean_weight, sources)


def state_blocks(
    start: int,
    end: int,
    epochs: Sequence[Epoch],
    capacity: Sequence[Capacity],
    blocks: Mapping[str, Iterable[Blocks]],
) -> Statement:
    """Return the statement of many allocated jobs: blocks of ``demand``, ``delivered`` and ``lost``."""
    book = _Book(epochs[-1].tree, start, end, listed=False)
    book.owe(epochs, capacity)
    for name, column in blocks.items():
        for each in column:
            book.count(name, each)
    sources = Sources(tuple(epochs), tuple(capacity), (), ())
    return Statement(start, end, _hours_of(start, end), book.rows(), 1.0, sources)


def _hours_of(start: int, end: int) -> tuple[int, ...]:
    """Return when each hour of a period begins; the first may begin within one."""
    return tuple(max(hour * HOUR, start) for hour in range(start // HOUR, -(-end // HOUR)))


#: Sums that a book keeps per account and hour.
_SUMS = ("demand", "delivered", "unallocated", "protected", "lost", "adjusted")


class _Book:
    """Sums per tree row while a statement is made; leaves first, levels above at the end."""

    def __init__(self, tree: AccountTree, start: int, end: int, *, listed: bool) -> None:
        self._tree, self._start, self._end = tree, start, end
        fresh = range(len(tree))
        self._sums = {name: [HourSums(start, end) for _ in fresh] for name in _SUMS}
        self._marks = [HourMarks(start, end, listed=listed) for _ in fresh]
        self._totals = [[0, 0, 0] for _ in fresh]
        self._adjustments: list[list[Adjustment]] = [[] for _ in fresh]
        self._running: list[list[str]] = [[] for _ in fresh]
        self._capacity: Hours = HourSums(start, end).hours()
        self._entitled: list[Hours] = []
        self._models: dict[str, HourSums] = {}
        self._wanted: list[dict[str, HourSums]] = [{} for _ in fresh]

    def owe(self, epochs: Sequence[Epoch], capacity: Sequence[Capacity]) -> None:
        """Compute share x capacity per hour and account, over changes of both."""
        entitled = [np.zeros(len(self._capacity)) for _ in range(len(self._tree))]
        total = HourSums(self._start, self._end)
        for index, epoch in enumerate(epochs):
            since = epoch.at if index else self._start
            until = epochs[index + 1].at if index + 1 < len(epochs) else self._end
            part = HourSums(self._start, self._end)
            for step, (at, gpus, _) in enumerate(capacity):
                till = capacity[step + 1].at if step + 1 < len(capacity) else self._end
                part.add(max(at, since), min(till, until), gpus)
            hours = part.hours()
            for row, path in enumerate(self._tree.paths):
                there = epoch.tree.row.get(path)
                if there is not None:
                    entitled[row] += float(epoch.tree.share[there]) * hours
        for step, (at, gpus, models) in enumerate(capacity):
            until = capacity[step + 1].at if step + 1 < len(capacity) else self._end
            total.add(at, until, gpus)
            for model, devices in models:
                self._models.setdefault(model, self._sum()).add(at, until, devices)
        self._capacity = total.hours()
        self._entitled = [np.rint(each).astype(np.int64) for each in entitled]

    def _sum(self) -> HourSums:
        return HourSums(self._start, self._end)

    def _due(self, demand: Sequence[Hours]) -> list[Hours]:
        """Return what every row is owed per hour by its own share and demand."""
        due = [np.minimum(entitled, wanted) for entitled, wanted in zip(self._entitled, demand, strict=True)]
        if len(self._models) < 2:
            return due
        leaves = [row for row in range(len(due)) if not self._tree.children[row]]
        found = owed_in_cells(
            [self._entitled[row] for row in leaves],
            [{model: sums.hours() for model, sums in self._wanted[row].items()} for row in leaves],
            {model: sums.hours() for model, sums in self._models.items()},
        )
        for row, owed in zip(leaves, found, strict=True):
            due[row] = np.rint(owed).astype(np.int64)
        return due

    def count(self, name: str, blocks: Blocks) -> None:
        """Count many jobs of a leaf at once."""
        row = self._tree.row[blocks.account]
        self._sums[name][row].add_many(blocks.start, blocks.end, blocks.gpus)

    def want(self, demand: Demand) -> bool:
        """Count what a job asked for; return whether any of it belongs here."""
        row = self._tree.row.get(demand.account)
        if row is None:
            return False
        asked = self._wanted[row].setdefault(demand.model, self._sum())
        asked.add(demand.start, demand.end, demand.gpus)
        return self._sums["demand"][row].add(demand.start, demand.end, demand.gpus) > 0

    def deliver(self, run: Occupancy) -> bool:
        """Count a run by its part of the period; return whether any of it belongs here."""
        row = self._tree.row.get(run.account)
        inside = min(run.end, self._end) - max(run.start, self._start)
        if row is None or inside <= 0:
            return False
        if run.entry:
            self._marks[row].mark(run.entry, run.start, run.end)
        else:
            self._running[row].append(f"{run.job}/{run.attempt}")
        if not run.allocated:
            self._sums["unallocated"][row].add(run.start, run.end, run.gpus)
            return True
        begin = min(run.start + run.restore, run.end)
        kept = max(run.end - run.lost, begin)
        self._sums["delivered"][row].add(begin, kept, run.gpus)
        self._sums["lost"][row].add(run.start, begin, run.gpus)
        self._sums["lost"][row].add(kept, run.end, run.gpus)
        self._sums["protected"][row].add(run.start, min(run.start + run.protected, run.end), run.gpus)
        totals = self._totals[row]
        if self._start <= run.start < self._end:
            totals[0] += run.declared * run.gpus
            totals[1] += min(run.declared, run.end - run.start) * run.gpus
        totals[2] += inside * run.weight
        return True

    def adjust(self, entry: Adjustment) -> None:
        """Count an explicit entry."""
        row = self._tree.row.get(entry.account)
        if row is None or not self._start <= entry.at < self._end:
            return
        self._sums["adjusted"][row].put(entry.at, entry.charge)
        if entry.entry:
            self._marks[row].mark(entry.entry, entry.at, entry.at)
        for level in self._tree.lineage[row]:
            self._adjustments[level].append(entry)

    def rows(self) -> tuple[Row, ...]:
        """Sum the leaves into every level and return the rows in tree order."""
        tree = self._tree
        sums = {name: [each.hours() for each in column] for name, column in self._sums.items()}
        rows: list[Row] = []
        due = self._due(sums["demand"])
        for row in range(len(tree)):
            leaf = not tree.children[row]
            owed = due[row] if leaf else np.zeros_like(due[row])
            made = Row(
                tree.paths[row],
                leaf,
                self._capacity,
                self._entitled[row],
                sums["demand"][row],
                owed,
                sums["delivered"][row],
                sums["unallocated"][row],
                sums["protected"][row],
                sums["lost"][row],
                sums["adjusted"][row],
                self._marks[row],
                adjustments=self._adjustments[row],
                running=self._running[row],
            )
            made.declared, made.used, made.charged = self._totals[row]
            made.capped_by_hour = int(np.minimum(owed, made.delivered).sum()) if leaf else 0
            made.capped = min(int(owed.sum()), int(made.delivered.sum())) if leaf else 0
            rows.append(made)
        for row in range(len(tree) - 1, ROOT, -1):
            _add(rows[tree.parent[row]], rows[row])
        return tuple(rows[ROOT + 1 :])


def _add(above: Row, row: Row) -> None:
    """Add what an account had to its parent."""
    for name in ("owed", *_SUMS):
        setattr(above, name, getattr(above, name) + getattr(row, name))
    for name in ("capped_by_hour", "capped", "declared", "used", "charged"):
        setattr(above, name, getattr(above, name) + getattr(row, name))
    above.marks.merge(row.marks)
    above.running = [*above.running, *row.running]
