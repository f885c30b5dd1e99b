"""What readers ask of the store: jobs, their history, the ledger, the journal, budgets, the published fleet.

Every method is one short read transaction on its own connection and may be called from any thread.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from divvy.adapters.store.books import Books, as_object, within
from divvy.adapters.store.rows import spec_of
from divvy.adapters.store.tables import (
    ACCEPTED,
    base,
    history,
    job,
    journal,
    launch,
    published,
)
from divvy.fleet.job import JobSpec, Phase, StopCause

#: How many of the newest rows of the history are looked through for dated slots.
_SLOT_ROWS: Final = 20_000


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as the last journalled event left it.

    Attributes:
        spec: As submitted.
        number: Grows with every submission; pages count down on it.
        debug: Whether the debug rule favours it.
        phase: None while the loop has not seen it yet (accepted).
        submitted: ms since the Unix epoch, like all times here.
        queued: Since when it waits, or waited last.
        started: When the present or last run was placed or started; None before.
        stopped: When it ended for good; None before.
        protected_until: End of the present run's protection; 0 where it has none.
        placement: (node, devices) of the present run.
        preemptions: So far.
        attempt: Runs begun so far.
        rate: Charge per ms of the present run; 0 where nothing runs.
        stop_cause: Why the present run was told to leave, or the last one ended; None before.
        exit_code: Of the last run; None where there was none to ask.
        note: Why the loop refused it, or what the engine said at its end; often empty.
        changed: Number of the journal entry that changed it last; 0 while the loop has not seen it.
    """

    spec: JobSpec
    number: int
    debug: bool
    phase: Phase | None
    submitted: int
    queued: int
    started: int | None
    stopped: int | None
    protected_until: int
    placement: tuple[tuple[str, int], ...]
    preemptions: int
    attempt: int
    rate: int
    stop_cause: StopCause | None
    exit_code: int | None
    note: str
    changed: int

    @property
    def id(self) -> str:
        """Return the id."""
        return self.spec.id

    @property
    def over(self) -> bool:
        """Return whether the job has ended for good."""
        return self.phase is not None and self.phase.terminal

    def label(self, now: int) -> str:
        """Return the state as people know it, in the words of `JobTable.label`, or ``accepted``."""
        if self.phase is None:
            return "accepted"
        if self.phase in (Phase.RUNNING, Phase.PLACED):
            if not self.spec.allocated:
                return "unallocated"
            return "protected" if now < self.protected_until else "interruptible"
        if self.phase is Phase.QUEUED and self.preemptions:
            return f"preempted({self.preemptions})"
        return self.phase.name.lower()


class HistoryRow(NamedTuple):
    """Something that happened to a job: the event's name and its fields besides time and job."""

    at: int
    event: str
    detail: dict[str, Any]
    seq: int


class OccurrenceRow(NamedTuple):
    """Something that happened to a job, with what is to be said of the job."""

    id: int
    at: int
    event: str
    detail: dict[str, Any]
    job: str
    name: str
    account: str
    author: str
    gpus: int


class JournalRow(NamedTuple):
    """A journal entry without its body."""

    seq: int
    at: int
    version: int
    planner: str
    seed: int
    events: int
    starts: int
    preemptions: int


class Published(NamedTuple):
    """The fleet as the last published pass left it; ``text`` is the JSON document."""

    version: int
    at: int
    text: str


class Reader(Books):
    """Reads the store.

    Args:
        database: The store.
    """

    # -- jobs -----------------------------------------------------------------------------------------

    def job(self, name: str) -> JobRow | None:
        """Return a job, None where there is none of that id."""
        rows = self._jobs(sa.select(job).where(job.c.id == name))
        return rows[0] if rows else None

    def jobs(
        self,
        *,
        phases: Iterable[Phase | None] | None = None,
        account: str | None = None,
        author: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[JobRow]:
        """Return jobs, newest first.

        Args:
            phases: Only these; None among them means accepted.
            account: Only of this account and those below it.
            author: Only of this author.
            before: Only with a smaller number (the last one of the page before).
            limit: At most so many.
        """
        query = sa.select(job).order_by(job.c.number.desc()).limit(limit)
        if phases is not None:
            query = query.where(job.c.phase.in_([ACCEPTED if p is None else int(p) for p in phases]))
        if account is not None:
            query = query.where(within(job.c.account, account))
        if author is not None:
            query = query.where(job.c.author == author)
        if before is not None:
            query = query.where(job.c.number < before)
        return self._jobs(query)

    def live(self, limit: int = 1_000_000) -> list[JobRow]:
        """Return the jobs that are not over, oldest first."""
        query = sa.select(job).where(job.c.phase < int(Phase.FINISHED)).order_by(job.c.number).limit(limit)
        return self._jobs(query)

    def jobs_changed(self, after: int, newer_than: int) -> list[JobRow]:
        """Return what a reader that keeps jobs in memory has not seen yet.

        Args:
            after: The largest `JobRow.changed` seen so far.
            newer_than: The largest `JobRow.number` seen so far.
        """
        query = sa.select(job).where((job.c.changed > after) | (job.c.number > newer_than))
        return self._jobs(query.order_by(job.c.number))

    def submissions(self, since: int, limit: int) -> list[tuple[int, JobSpec, bool]]:
        """Return the newest submissions since a time (ms), oldest first: when, what, debug."""
        query = sa.select(job).where(job.c.submitted >= since).order_by(job.c.number.desc()).limit(limit)
        return [(row.submitted, row.spec, row.debug) for row in reversed(self._jobs(query))]

    def endings(self, since: int, limit: int) -> list[tuple[JobSpec, int]]:
        """Return the newest jobs that ended by themselves since a time, oldest first: what, ms it ran."""
        own = [int(cause) for cause in (StopCause.FINISHED, StopCause.FAILED, StopCause.TIME_LIMIT)]
        query = sa.select(job).where(job.c.stopped >= since, job.c.stop_cause.in_(own))
        rows = self._jobs(query.order_by(job.c.stopped.desc()).limit(limit))
        ran = self.ran(since)
        return [(row.spec, ran[row.id]) for row in reversed(rows) if row.id in ran]

    def count(self, phases: Iterable[Phase | None]) -> int:
        """Return how many jobs are in these phases."""
        wanted = [ACCEPTED if phase is None else int(phase) for phase in phases]
        query = sa.select(sa.func.count()).select_from(job).where(job.c.phase.in_(wanted))
        return int(self._rows(query)[0][0])

    def launch(self, name: str) -> dict[str, Any] | None:
        """Return what a job runs (`LaunchSpec` as plain values), None where it is not known."""
        rows = self._rows(sa.select(launch.c.document).where(launch.c.job == name))
        return as_object(rows[0].document) if rows else None

    def history(self, name: str) -> list[HistoryRow]:
        """Return what happened to a job, oldest first."""
        query = sa.select(history).where(history.c.job == name).order_by(history.c.id)
        return [HistoryRow(r.at, r.event, as_object(r.detail), r.seq) for r in self._rows(query)]

    def happened(self, after: int, limit: int) -> list[OccurrenceRow]:
        """Return what happened to jobs after a number of the history, oldest first."""
        columns = (history.c.id, history.c.at, history.c.event, history.c.detail, history.c.job)
        query = (
            sa.select(*columns, job.c.name, job.c.account, job.c.author, job.c.gpus)
            .join(job, job.c.id == history.c.job)
            .where(history.c.id > after)
            .order_by(history.c.id)
            .limit(limit)
        )
        return [OccurrenceRow._make(row)._replace(detail=as_object(row.detail)) for row in self._rows(query)]

    def newest_happened(self) -> int:
        """Return the newest number of the history, 0 if there is none."""
        return int(self._rows(sa.select(sa.func.coalesce(sa.func.max(history.c.id), 0)))[0][0])

    def debug_gpu_time(self, author: str, since: int) -> int:
        """Return the declared GPU-ms of an author's debug jobs submitted since a time."""
        amount = sa.func.coalesce(sa.func.sum(job.c.gpus * job.c.min_runtime), 0)
        query = sa.select(amount).where(
            job.c.author == author, job.c.debug.is_(True), job.c.submitted >= since
        )
        return int(self._rows(query)[0][0])

    # -- the journal and the published fleet ------------------------------------------------------------

    def passes(
        self, *, before: int | None = None, limit: int = 100, decisions_only: bool = False
    ) -> list[JournalRow]:
        """Return journal entries without their bodies, newest first."""
        columns = (journal.c[name] for name in JournalRow._fields)
        query = sa.select(*columns).order_by(journal.c.seq.desc()).limit(limit)
        if before is not None:
            query = query.where(journal.c.seq < before)
        if decisions_only:
            slots = self._slot_passes(before, limit)
            query = query.where((journal.c.starts + journal.c.preemptions > 0) | journal.c.seq.in_(slots))
        return [JournalRow._make(row) for row in self._rows(query)]

    def _slot_passes(self, before: int | None, limit: int) -> list[int]:
        """Return the newest passes that gave or gave up dated slots, as far as the latest history tells."""
        newest = sa.select(sa.func.coalesce(sa.func.max(history.c.id), 0)).scalar_subquery()
        query = sa.select(history.c.seq).where(
            history.c.id > newest - _SLOT_ROWS, history.c.event.in_(("slot_held", "slot_lapsed"))
        )
        if before is not None:
            query = query.where(history.c.seq < before)
        rows = self._rows(query.group_by(history.c.seq).order_by(history.c.seq.desc()).limit(limit))
        return [int(row.seq) for row in rows]

    def entry(self, seq: int) -> tuple[JournalRow, dict[str, Any]] | None:
        """Return a journal entry and its body ``{"happened", "plan", "carried_out"}``; None if not kept.

        ``happened`` are events (`fleet.event.to_document`), ``plan`` is `control.codec.plan_document` or
        null, ``carried_out`` are the events that the plan's decisions made.
        """
        columns = (journal.c[name] for name in JournalRow._fields)
        rows = self._rows(sa.select(*columns, journal.c.body).where(journal.c.seq == seq))
        if not rows:
            return None
        row = rows[0]
        return JournalRow._make(row[:-1]), as_object(zlib.decompress(row.body).decode())

    def bases(self) -> list[tuple[int, int, str]]:
        """Return (seq, time, SHA-256) of the base snapshots that are kept, oldest first."""
        query = sa.select(base.c.seq, base.c.at, base.c.sha).order_by(base.c.seq)
        return [(row.seq, row.at, row.sha) for row in self._rows(query)]

    def published(self, newer_than: int = -1) -> Published | None:
        """Return the published fleet; None before the first pass, or if its time is not newer."""
        query = sa.select(published.c.version, published.c.at, published.c.document)
        rows = self._rows(query.where(published.c.at > newer_than))
        return Published._make(rows[0]) if rows else None

    def _jobs(self, query: sa.Select[Any]) -> list[JobRow]:
        with self._database.read() as connection:
            return [_job(row) for row in connection.execute(query).mappings()]


def _job(values: sa.RowMapping) -> JobRow:
    return JobRow(
        spec=spec_of(values),
        number=values["number"],
        debug=values["debug"],
        phase=None if values["phase"] == ACCEPTED else Phase(values["phase"]),
        submitted=values["submitted"],
        queued=values["queued"],
        started=values["started"],
        stopped=values["stopped"],
        protected_until=values["protected_until"],
        placement=tuple((str(node), int(gpus)) for node, gpus in json.loads(values["placement"])),
        preemptions=values["preemptions"],
        attempt=values["attempt"],
        rate=values["rate"],
        stop_cause=None if values["stop_cause"] is None else StopCause(values["stop_cause"]),
        exit_code=values["exit_code"],
        note=values["note"],
        changed=values["changed"],
    )
