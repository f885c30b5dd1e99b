"""`fifo`: first come, first served with EASY backfill; no budgets, no preemption.

The documented rule, re-implemented: Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem and
Feitelson, IEEE TPDS 12(6), 2001. One reservation, for the first blocked job; the others are tried in order
of submission, and start if they fit now and end by then or use only what is left then.
"""

from __future__ import annotations

from typing import Final

from divvy.fleet.decision import Decision, Placement, Plan, Start, Wait
from divvy.fleet.job import Phase
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


class FifoPlanner:
    """Order of submission, EASY backfill."""

    name = "fifo"

    def __init__(self) -> None:
        self._version = -1
        self._tentative: list[Decision] = []
        self._clear()

    def plan(self, snapshot: Snapshot, context: Context) -> Plan:
        """Return what starts now."""
        self._follow(snapshot)
        decisions: list[Decision] = []
        self._tentative = decisions
        waits: tuple[tuple[int, Wait], ...] = ()
        blocked = self._in_order(snapshot.jobs, decisions)
        if blocked >= 0:
            waits = ((blocked, self._wait(snapshot, blocked)),)
            self._backfill(snapshot, blocked, context.now, decisions)
        return Plan(snapshot.version, context.now, tuple(decisions), (), waits)

    # -- indices --------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._room = FreeMap()
        self._queues: dict[Shape, LimitQueue] = {}
        self._fits: dict[Shape, bool] = {}
        self._timeline = Timeline()

    def _follow(self, snapshot: Snapshot) -> None:
        """Bring the indices up to the snapshot's version."""
        changes = snapshot.changes_since(self._version) if self._version >= 0 else None
        if changes is None:
            self._clear()
            changes = [(Change.NODE, row) for row in range(len(snapshot.nodes))]
            changes += [(Change.JOB, row) for row in snapshot.jobs.live]
        nodes = snapshot.nodes
        for (
            decision
        ) in self._tentative:  # the last plan was only a proposal; the state says what became of it
            self._job(snapshot.jobs, decision.job)
        for change, row in changes:
            if change is Change.JOB:
                self._job(snapshot.jobs, row)
            elif change is Change.NODE:
                self._room.set_node(row, nodes.node[row], nodes.free[row])
                self._fits = {}
        if self._room.free != nodes.free:
            for row, free in enumerate(nodes.free):
                if self._room.free[row] != free:
                    self._room.set_free(row, free)
        self._version = snapshot.version
        if len(self._fits) < len(self._queues):
            self._fits = fitting(list(self._queues), nodes.node)

    def _job(self, jobs: JobTable, row: int) -> None:
        spec, phase = jobs.spec[row], jobs.phase[row]
        shape = shape_of(spec)
        queue = self._queues.get(shape)
        if queue is None:
            queue = self._queues[shape] = LimitQueue()
        if phase is Phase.QUEUED:
            queue.add(row, limit_of(spec))
        else:
            queue.remove(row)
        if phase in (Phase.PLACED, Phase.RUNNING):
            self._timeline.begin(row, jobs.started[row] + limit_of(spec), jobs.placement[row])
        else:
            self._timeline.finish(row)

    # -- the rule -------------------------------------------------------------------------------------

    def _in_order(self, jobs: JobTable, decisions: list[Decision]) -> int:
        """Start jobs in order until one does not fit; return its row, -1 if none is left."""
        while True:
            heads = [
                (row, shape)
                for shape, queue in self._queues.items()
                if queue.waiting and self._fits[shape] and (row := queue.first()) >= 0
            ]
            if not heads:
                return -1
            row, shape = min(heads)
            if not self._start(jobs, row, shape, Reason.STARTED_FREE, decisions):
                return row

    def _start(
        self, jobs: JobTable, row: int, shape: Shape, reason: Reason, decisions: list[Decision]
    ) -> bool:
        placement = self._room.find(*shape)
        if placement is None:
            return False
        self._room.take(placement)
        self._queues[shape].remove(row)
        decisions.append(Start(row, placement, jobs.spec[row].allocated, reason))
        return True

    def _backfill(self, snapshot: Snapshot, blocked: int, now: int, decisions: list[Decision]) -> None:
        """Start later jobs that do not delay the reservation of the blocked one."""
        if not self._room.total:
            return
        shape = shape_of(snapshot.jobs.spec[blocked])
        held = self._timeline.reserve(shape, snapshot.nodes.node, self._room, now)
        while self._room.total:
            found = self._candidate(held, now)
            if found is None:
                return
            row, shape, placement = found
            self._room.take(placement)
            self._queues[shape].remove(row)
            if held is not None and now + limit_of(snapshot.jobs.spec[row]) > held.at:
                used = dict(placement)
                held = held._replace(
                    spare=tuple((node, spare - used.get(node, 0)) for node, spare in held.spare)
                )
            decisions.append(
                Start(row, placement, snapshot.jobs.spec[row].allocated, Reason.STARTED_BACKFILL)
            )

    def _candidate(self, held: Reservation | None, now: int) -> tuple[int, Shape, Placement] | None:
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
        return min(lasting, ending)

    def _first_fitting(self, limit: int) -> tuple[int, Shape, Placement] | None:
        """Return the first job with at most this limit that fits now, and where."""
        best: tuple[int, Shape, Placement] | None = None
        for shape, queue in self._queues.items():
            if not queue.waiting or shape.gpus > self._room.total:
                continue
            row = queue.first(limit)
            if row >= 0 and (best is None or row < best[0]):
                placement = self._room.find(*shape)
                if placement is not None:
                    best = (row, shape, placement)
        return best

    def _wait(self, snapshot: Snapshot, row: int) -> Wait:
        needed, free = snapshot.jobs.spec[row].gpus, self._room.total
        reason = Reason.WAIT_SHAPE if free >= needed else Reason.WAIT_CAPACITY
        return Wait(reason, needed, free, 0, 0, snapshot.jobs.account[row])
