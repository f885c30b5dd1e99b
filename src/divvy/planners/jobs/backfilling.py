"""A planner without preemption: an order, and EASY backfill behind the first job that does not fit.

What differs between the baselines is only the order; see `fifo` and `fairshare`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from divvy.fleet.decision import Decision, Placement, Plan, Start, Wait
from divvy.fleet.job import JobSpec, Phase
from divvy.fleet.reason import Reason
from divvy.fleet.snapshot import Change, JobTable, Snapshot
from divvy.planners.base import Context
from divvy.planners.jobs.backfill import (
    LimitQueue,
    Reservation,
    Shape,
    Timeline,
    fitting,
    limit_of,
    shape_of,
)
from divvy.planners.jobs.placement import FreeMap

_NO_LIMIT: Final = 1 << 61

Rank = TypeVar("Rank", int, tuple[float, int])
"""What orders jobs; the least goes first."""


class Found(NamedTuple, Generic[Rank]):
    """A job that may start, and where."""

    rank: Rank
    row: int
    queue: LimitQueue
    placement: Placement


class BackfillingPlanner(ABC, Generic[Rank]):
    """Starts jobs in order until one does not fit, then backfills behind its reservation.

    The indices follow the change log. A plan is only a proposal: what it started in the indices is looked
    up again in the next pass, so that a planner made anew answers the same.
    """

    name: str

    def __init__(self) -> None:
        self._version = -1
        self._proposed: list[int] = []
        self._clear()

    def plan(self, snapshot: Snapshot, context: Context) -> Plan:
        """Return what starts now."""
        self._follow(snapshot, context.now)
        decisions: list[Decision] = []
        waits: tuple[tuple[int, Wait], ...] = ()
        blocked = self._in_order(snapshot.jobs, context.now, decisions)
        if blocked is not None:
            row, queue = blocked
            waits = ((row, self._wait(snapshot, row)),)
            self._backfill(snapshot, queue.shape, context.now, decisions)
        self._proposed = [decision.job for decision in decisions]
        return Plan(snapshot.version, context.now, tuple(decisions), (), waits)

    # -- the order, given by the baseline -------------------------------------------------------------

    @abstractmethod
    def _key(self, spec: JobSpec) -> Any:
        """Return which queue a job waits in: jobs of one queue have one shape and go in order of rows."""

    @abstractmethod
    def _heads(self, shape: Shape) -> Sequence[tuple[Rank, int, LimitQueue]]:
        """Return rank, row and queue of the first job of every queue of a shape, in order."""

    @abstractmethod
    def _rank(self, queue: LimitQueue, row: int) -> Rank:
        """Return the rank of a job that waits in a queue."""

    def _begin(self, snapshot: Snapshot) -> None:
        """Hear that the indices are being built anew for a tree and its jobs."""

    def _touched(self, queue: LimitQueue) -> None:
        """Hear that the jobs of a queue have changed."""

    def _ran(self, jobs: JobTable, row: int) -> None:
        """Hear that a job may have begun or ended a run."""

    def _moved(self) -> None:
        """Hear that a node has changed."""

    def _synced(self, snapshot: Snapshot, now: int) -> None:
        """Hear that the indices are up to date."""

    # -- indices --------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._room = FreeMap()
        self._queues: dict[Any, LimitQueue] = {}
        self._of_shape: dict[Shape, list[LimitQueue]] = {}
        self._fits: dict[Shape, bool] = {}
        self._timeline = Timeline()

    def _follow(self, snapshot: Snapshot, now: int) -> None:
        """Bring the indices up to the snapshot's version."""
        nodes, jobs = snapshot.nodes, snapshot.jobs
        for change, row in dict.fromkeys(self._changed(snapshot)):
            if change is Change.JOB:
                self._job(jobs, row)
            else:
                self._room.set_node(row, nodes.node[row], nodes.free[row])
                self._fits = {}
                self._moved()
        if self._room.free != nodes.free:
            for row, free in enumerate(nodes.free):
                if self._room.free[row] != free:
                    self._room.set_free(row, free)
        self._version = snapshot.version
        if not self._fits and self._queues:
            self._fits = fitting(self._of_shape, nodes.node)
        self._synced(snapshot, now)

    def _changed(self, snapshot: Snapshot) -> list[tuple[Change, int]]:
        """Return what to look up again; everything, in cleared indices, where the log is of no use."""
        changes = snapshot.changes_since(self._version) if self._version >= 0 else None
        if changes is None or any(change is Change.TREE for change, _ in changes):
            self._clear()
            self._begin(snapshot)
            every = [(Change.NODE, row) for row in range(len(snapshot.nodes))]
            return every + [(Change.JOB, row) for row in range(len(snapshot.jobs))]
        return [(Change.JOB, row) for row in self._proposed] + changes

    def _job(self, jobs: JobTable, row: int) -> None:
        spec, phase = jobs.spec[row], jobs.phase[row]
        if phase is Phase.QUEUED:
            key = self._key(spec)
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = LimitQueue(key, shape_of(spec))
                self._of_shape.setdefault(queue.shape, []).append(queue)
                if queue.shape not in self._fits:
                    self._fits = {}
            queue.add(row, limit_of(spec))
            self._touched(queue)
        else:
            queue = self._queues.get(self._key(spec))
            if queue is not None and queue.remove(row):
                self._touched(queue)
        if phase in (Phase.PLACED, Phase.RUNNING):
            self._timeline.begin(row, jobs.started[row] + limit_of(spec), jobs.placement[row])
        else:
            self._timeline.finish(row)
        self._ran(jobs, row)

    # -- the rule -------------------------------------------------------------------------------------

    def _in_order(self, jobs: JobTable, now: int, decisions: list[Decision]) -> tuple[int, LimitQueue] | None:
        """Start jobs in order until one does not fit; return it, None if nobody is left.

        A job that the fleet in service could not hold even when empty is passed over.
        """
        while True:
            first = [heads[0] for shape, fits in self._fits.items() if fits and (heads := self._heads(shape))]
            if not first:
                return None
            _, row, queue = min(first, key=_rank)
            placement = self._room.find(*queue.shape)
            if placement is None:
                return row, queue
            self._start(jobs, now, Found(row, row, queue, placement), Reason.STARTED_FREE, decisions)

    def _start(
        self, jobs: JobTable, now: int, found: Found[Any], reason: Reason, decisions: list[Decision]
    ) -> None:
        """Give devices to a job, in the indices too: the next reservation must know of its end."""
        _, row, queue, placement = found
        spec = jobs.spec[row]
        self._room.take(placement)
        self._timeline.begin(row, now + limit_of(spec), placement)
        queue.remove(row)
        self._touched(queue)
        decisions.append(Start(row, placement, spec.allocated, reason))

    def _backfill(self, snapshot: Snapshot, shape: Shape, now: int, decisions: list[Decision]) -> None:
        """Start later jobs that do not delay the reservation of the blocked one."""
        if not self._room.total:
            return
        spec = snapshot.jobs.spec
        held = self._timeline.reserve(shape, snapshot.nodes.node, self._room, now)
        while self._room.total:
            found = self._candidate(held, now)
            if found is None:
                return
            if held is not None and now + limit_of(spec[found.row]) > held.at:
                used = dict(found.placement)
                held = held._replace(
                    spare=tuple((node, spare - used.get(node, 0)) for node, spare in held.spare)
                )
            self._start(snapshot.jobs, now, found, Reason.STARTED_BACKFILL, decisions)

    def _candidate(self, held: Reservation | None, now: int) -> Found[Rank] | None:
        """Return the first job that may start now, and where."""
        if held is None:
            return self._first_fitting(_NO_LIMIT)
        room = self._room
        keep = [(node, room.free[node], spare) for node, spare in held.spare]
        for node, free, spare in keep:
            room.set_free(node, min(free, spare))
        lasting = self._first_fitting(_NO_LIMIT)  # leaves the reservation alone, however long it runs
        for node, free, _ in keep:
            room.set_free(node, free)
        ending = self._first_fitting(held.at - now)  # is over by then, wherever it runs
        if lasting is None or ending is None:
            return ending if lasting is None else lasting
        return lasting if lasting.rank <= ending.rank else ending

    def _first_fitting(self, limit: int) -> Found[Rank] | None:
        """Return the first job with at most this limit that fits now, and where."""
        best: Found[Rank] | None = None
        for shape in self._fits:
            if shape.gpus > self._room.total:
                continue
            heads = self._heads(shape)
            if not heads or (best is not None and heads[0][0] > best.rank):
                continue
            placement = self._room.find(*shape)
            if placement is None:
                continue
            for rank, _, queue in heads:
                if best is not None and rank > best.rank:
                    break
                if queue.shortest() > limit:
                    continue
                row = queue.first(limit)
                own = self._rank(queue, row)
                if best is None or own < best.rank:
                    best = Found(own, row, queue, placement)
        return best

    def _wait(self, snapshot: Snapshot, row: int) -> Wait:
        needed, free = snapshot.jobs.spec[row].gpus, self._room.total
        reason = Reason.WAIT_SHAPE if free >= needed else Reason.WAIT_CAPACITY
        return Wait(reason, needed, free, 0, 0, snapshot.jobs.account[row])


def _rank(head: tuple[Rank, int, LimitQueue]) -> Rank:
    return head[0]
