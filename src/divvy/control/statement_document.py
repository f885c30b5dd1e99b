"""Statements as plain values: the document that the API, the command line and a replay give alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from divvy.control.facts import Occupancy
from divvy.control.hourly import HourMarks, Hours, ranges
from divvy.control.statement import Row, Sources, Statement
from divvy.units import HOUR, SECOND, gpu_hours

SCHEMA: Final = "divvy.statement/1"

#: Figures of a row in GPU-hours, and what they are made of; each is the sum over the children of an account.
_FIGURES: Final = ("demand", "owed", "delivered", "unallocated", "protected", "lost")


def within(path: str, account: str) -> bool:
    """Return whether an account is another or lies below it; everything lies below the empty path."""
    return not account or path == account or path.startswith(f"{account}.")


def document(
    statement: Statement, account: str = "", *, hours: bool, notes: Sequence[str] = (), sources: bool = False
) -> dict[str, Any]:
    """Return a statement without its age.

    Args:
        statement: The statement.
        account: Only this subtree; empty: all.
        hours: Every hour too.
        notes: What a reader should know before believing it.
        sources: What it was made from too, and per hour the numbers of all ledger entries behind it.
    """
    rows = [row for row in statement.rows if within(row.account, account)]
    top = min((row.account.count(".") for row in rows), default=0)
    made = {
        "schema": SCHEMA,
        "from_at": statement.start / SECOND,
        "to_at": statement.end / SECOND,
        "account": account,
        "totals": _totals([row for row in rows if row.account.count(".") == top], statement),
        "rows": [_row(row, statement, hours=hours) for row in rows],
        "notes": list(notes),
    }
    if sources:
        made["sources"] = _sources(statement.sources, account)
    return made


def _totals(rows: Sequence[Row], statement: Statement) -> dict[str, Any]:
    """Return the sums over the topmost accounts."""
    found: dict[str, Any] = {
        f"{name}_gpu_hours": gpu_hours(sum(int(getattr(row, name).sum()) for row in rows))
        for name in _FIGURES
    }
    owed = sum(int(row.owed.sum()) for row in rows)
    adjusted = sum(int(row.adjusted.sum()) for row in rows)
    capacity = gpu_hours(int(rows[0].capacity.sum())) if rows else 0.0
    return {
        "capacity_gpu_hours": capacity,
        **found,
        "carried_gpu_hours": gpu_hours(sum(_last(row.carried) for row in rows)),
        "delivered_over_owed": sum(row.capped for row in rows) / owed if owed else None,
        "delivered_over_owed_hourly": sum(row.capped_by_hour for row in rows) / owed if owed else None,
        "charged": sum(row.charged for row in rows),
        "adjustments": adjusted,
        "adjustments_gpu_hours": adjusted / HOUR / statement.mean_weight,
    }


def _row(row: Row, statement: Statement, *, hours: bool) -> dict[str, Any]:
    owed = int(row.owed.sum())
    capacity = int(row.capacity.sum())
    weight = statement.mean_weight
    adjusted = sum(entry.charge for entry in row.adjustments)
    return {
        "account": row.account,
        "leaf": row.leaf,
        "share": float(row.entitled.sum() / capacity) if capacity else 0.0,
        "capacity_gpu_hours": gpu_hours(capacity),
        "demand_gpu_hours": gpu_hours(int(row.demand.sum())),
        "owed_gpu_hours": gpu_hours(owed),
        "owed_as_one_gpu_hours": gpu_hours(int(row.as_one.sum())),
        "delivered_gpu_hours": gpu_hours(int(row.delivered.sum())),
        "delivered_over_owed": row.capped / owed if owed else None,
        "delivered_over_owed_hourly": row.capped_by_hour / owed if owed else None,
        "carried_gpu_hours": gpu_hours(_last(row.carried)),
        "unallocated_gpu_hours": gpu_hours(int(row.unallocated.sum())),
        "protected_gpu_hours": gpu_hours(int(row.protected.sum())),
        "lost_gpu_hours": gpu_hours(int(row.lost.sum())),
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
                "id": entry.entry or None,
            }
            for entry in row.adjustments
        ],
        "running": row.running,
        "hours": _hours(row, statement) if hours else None,
    }


def _last(column: Hours) -> int:
    return int(column[-1]) if len(column) else 0


def _hours(row: Row, statement: Statement) -> list[dict[str, Any]]:
    share = np.divide(
        row.entitled, row.capacity, out=np.zeros(len(row.capacity)), where=row.capacity > 0, dtype=np.float64
    )
    columns = {
        "share": [float(each) for each in share],
        "capacity": _in_hours(row.capacity),
        **{name: _in_hours(getattr(row, name)) for name in _FIGURES},
        "carried": _in_hours(row.carried),
        "adjustments": [float(each) for each in row.adjusted / HOUR / statement.mean_weight],
    }
    return [
        {
            "at": at / SECOND,
            **{name: column[place] for name, column in columns.items()},
            "ledger": _entries(row.marks, place),
        }
        for place, at in enumerate(statement.hours)
    ]


def _entries(marks: HourMarks, place: int) -> dict[str, Any]:
    """Return which ledger entries touch an hour."""
    count = int(marks.count[place])
    return {
        "first": int(marks.lowest[place]) if count else None,
        "last": int(marks.highest[place]) if count else None,
        "count": count,
        "ids": ranges(marks.listed[place]) if marks.listed is not None else None,
    }


def _in_hours(column: Hours) -> list[float]:
    return [float(value) for value in np.asarray(column) / HOUR]


# -- what it was made from ----------------------------------------------------------------------------


def _sources(sources: Sources, account: str) -> dict[str, Any]:
    """Return everything that somebody else needs to recompute the statement."""
    mine = [run for run in sources.occupancies if within(run.account, account)]
    return {
        "shares": [
            {
                "at": epoch.at / SECOND,
                "shares": {
                    path: float(share)
                    for path, share in zip(epoch.tree.paths, epoch.tree.share, strict=True)
                    if path and within(path, account)
                },
            }
            for epoch in sources.epochs
        ],
        "capacity": [
            {"at": step.at / SECOND, "gpus": step.gpus, "models": dict(step.models)}
            for step in sources.capacity
        ],
        "demand": [
            {
                "account": demand.account,
                "job": demand.job,
                "from_at": demand.start / SECOND,
                "to_at": demand.end / SECOND,
                "gpus": demand.gpus,
                "model": demand.model,
            }
            for demand in sources.demands
            if within(demand.account, account)
        ],
        "runs": ledger_rows(mine),
    }


def ledger_rows(runs: Iterable[Occupancy]) -> list[dict[str, Any]]:
    """Return runs as the lines that a statement's ledger numbers speak of; ``id`` is null while one runs."""
    return [
        {
            "id": run.entry or None,
            "account": run.account,
            "job": run.job,
            "attempt": run.attempt,
            "from_at": run.start / SECOND,
            "to_at": run.end / SECOND,
            "gpus": run.gpus,
            "weight": run.weight,
            "charge": run.weight * (run.end - run.start),
            "allocated": run.allocated,
            "declared_seconds": run.declared / SECOND,
            "protected_seconds": min(run.protected, run.end - run.start) / SECOND,
            "restore_seconds": run.restore / SECOND,
            "lost_seconds": run.lost / SECOND,
        }
        for run in runs
    ]
