"""The simulated world behind the ports of the loop: a clock that jumps, an engine that knows the truth.

Nothing here is visible to the loop or to a planner except through the ports; they run exactly as live.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from divvy.control.loop import goes_back
from divvy.control.ports import Launch, Order
from divvy.fleet.event import Event, NodeChanged, Started, Stopped, Submitted
from divvy.fleet.job import JobSpec, StopCause
from divvy.fleet.node import Node, NodeState
from divvy.sim.contracts import Workload
from divvy.sim.traces.trace import CapacityChange, Incident
from divvy.units import MINUTE

RESTORE: Final = 3 * MINUTE
"""What a resumed job spends before it works again (budgets.md, Measures)."""
IDLE: Final = -1


class VirtualClock:
    """Time that stands still until somebody moves it."""

    __slots__ = ("time",)

    def __init__(self) -> None:
        self.time = 0

    def now(self) -> int:
        """Return ms since the first submission."""
        return self.time


class TraceIntake:
    """Submits the jobs of a workload, and reports the incidents of a trace, when their time has come."""

    __slots__ = ("_clock", "_incidents", "_next", "_next_incident", "workload")

    def __init__(self, clock: VirtualClock, workload: Workload, incidents: Sequence[Incident] = ()) -> None:
        self._clock = clock
        self.workload = workload
        self._incidents = incidents
        self._next = 0
        self._next_incident = 0

    def next_at(self) -> int | None:
        """Return the time of the next submission or incident, None after the last."""
        submit = self.workload.submit
        first = submit[self._next] if self._next < len(submit) else None
        if self._next_incident == len(self._incidents):
            return first
        incident = self._incidents[self._next_incident].at
        return incident if first is None else min(first, incident)

    def poll(self) -> Iterable[Event]:
        """Return the incidents and the submissions up to now."""
        work, first = self.workload, self._next
        submit, size, now = work.submit, len(work.submit), self._clock.time
        end = first
        while end < size and submit[end] <= now:
            end += 1
        self._next = end
        submitted: list[Event] = [
            Submitted(submit[n], work.spec[n], work.debug[n]) for n in range(first, end)
        ]
        if self._next_incident == len(self._incidents):
            return submitted
        known = self._next_incident
        while self._next_incident < len(self._incidents) and self._incidents[self._next_incident].at <= now:
            self._next_incident += 1
        return [*self._incidents[known : self._next_incident], *submitted]


@dataclass(frozen=True, slots=True)
class Pace:
    """How jobs save and restore their work.

    Attributes:
        checkpoint: Work between two checkpoints, ms; 0: a job never checkpoints.
        restore: Time at the start of a run that follows a preemption of a resumable job, ms.
    """

    checkpoint: int
    restore: int = RESTORE


class SimulatedEngine:
    """Runs jobs for as long as they truly take, and loses what a preemption loses.

    A run that begins at s with restore time r works from s + r on. Checkpoints lie at ``phase``,
    ``phase + checkpoint``, ... of the job's own work, so a preemption throws away the work since the last
    of them. A job that is not resumable loses all of it. A limit on an attempt counts work, not restoring.

    Args:
        clock: Time.
        workload: Jobs with their true runtimes.
        capacity: Changes of the fleet in order of time, the first nodes included.
        pace: Checkpoints and restore.
    """

    __slots__ = (
        "_attempt",
        "_capacity",
        "_clock",
        "_done",
        "_ends",
        "_next_change",
        "_nodes",
        "_pace",
        "_placement",
        "_running",
        "_started",
        "_work",
        "halted",
        "lost",
        "restored",
    )

    def __init__(
        self, clock: VirtualClock, workload: Workload, capacity: Sequence[CapacityChange], pace: Pace
    ) -> None:
        size = len(workload)
        self._clock = clock
        self._work = workload
        self._capacity = capacity
        self._pace = pace
        self._next_change = 0
        self._nodes: dict[str, Node] = {}
        self._ends: list[tuple[int, int, int]] = []
        self._started = [IDLE] * size
        self._attempt = [0] * size
        self._done = [0] * size
        self._placement: list[tuple[tuple[str, int], ...]] = [()] * size
        self._running: dict[int, None] = {}
        self.lost = [0] * size
        """Work that the last run of a job threw away, ms."""
        self.restored = [0] * size
        """Restore time at the start of a job's present or last run, ms (in full, even if cut short)."""
        self.halted = False
        """Whether runs were stopped since the flag was last lowered: then the loop has news at once."""

    def next_at(self) -> int | None:
        """Return when something happens next, None if nothing ever does by itself."""
        ends, attempt, started = self._ends, self._attempt, self._started
        while ends and (attempt[ends[0][1]] != ends[0][2] or started[ends[0][1]] == IDLE):
            heappop(ends)
        first = ends[0][0] if ends else None
        if self._next_change < len(self._capacity):
            change = self._capacity[self._next_change].at
            return change if first is None else min(first, change)
        return first

    def poll(self) -> Iterable[Event]:
        """Return the runs that ended and the nodes that changed up to now."""
        now, ends = self._clock.time, self._ends
        events: list[Event] = []
        while ends and ends[0][0] <= now:
            end, job, attempt = heappop(ends)
            if self._attempt[job] == attempt and self._started[job] != IDLE:
                events.append(self._finish(end, job))
        while self._next_change < len(self._capacity) and self._capacity[self._next_change].at <= now:
            change = self._capacity[self._next_change]
            self._next_change += 1
            events += self._change(change.at, change.node)
        return events

    def submit(self, orders: Sequence[Order]) -> Iterable[Event]:
        """Start and stop runs; everything is known at once."""
        now = self._clock.time
        events: list[Event] = []
        for order in orders:
            job = self._work.index[order.job]
            if isinstance(order, Launch):
                if order.attempt > self._attempt[job]:
                    self._launch(now, job, order)
                    events.append(Started(now, order.job))
            elif order.attempt == self._attempt[job] and self._started[job] != IDLE:
                self.halted = True
                events.append(self._halt(now, job, order.cause))
        return events

    # -- runs -----------------------------------------------------------------------------------------

    def _launch(self, now: int, job: int, order: Launch) -> None:
        spec = order.spec
        # The flag of an earlier preemption is the number of the attempt: only a resumed run restores.
        restore = self._pace.restore if order.attempt > 1 and spec.resumable else 0
        work = self._work.runtime[job] - self._done[job]
        if spec.time_limit and work > spec.time_limit:
            work = spec.time_limit
        self._attempt[job] = order.attempt
        self._started[job] = now
        self._placement[job] = order.placement
        self._running[job] = None
        self.restored[job] = restore
        heappush(self._ends, (now + restore + work, job, order.attempt))

    def _finish(self, end: int, job: int) -> Stopped:
        work = end - self._started[job] - self.restored[job]
        whole = self._done[job] + work >= self._work.runtime[job]
        self._leave(job)
        self.lost[job] = 0
        cause = StopCause.FINISHED if whole else StopCause.TIME_LIMIT
        return Stopped(end, self._work.spec[job].id, cause, requeue=False, exit_code=0 if whole else None)

    def _halt(self, now: int, job: int, cause: StopCause) -> Stopped:
        spec: JobSpec = self._work.spec[job]
        before = self._done[job]
        reached = before + max(0, now - self._started[job] - self.restored[job])
        kept = self._saved(job, reached) if spec.resumable else 0
        self.lost[job] = reached - max(kept, before)
        self._done[job] = max(kept, before)
        self._leave(job)
        return Stopped(now, spec.id, cause, goes_back(spec, cause))

    def _saved(self, job: int, reached: int) -> int:
        """Return the work at the last checkpoint that a job has reached."""
        step, phase = self._pace.checkpoint, self._work.phase[job]
        return phase + (reached - phase) // step * step if step and reached >= phase else 0

    def _leave(self, job: int) -> None:
        self._started[job] = IDLE
        del self._running[job]

    # -- nodes ----------------------------------------------------------------------------------------

    def _change(self, at: int, node: Node) -> list[Event]:
        """Change a node; the newest runs that no longer fit on it are lost."""
        self._nodes[node.name] = node
        events: list[Event] = [NodeChanged(at, node)]
        room = 0 if node.state is NodeState.DOWN else node.gpus
        here = [
            (self._started[job], job, gpus)
            for job in self._running
            for name, gpus in self._placement[job]
            if name == node.name
        ]
        held = sum(gpus for _, _, gpus in here)
        for _, job, gpus in sorted(here, reverse=True):
            if held <= room:
                break
            held -= gpus
            events.append(self._halt(at, job, StopCause.NODE_LOST))
        return events
