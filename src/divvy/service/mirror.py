"""The mirror: the newest published view and the live jobs, in the API's memory, kept up to date in steps.

Requests are answered from it without a query, so an open page costs the store and the scheduler nothing.
What changed is read in a worker thread and applied on the event loop, a bounded number of rows at a time:
everything that is read of the mirror between two awaits belongs together.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

import structlog
from anyio.to_thread import run_sync

from divvy.control.board import Board
from divvy.control.view import View
from divvy.errors import DivvyError, UnavailableError
from divvy.fleet.budget import Budget, read_budget
from divvy.fleet.job import Phase
from divvy.service.ports import BudgetRecord, JobRecord, Reader

LIVE: Final = (None, *(phase for phase in Phase if not phase.terminal))
POLL_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 1.0
_EVERYTHING_EACH: Final = 10
_ROWS_AT_ONCE: Final = 256
_EVERYTHING: Final = 10_000_000
_GRACE_MS: Final = 2_000
_DOUBTS_AT_ONCE: Final = 20

_log = structlog.get_logger("mirror")


@dataclass(frozen=True, slots=True)
class DeviceSight:
    """A device as its engine reports it: whose it is, and how busy, or why that is not known."""

    index: int
    job: str | None
    utilisation: float | None
    reason: str | None


class BudgetInForce(NamedTuple):
    """A budget version, compiled."""

    record: BudgetRecord
    budget: Budget


@dataclass(frozen=True, slots=True)
class _Batch:
    """What one look at the store found."""

    view: View | None = None
    devices: Mapping[str, Sequence[DeviceSight]] = field(default_factory=dict)
    jobs: Sequence[JobRecord] = ()
    budget: BudgetInForce | None = None
    changed: int = 0
    number: int = 0


class Mirror:
    """What the API knows.

    Args:
        reader: The store.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._changed_seen = 0
        self._number_seen = 0
        self._changed: dict[str, int] = {}
        """Journal entry at which each live job was read."""
        self._again: set[str] = set()
        self._loaded = False
        self._refreshing = asyncio.Lock()
        self._moved = asyncio.Condition()
        self.board = Board()
        self.view: View | None = None
        self.devices: Mapping[str, Sequence[DeviceSight]] = {}
        self.budget: BudgetInForce | None = None
        self.generation = 0
        """Grows with every change; what was rendered for one generation can be served again for it."""
        self.fault: DivvyError | None = None
        """Why the store could not be read at the last attempt."""

    async def refresh(self, *, if_published: bool = False) -> None:
        """Look at the store once and take over what changed.

        Args:
            if_published: Look at jobs and budget only if a newer view was published: whatever changes them
                is published a moment later, and a view that is not newer costs one small query.

        Raises:
            UnavailableError: If the store cannot be read now; then the mirror is as it was.
        """
        async with self._refreshing:
            again = self._doubtful()
            try:
                batch = await run_sync(self._read, again, if_published)
            except DivvyError:
                self._again.update(again)
                raise
            await self._take_over(batch)

    async def _take_over(self, batch: _Batch) -> None:
        for begin in range(0, len(batch.jobs), _ROWS_AT_ONCE):
            for job in batch.jobs[begin : begin + _ROWS_AT_ONCE]:
                self._apply(job)
            await asyncio.sleep(0)
        if batch.budget is not None:
            self.budget = batch.budget
        if batch.view is not None:
            self.view, self.devices = batch.view, batch.devices
        self._changed_seen, self._number_seen, self._loaded = batch.changed, batch.number, True
        if batch.view is not None or batch.jobs or batch.budget is not None:
            self.generation += 1
            async with self._moved:
                self._moved.notify_all()

    def put(self, job: JobRecord) -> None:
        """Take over a job that a request has read, such as one that was stored a moment ago.

        The row may be out of date by now, so it is read again with the next refresh.
        """
        self._again.add(job.spec.id)
        self._apply(job)

    def _apply(self, job: JobRecord) -> None:
        known = self.board.jobs.get(job.spec.id)
        if known is None or job.changed >= self._changed.get(job.spec.id, 0):
            self.board.put(job)
            if job.spec.id in self.board.jobs:
                self._changed[job.spec.id] = job.changed
            else:
                self._changed.pop(job.spec.id, None)

    async def keep_up(self) -> None:
        """Refresh for ever; a store that cannot be read is tried again, and the age of the data tells."""
        pause = POLL_SECONDS
        polls = 0
        while True:
            polls += 1
            try:
                await self.refresh(if_published=polls % _EVERYTHING_EACH != 0)
            except DivvyError as error:
                if self.fault is None:
                    _log.warning("the store cannot be read", error=str(error))
                self.fault = error
                pause = _RETRY_SECONDS
            except Exception as error:  # noqa: BLE001 - whatever it is, the age of the data must tell
                if self.fault is None:
                    _log.error("the mirror cannot keep up", exc_info=error)
                self.fault = UnavailableError.one("mirror-failed", f"the state cannot be read: {error}")
                pause = _RETRY_SECONDS
            else:
                self.fault = None
                pause = POLL_SECONDS
            await asyncio.sleep(pause)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep up while the block runs."""
        task = asyncio.create_task(self.keep_up(), name="mirror")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def moved_since(self, at: int, timeout_seconds: float) -> View | None:
        """Return the view once it is newer than ``at`` (ms), None if it is not within the timeout."""
        try:
            async with asyncio.timeout(timeout_seconds), self._moved:
                await self._moved.wait_for(lambda: self.view is not None and self.view.at > at)
        except TimeoutError:
            return None
        return self.view

    def seen(self) -> View:
        """Return the view.

        Raises:
            UnavailableError: If the scheduler has not published one yet.
        """
        if self.view is None:
            raise self.fault or starting()
        return self.view

    def in_force(self) -> BudgetInForce:
        """Return the budget.

        Raises:
            UnavailableError: If there is none yet.
        """
        if self.budget is None:
            raise self.fault or starting()
        return self.budget

    def _doubtful(self) -> list[str]:
        """Return jobs to read again: those put by requests, and those that the scheduler may have refused."""
        again, self._again = self._again, set()
        if self.view is None:
            return [*again]
        limit = self.view.at - _GRACE_MS
        late = (
            name
            for name, job in self.board.unseen.items()
            if job.submitted < limit  # a loop that stands still has refused nothing
        )
        return [*again.union(islice(late, _DOUBTS_AT_ONCE))]

    def _read(self, doubtful: Sequence[str], if_published: bool) -> _Batch:  # noqa: FBT001 - run in a thread
        published = self._reader.published(-1 if self.view is None else self.view.at)
        changed, number = self._changed_seen, self._number_seen
        if if_published and published is None and not doubtful and self._loaded:
            return _Batch(changed=changed, number=number)
        budget = self._read_budget()
        if self._loaded:
            jobs = [*self._reader.jobs_changed(changed, number)]
            changed = max([changed, *(job.changed for job in jobs)])
            number = max([number, *(job.number for job in jobs)])
            # Read later than the others, so they may not move the marks: more may have changed in between.
            jobs += [job for name in doubtful if (job := self._reader.job(name)) is not None]
        else:  # what changes while the live jobs are read is read again
            changed = next((entry.seq for entry in self._reader.passes(limit=1)), 0)
            number = next((job.number for job in self._reader.jobs(limit=1)), 0)
            jobs = [*self._reader.jobs(phases=LIVE, limit=_EVERYTHING)]
        if published is None:
            return _Batch(jobs=jobs, budget=budget, changed=changed, number=number)
        document = json.loads(published.text)
        devices = {
            node: [DeviceSight(*row) for row in rows]
            for node, rows in (document.get("devices") or {}).items()
        }
        view = View.from_document(document)
        return _Batch(view, devices, jobs, budget, changed, number)

    def _read_budget(self) -> BudgetInForce | None:
        record = self._reader.budget()
        if record is None or (self.budget is not None and record.version == self.budget.record.version):
            return None
        return BudgetInForce(record, read_budget(record.document))


def starting() -> DivvyError:
    """Return the refusal of a request that came before the first pass."""
    return UnavailableError.one(
        "scheduler-starting",
        "the scheduler has not finished its first pass",
        fix="try again in a second; if it lasts, look at the log of `divvy up`",
    )
