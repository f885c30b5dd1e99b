"""The journal's writer: one transaction per pass, or none of it.

A transaction holds the entry, the ledger, the read model and the requests that the pass consumed. Where it
fails for want of space or access, the entry stays in memory, `append` raises, and nothing may be ordered
until `flush` has written it: the state is ahead of the record, and the record is what counts.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from divvy.adapters.store.database import Database
from divvy.adapters.store.inbox import Inbox, Taken, settle_rows
from divvy.adapters.store.rows import capacity_row, dump, history_rows, job_rows, ledger_rows, spec_values
from divvy.adapters.store.tables import (
    base,
    blob,
    budget_version,
    capacity,
    counter,
    fence,
    history,
    job,
    journal,
    ledger,
)
from divvy.control.changes import budget_changes
from divvy.control.codec import canonical, digest, plan_document, state_document
from divvy.control.compact import compact
from divvy.control.journal import Entry
from divvy.control.state import FleetState
from divvy.errors import ConflictError
from divvy.fleet.decision import Plan, Preempt, Start
from divvy.fleet.event import BudgetChanged, Event, Submitted
from divvy.fleet.ledger import LedgerEntry
from divvy.fleet.snapshot import Snapshot

_LEVEL: Final = 1  # zlib: entries are written in a pass, and the fastest level already gives most of it


@dataclass(frozen=True, slots=True)
class _Append:
    """Everything that one transaction writes, taken from the state when it held."""

    entry: Entry
    starts: int
    preemptions: int
    jobs: list[dict[str, Any]]
    new: dict[str, dict[str, Any]]
    history: list[dict[str, Any]]
    ledger: list[dict[str, Any]]
    capacity: dict[str, Any] | None
    taken: list[Taken]


@dataclass(frozen=True, slots=True)
class _Base:
    seq: int
    at: int
    version: int
    data: bytes


class StoreJournal:
    """Writes what the loop hands over.

    Args:
        database: The store.
        inbox: Knows which events came from which request.
        charges: Ledger entries that the state has closed; taken from here with the events that closed them.
        planner: Name of the planner, recorded with its plans.
        seed: What the planner is given.
        stamp: Tells the loop's clock, the boot of the machine and the ms since it, for the next start.
        seq: Number of the last entry there is.
        since_base: Events since the last base snapshot.
        term: Result of `archive.take_over`.
    """

    def __init__(
        self,
        database: Database,
        inbox: Inbox,
        charges: list[LedgerEntry],
        planner: str,
        seed: int,
        *,
        stamp: Callable[[], tuple[int, str, int]],
        seq: int,
        since_base: int,
        term: int,
    ) -> None:
        self._database = database
        self._inbox = inbox
        self._planner = planner
        self._seed = seed
        self._stamp = stamp
        self._term = term
        self._pending: deque[_Append | _Base] = deque()
        self._charges = charges
        self.seq = seq
        self.since_base = since_base

    @property
    def behind(self) -> int:
        """Return how many entries wait in memory because they could not be written."""
        return len(self._pending)

    def append(self, events: Sequence[Event], plan: Plan | None, snapshot: Snapshot) -> None:
        """Record a pass.

        Raises:
            UnavailableError: If it cannot be written now; it is kept, see `flush`.
            ConflictError: If another loop has taken over.
        """
        self.seq += 1
        self.since_base += len(events)
        self._pending.append(self._collect(events, plan, snapshot))
        self._charges.clear()
        self.flush()

    def checkpoint(self, state: FleetState, now: int) -> int:
        """Compact the state and record it whole; return how many jobs it forgot. Between passes only.

        Raises:
            UnavailableError: If it cannot be written now; it is kept, see `flush`.
            ConflictError: If another loop has taken over.
        """
        if not self.since_base:
            return 0  # one compaction at most stands after an entry
        forgotten = compact(state, now)
        data = canonical(state_document(state.snapshot))
        self._pending.append(_Base(self.seq, now, state.snapshot.version, data))
        self.since_base = 0
        self.flush()
        return forgotten

    def flush(self) -> None:
        """Write what is waiting.

        Raises:
            UnavailableError: If it cannot be written now.
            ConflictError: If another loop has taken over.
        """
        while self._pending:
            item = self._pending[0]
            with self._database.write() as connection:
                if isinstance(item, _Append):
                    self._hold(connection, item.entry.seq)
                    _write(connection, item)
                else:
                    self._hold(connection, item.seq)
                    write_base(connection, item.seq, item.at, item.version, item.data)
            self._pending.popleft()
            if isinstance(item, _Append):
                self._inbox.written(item.taken)

    def _collect(self, events: Sequence[Event], plan: Plan | None, snapshot: Snapshot) -> _Append:
        cut = len(events) - (snapshot.version - plan.version if plan is not None else 0)
        entry = Entry(
            self.seq,
            plan.now if plan is not None else max(event.at for event in events),
            snapshot.version,
            self._planner if plan is not None else "",
            self._seed,
            tuple(events[:cut]),
            plan_document(plan, snapshot) if plan is not None else None,
            tuple(events[cut:]),
        )
        decisions = plan.decisions if plan is not None else ()
        return _Append(
            entry,
            sum(isinstance(decision, Start) for decision in decisions),
            sum(isinstance(decision, Preempt) for decision in decisions),
            job_rows(events, snapshot, self.seq),
            {event.spec.id: spec_values(event.spec) for event in events if isinstance(event, Submitted)},
            history_rows(events, plan, snapshot, self.seq),
            ledger_rows(self._charges, snapshot, self.seq),
            capacity_row(events, snapshot),
            self._inbox.taken(events),
        )

    def _hold(self, connection: sa.Connection, seq: int) -> None:
        """Claim the right to append, in the transaction that appends."""
        now, boot, uptime = self._stamp()
        claim = (
            fence.update().where(fence.c.term == self._term).values(seq=seq, at=now, boot=boot, uptime=uptime)
        )
        if connection.execute(claim).rowcount != 1:
            raise ConflictError.one(
                "loop-superseded",
                "another scheduler loop has taken over this database",
                fix="use one `divvy up` per database",
            )


def write_base(connection: sa.Connection, seq: int, at: int, version: int, data: bytes) -> None:
    """Store a whole state under its digest and note where in the journal it belongs."""
    sha = digest(data)
    if connection.execute(sa.select(blob.c.sha).where(blob.c.sha == sha)).first() is None:
        connection.execute(blob.insert().values(sha=sha, size=len(data), body=zlib.compress(data, _LEVEL)))
    connection.execute(base.delete().where(base.c.seq == seq))
    connection.execute(base.insert().values(seq=seq, at=at, version=version, sha=sha))


def _write(connection: sa.Connection, item: _Append) -> None:
    entry = item.entry
    connection.execute(
        journal.insert().values(
            seq=entry.seq,
            at=entry.at,
            version=entry.version,
            planner=entry.planner,
            seed=entry.seed,
            events=len(entry.happened) + len(entry.carried_out),
            starts=item.starts,
            preemptions=item.preemptions,
            body=zlib.compress(entry.body(), _LEVEL),
        )
    )
    if item.ledger:
        connection.execute(ledger.insert(), item.ledger)
    _write_jobs(connection, item)
    if item.history:
        connection.execute(history.insert(), item.history)
    if item.capacity is not None:
        connection.execute(capacity.insert().values(**item.capacity))
    for taken in item.taken:
        if isinstance(taken.event, BudgetChanged):
            _write_budget(connection, taken)
    settle_rows(connection, entry.at, item.taken)


_JOB_UPDATE: Final = (
    job.update()
    .where(job.c.id == sa.bindparam("id_"))
    .values(
        {
            name: sa.bindparam(name)
            for name in (
                "account",
                "phase",
                "submitted",
                "queued",
                "stopped",
                "protected_until",
                "placement",
                "preemptions",
                "attempt",
                "debug",
                "rate",
                "stop_cause",
                "exit_code",
                "changed",
            )
        }
        | {name: sa.func.coalesce(sa.bindparam(name), job.c[name]) for name in ("started", "note")}
    )
)


def _write_jobs(connection: sa.Connection, item: _Append) -> None:
    if not item.jobs:
        return
    for name in _missing(connection, list(item.new)):
        # Submitted past the intake (a test, an import): the row that the API would have made.
        step = counter.update().where(counter.c.name == "job").values(value=counter.c.value + 1)
        number = connection.execute(step.returning(counter.c.value)).scalar_one()
        row = next(values for values in item.jobs if values["id_"] == name)
        values = {key: value for key, value in row.items() if key != "id_"}
        connection.execute(
            job.insert().values({**item.new[name], **values, "number": number, "note": row["note"] or ""})
        )
    connection.execute(_JOB_UPDATE, item.jobs)


def _missing(connection: sa.Connection, names: list[str]) -> list[str]:
    missing: list[str] = []
    for begin in range(0, len(names), 500):
        part = names[begin : begin + 500]
        there = set(connection.execute(sa.select(job.c.id).where(job.c.id.in_(part))).scalars())
        missing += (name for name in part if name not in there)
    return missing


def _write_budget(connection: sa.Connection, taken: Taken) -> None:
    event, version = taken.event, taken.result["version"]
    assert isinstance(event, BudgetChanged)  # noqa: S101 - chosen by the caller
    newest = sa.select(budget_version.c.document).order_by(budget_version.c.version.desc()).limit(1)
    before = json.loads(connection.execute(newest).scalar_one())
    connection.execute(
        budget_version.insert().values(
            version=version,
            at=event.at,
            author=event.author,
            reason=event.reason,
            document=dump(event.document),
            changes=dump(budget_changes(before, event.document)),
        )
    )
