"""Retention: old rows go, a small batch at a time, so that a pass never waits for it.

The ledger, the budget versions and the capacity are the books and stay. A journal is cut only where a base
snapshot stands, so that everything that is kept can be re-run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
import structlog

from divvy.adapters.store.database import Database
from divvy.adapters.store.tables import base, blob, history, intake, job, journal, launch, posted
from divvy.errors import UnavailableError
from divvy.units import DAY, MINUTE

_BATCH: Final = 200
_PAGES: Final = 128
_REST: Final = MINUTE
_log = structlog.get_logger("retention")


@dataclass(frozen=True, slots=True)
class Keep:
    """How long rows stay.

    Attributes:
        jobs: A job that is over, with its history and its command, ms.
        journal: Journal entries, ms.
        requests: Consumed requests, ms.
        posted: Ids of posted charges, ms; longer than a charge may be late.
    """

    jobs: int = 90 * DAY
    journal: int = 14 * DAY
    requests: int = 7 * DAY
    posted: int = 90 * DAY


class Retention:
    """Removes what has been kept long enough.

    Args:
        database: The store.
        keep: How long rows stay.
    """

    def __init__(self, database: Database, keep: Keep) -> None:
        self._database = database
        self._keep = keep
        self._not_before = 0

    def sweep(self, now: int) -> int:
        """Remove one batch and return its size; after an empty one it rests for a minute."""
        if now < self._not_before:
            return 0
        try:
            with self._database.write() as connection:
                removed = (
                    _sweep_jobs(connection, now - self._keep.jobs)
                    + _sweep_requests(connection, now - self._keep.requests)
                    + _sweep_posted(connection, now - self._keep.posted)
                    + _sweep_journal(connection, now - self._keep.journal)
                )
                if removed and self._database.sqlite:
                    for _ in range(_PAGES):  # one step of this statement frees one page
                        connection.exec_driver_sql("PRAGMA incremental_vacuum(1)")
        except UnavailableError as error:
            _log.warning("cannot sweep", error=str(error))
            removed = 0
        if removed < _BATCH:
            self._not_before = now + _REST
        return removed


def _sweep_jobs(connection: sa.Connection, before: int) -> int:
    query = sa.select(job.c.id).where(job.c.stopped < before).order_by(job.c.stopped).limit(_BATCH)
    names = connection.execute(query).scalars().all()
    if names:
        connection.execute(history.delete().where(history.c.job.in_(names)))
        connection.execute(launch.delete().where(launch.c.job.in_(names)))
        connection.execute(job.delete().where(job.c.id.in_(names)))
    return len(names)


def _sweep_requests(connection: sa.Connection, before: int) -> int:
    query = sa.select(intake.c.seq).where(intake.c.consumed < before).order_by(intake.c.seq).limit(_BATCH)
    numbers = connection.execute(query).scalars().all()
    if numbers:
        connection.execute(intake.delete().where(intake.c.seq.in_(numbers)))
    return len(numbers)


def _sweep_posted(connection: sa.Connection, before: int) -> int:
    query = sa.select(posted.c.id).where(posted.c.at < before).order_by(posted.c.at).limit(_BATCH)
    names = connection.execute(query).scalars().all()
    if names:
        connection.execute(posted.delete().where(posted.c.id.in_(names)))
    return len(names)


def _sweep_journal(connection: sa.Connection, before: int) -> int:
    """Remove entries up to the newest base snapshot that is old enough; two snapshots always stay."""
    bases = connection.execute(sa.select(base.c.seq, base.c.at).order_by(base.c.seq.desc())).all()
    cut = next((row.seq for row in bases[1:] if row.at < before), None)
    if cut is None:
        return 0
    query = sa.select(journal.c.seq).where(journal.c.seq <= cut).order_by(journal.c.seq).limit(_BATCH)
    numbers = connection.execute(query).scalars().all()
    if numbers:
        connection.execute(journal.delete().where(journal.c.seq.in_(numbers)))
        return len(numbers)
    old = connection.execute(sa.select(base.c.seq).where(base.c.seq < cut).limit(_BATCH)).scalars().all()
    if old:
        connection.execute(base.delete().where(base.c.seq.in_(old)))
        connection.execute(blob.delete().where(blob.c.sha.not_in(sa.select(base.c.sha))))
    return len(old)
