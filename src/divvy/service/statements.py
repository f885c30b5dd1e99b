"""Statements from the store: which rows matter to a period, what of them was lost, and the answer's shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from divvy.control.statement import (
    Adjustment,
    Capacity,
    Demand,
    Epoch,
    Hours,
    Occupancy,
    Row,
    Statement,
    Stint,
    make_statement,
)
from divvy.errors import InputError
from divvy.fleet.account import AccountTree
from divvy.fleet.budget import read_budget
from divvy.fleet.job import StopCause
from divvy.service.identity import within
from divvy.service.ports import BudgetRecord, CapacityStep, LedgerLine, Reader
from divvy.units import DAY, HOUR, SECOND, gpu_hours

LONGEST: Final = 400 * DAY
MOST_HOURS: Final = 100_000
_LOSING: Final = (StopCause.PREEMPTED, StopCause.DRAINED, StopCause.NODE_LOST)


class Statements:
    """Makes statements; budget versions are compiled once.

    Args:
        reader: The store.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._trees: dict[int, AccountTree] = {}

    def make(self, start: int, end: int, now: int) -> Statement:
        """Return the statement of a period (ms); what has not happened yet is not in it."""
        end = max(min(end, now), start)
        stints = {stint.job: stint for stint in self._reader.stints(start, end)}
        ledger = self._reader.ledger(since=start, until=end)
        steps = self._reader.capacity(start, end)
        return make_statement(
            start,
            end,
            self._epochs(end),
            [Capacity(step.at, step.gpus) for step in steps],
            _demands(stints.values(), end),
            [*_finished(ledger, stints), *_open(stints.values(), ledger, end)],
            [
                Adjustment(line.account, line.started, line.charge, line.cause)
                for line in ledger
                if not line.job
            ],
            _mean_weight(steps, start, end),
        )

    def _epochs(self, end: int) -> list[Epoch]:
        versions = sorted(self._reader.budgets(), key=lambda version: version.version)
        inside = [version for version in versions if version.at < end] or versions[:1]
        return [Epoch(version.at, self._tree(version)) for version in inside]

    def _tree(self, record: BudgetRecord) -> AccountTree:
        tree = self._trees.get(record.version)
        if tree is None:
            tree = self._trees[record.version] = read_budget(record.document).tree
        return tree


def check_period(start: int, end: int, *, hours: bool, accounts: int) -> None:
    """Refuse a period that makes no sense or an answer without bound.

    Raises:
        InputError: Saying what would be accepted.
    """
    if end <= start:
        raise InputError.one(
            "period-empty", "the period ends before it begins", path="to", allowed="after from"
        )
    if end - start > LONGEST:
        raise InputError.one(
            "period-long",
            f"{(end - start) // DAY} days",
            path="from",
            allowed=f"at most {LONGEST // DAY} days",
        )
    rows = ((end - start) // HOUR + 1) * accounts
    if hours and rows > MOST_HOURS:
        raise InputError.one(
            "period-long",
            f"{rows} rows of hours",
            path="hours",
            allowed=f"at most {MOST_HOURS} rows",
            fix="ask for a shorter period or one account",
        )


def document(statement: Statement, account: str, *, hours: bool) -> dict[str, Any]:
    """Return a statement without its age, of one subtree or of all accounts."""
    return {
        "schema": "divvy.statement/1",
        "from_at": statement.start / SECOND,
        "to_at": statement.end / SECOND,
        "rows": [
            _row(row, statement, hours=hours)
            for row in statement.rows
            if not account or within(row.account, account)
        ],
    }


def _row(row: Row, statement: Statement, *, hours: bool) -> dict[str, Any]:
    owed, delivered = int(row.owed.sum()), int(row.delivered.sum())
    capacity = int(row.capacity.sum())
    weight = statement.mean_weight
    adjusted = sum(entry.charge for entry in row.adjustments)
    return {
        "account": row.account,
        "share": float(row.entitled.sum() / capacity) if capacity else 0.0,
        "capacity_gpu_hours": gpu_hours(capacity),
        "demand_gpu_hours": gpu_hours(int(row.demand.sum())),
        "owed_gpu_hours": gpu_hours(owed),
        "delivered_gpu_hours": gpu_hours(delivered),
        "delivered_over_owed": min(delivered, owed) / owed if owed else None,
        "delivered_over_owed_hourly": row.capped / owed if owed else None,
        "unallocated_gpu_hours": gpu_hours(int(row.unallocated.sum())),
        "lost_gpu_hours": gpu_hours(row.lost),
        "declared_gpu_hours": gpu_hours(row.declared),
        "declared_used_gpu_hours": gpu_hours(row.used),
        "charged": row.charged,
        "charged_gpu_hours": row.charged / HOUR / weight,
        "adjustments": adjusted,
        "adjustments_gpu_hours": adjusted / HOUR / weight,
        "entries": [
            {
                "at": entry.at / SECOND,
                "charge": entry.charge,
                "gpu_hours": entry.charge / HOUR / weight,
                "cause": entry.cause,
            }
            for entry in row.adjustments
        ],
        "hours": _hours(row, statement.hours) if hours else None,
    }


def _hours(row: Row, begins: Sequence[int]) -> list[dict[str, float]]:
    columns = (row.capacity, row.demand, row.owed, row.delivered, row.unallocated)
    return [
        {
            "at": at / SECOND,
            "capacity": capacity,
            "demand": demand,
            "owed": owed,
            "delivered": delivered,
            "unallocated": unallocated,
        }
        for at, capacity, demand, owed, delivered, unallocated in zip(
            begins, *(_in_hours(column) for column in columns), strict=True
        )
    ]


def _in_hours(column: Hours) -> list[float]:
    return [float(value) for value in np.asarray(column) / HOUR]


def _demands(stints: Iterable[Stint], end: int) -> Iterable[Demand]:
    for stint in stints:
        if stint.min_runtime and not stint.refused:
            until = end if stint.stopped is None else stint.stopped
            yield Demand(stint.account, stint.submitted, until, stint.gpus)


def _finished(ledger: Iterable[LedgerLine], stints: dict[str, Stint]) -> Iterable[Occupancy]:
    for line in ledger:
        if line.job:
            stint = stints.get(line.job)
            yield Occupancy(
                line.account,
                line.started,
                line.ended,
                line.gpus,
                line.weight,
                line.allocated,
                stint is not None and _was_lost(stint, line.attempt),
                stint.min_runtime if stint is not None else 0,
            )


def _was_lost(stint: Stint, attempt: int) -> bool:
    """Return whether the work of a run is known to be gone: it was cut short and nothing resumes it."""
    if stint.resumable:
        return False
    if attempt < stint.attempt:  # it began again from zero
        return True
    return stint.stop_cause in _LOSING


def _open(stints: Iterable[Stint], ledger: Iterable[LedgerLine], end: int) -> Iterable[Occupancy]:
    """Yield the runs that are not over, as far as they have come; what they declared is judged at the end."""
    closed = {(line.job, line.attempt) for line in ledger}
    for stint in stints:
        if stint.rate and stint.started is not None and (stint.job, stint.attempt) not in closed:
            yield Occupancy(
                stint.account,
                stint.started,
                end,
                stint.gpus,
                stint.rate,
                stint.min_runtime > 0,
                lost=False,
                declared=0,
            )


def _mean_weight(steps: Sequence[CapacityStep], start: int, end: int) -> float:
    devices = charge = 0
    for index, step in enumerate(steps):
        until = steps[index + 1].at if index + 1 < len(steps) else end
        span = max(min(until, end) - max(step.at, start), 0)
        devices += step.gpus * span
        charge += step.rate * span
    return charge / devices if devices else 1.0
