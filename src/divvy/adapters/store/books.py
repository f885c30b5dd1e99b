"""The books as readers see them: who was charged for what, what there was, which budget held.

Every method is one short read transaction on its own connection and may be called from any thread.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from divvy.adapters.store.database import Database
from divvy.adapters.store.tables import budget_version, capacity, history, job, ledger
from divvy.control.facts import Stint
from divvy.fleet.job import Phase

#: How a placement without protection reads in the history (`rows.dump`).
_BARE: Final = '"protected":false'


class LedgerRow(NamedTuple):
    """A ledger entry with its number, and with the author of its job (empty for an adjustment by hand)."""

    id: int
    seq: int
    account: str
    author: str
    job: str
    attempt: int
    started: int
    ended: int
    gpus: int
    weight: int
    charge: int
    allocated: bool
    cause: str


class CapacityRow(NamedTuple):
    """Healthy devices of the fleet, their charge rate, and how many of each model, since ``at``."""

    at: int
    gpus: int
    rate: int
    models: tuple[tuple[str, int], ...] = ()


class BudgetRow(NamedTuple):
    """A version of the budget."""

    version: int
    at: int
    author: str
    reason: str
    document: dict[str, Any]
    changes: list[dict[str, Any]]


class Books:
    """Reads the books.

    Args:
        database: The store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def stints(self, since: int, until: int) -> list[Stint]:
        """Return the jobs that were queued or running at any time in a period, with little of each."""
        j = job.c
        refused = (j.phase == int(Phase.FAILED)) & (j.attempt == 0)
        query = sa.select(
            *(j.id, j.account, j.gpus, j.min_runtime, j.resumable, refused),
            *(j.submitted, j.started, j.stopped, j.attempt, j.rate, j.stop_cause, j.protected_until, j.model),
        ).where(j.submitted < until, j.stopped.is_(None) | (j.stopped > since))
        return [Stint._make(row) for row in self._rows(query.order_by(j.number))]

    def unprotected(self, since: int, until: int) -> set[tuple[str, int]]:
        """Return the runs of allocated jobs of a period that began unprotected, as (job, attempt)."""
        bare = sa.select(history.c.job).where(
            history.c.event == "placed", history.c.detail.contains(_BARE, autoescape=True)
        )
        query = (
            sa.select(history.c.job, history.c.detail)
            .join(job, job.c.id == history.c.job)
            .where(history.c.event == "placed", history.c.job.in_(bare), job.c.min_runtime > 0)
            .where(job.c.submitted < until, job.c.stopped.is_(None) | (job.c.stopped > since))
            .order_by(history.c.id)
        )
        attempts: dict[str, int] = {}
        found: set[tuple[str, int]] = set()
        for row in self._rows(query):
            name, detail = row.job, row.detail
            attempts[name] = attempts.get(name, 0) + 1
            if _BARE in detail:
                found.add((name, attempts[name]))
        return found

    def ledger(
        self,
        *,
        account: str | None = None,
        job_id: str | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> list[LedgerRow]:
        """Return ledger entries that touch a period, in order.

        Args:
            account: Only of this account and those below it.
            job_id: Only of this job.
            since: Only those that end after it.
            until: Only those that begin before it.
        """
        query = sa.select(*(ledger.c[name] for name in LedgerRow._fields)).order_by(ledger.c.id)
        if account is not None:
            query = query.where(within(ledger.c.account, account))
        if job_id is not None:
            query = query.where(ledger.c.job == job_id)
        if since is not None:
            query = query.where(ledger.c.ended > since)
        if until is not None:
            query = query.where(ledger.c.started < until)
        return [LedgerRow._make(row) for row in self._rows(query)]

    def ran(self, since: int) -> dict[str, int]:
        """Return how long jobs ran in all the runs that ended since a time, ms."""
        amount = sa.func.sum(ledger.c.ended - ledger.c.started)
        query = sa.select(ledger.c.job, amount.label("ran")).where(ledger.c.ended > since, ledger.c.job != "")
        return {row.job: int(row.ran) for row in self._rows(query.group_by(ledger.c.job))}

    def capacity(self, since: int, until: int) -> list[CapacityRow]:
        """Return how the fleet's capacity changed in a period, beginning with what held at its start."""
        columns = (capacity.c.at, capacity.c.gpus, capacity.c.rate, capacity.c.models)
        first = sa.select(*columns).where(capacity.c.at <= since).order_by(capacity.c.id.desc()).limit(1)
        rest = sa.select(*columns).where(capacity.c.at > since, capacity.c.at < until).order_by(capacity.c.id)
        with self._database.read() as connection:
            rows = [*connection.execute(first), *connection.execute(rest)]
        return [CapacityRow(row.at, row.gpus, row.rate, tuple(as_object(row.models).items())) for row in rows]

    def budgets(self) -> list[BudgetRow]:
        """Return all versions of the budget, newest first."""
        query = sa.select(budget_version).order_by(budget_version.c.version.desc())
        return [_budget(row) for row in self._rows(query)]

    def budget(self, version: int | None = None) -> BudgetRow | None:
        """Return a version of the budget, by default the one in force; None before the first start."""
        query = sa.select(budget_version).order_by(budget_version.c.version.desc()).limit(1)
        if version is not None:
            query = query.where(budget_version.c.version == version)
        rows = self._rows(query)
        return _budget(rows[0]) if rows else None

    def _rows(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        with self._database.read() as connection:
            return connection.execute(query).all()


def within(column: sa.Column[Any], path: str) -> sa.ColumnElement[bool]:
    """Return the condition that an account is another or lies below it."""
    return (column == path) | column.startswith(path + ".", autoescape=True)


def as_object(text: str) -> dict[str, Any]:
    """Return the JSON object that a text holds.

    Raises:
        TypeError: If it is something else.
    """
    document = json.loads(text)
    if not isinstance(document, dict):
        raise TypeError(f"expected an object, found {type(document).__name__}")
    return document


def _budget(row: sa.Row[Any]) -> BudgetRow:
    return BudgetRow(
        row.version, row.at, row.author, row.reason, as_object(row.document), json.loads(row.changes)
    )
