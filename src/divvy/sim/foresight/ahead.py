"""Run a state on: the loop and the planner of the present, an engine that draws what nobody knows yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final

import numpy as np

from divvy.control.codec import restore
from divvy.control.loop import Loop, goes_back
from divvy.control.ports import Launch, Order
from divvy.control.state import FleetState
from divvy.fleet.decision import Plan
from divvy.fleet.event import Event, Started, Stopped, Submitted
from divvy.fleet.job import JobSpec, Phase, StopCause
from divvy.fleet.snapshot import Snapshot
from divvy.planners.base import JobPlanner
from divvy.sim.engine import RESTORE, VirtualClock
from divvy.sim.foresight.past import Arrival, Durations, Past, future

_SETTLE: Final = 50


class _Engine:
    """Ends runs after times drawn when they begin; what runs at the beginning is taken over as it is."""

    def __init__(
        self, clock: VirtualClock, durations: Durations, generator: np.random.Generator, state: FleetState
    ) -> None:
        self._clock = clock
        self._durations = durations
        self._generator = generator
        self._ends: list[tuple[int, str, int]] = []
        self._runs: dict[str, tuple[int, int, int, JobSpec]] = {}
        """Per job that runs: attempt, begin of its work, end, spec."""
        self._left: dict[str, int] = {}
        """Work left of jobs that were cut short here, ms."""
        self._news: list[Event] = []
        self.halted = False
        self._adopt(state)

    def _adopt(self, state: FleetState) -> None:
        jobs, now = state.snapshot.jobs, self._clock.time
        for row in jobs.live:
            spec, phase, attempt = jobs.spec[row], jobs.phase[row], jobs.attempt[row]
            if phase is Phase.RUNNING:
                ran = max(now - jobs.started[row], 0)
                self._begin(spec, attempt, now - ran, now + self._durations.draw(spec, ran, self._generator))
            elif phase is Phase.PLACED:
                self._begin(spec, attempt, now, now + self._durations.draw(spec, 0, self._generator))
                self._news.append(Started(now, spec.id))
            elif phase is Phase.STOPPING:
                cause = jobs.stop_cause[row]
                self._news.append(Stopped(now, spec.id, cause, goes_back(spec, cause)))

    def _begin(self, spec: JobSpec, attempt: int, since: int, end: int) -> None:
        self._runs[spec.id] = (attempt, since, end, spec)
        heappush(self._ends, (end, spec.id, attempt))

    def next_at(self) -> int | None:
        """Return when the next run ends."""
        while self._ends:
            end, job, attempt = self._ends[0]
            if job in self._runs and self._runs[job][0] == attempt:
                return end
            heappop(self._ends)
        return None

    def poll(self) -> Iterable[Event]:
        """Return what ended up to now."""
        events, self._news = self._news, []
        while (end := self.next_at()) is not None and end <= self._clock.time:
            _, job, _ = heappop(self._ends)
            del self._runs[job]
            self._left.pop(job, None)
            events.append(Stopped(end, job, StopCause.FINISHED, requeue=False, exit_code=0))
        return events

    def submit(self, orders: Sequence[Order]) -> Iterable[Event]:
        """Begin and end runs at once."""
        now = self._clock.time
        events: list[Event] = []
        for order in orders:
            if isinstance(order, Launch):
                left = self._left.get(order.job)
                if left is None:
                    left = self._durations.draw(order.spec, 0, self._generator)
                pause = RESTORE if order.attempt > 1 and order.spec.resumable else 0
                self._begin(order.spec, order.attempt, now + pause, now + pause + left)
                events.append(Started(now, order.job))
                continue
            run = self._runs.get(order.job)
            if run is not None and run[0] == order.attempt:
                _, since, end, spec = self._runs.pop(order.job)
                self._left[order.job] = end - max(now, since) if spec.resumable else end - since
                self.halted = True
                events.append(Stopped(now, order.job, order.cause, goes_back(spec, order.cause)))
        return events


class _Intake:
    """Submits what was drawn."""

    def __init__(self, clock: VirtualClock, arrivals: Sequence[Arrival]) -> None:
        self._clock = clock
        self._arrivals = arrivals
        self._next = 0

    def next_at(self) -> int | None:
        """Return when something is submitted next."""
        return self._arrivals[self._next].at if self._next < len(self._arrivals) else None

    def poll(self) -> Iterable[Event]:
        """Return what was submitted up to now."""
        found: list[Event] = []
        while (at := self.next_at()) is not None and at <= self._clock.time:
            arrival = self._arrivals[self._next]
            self._next += 1
            found.append(Submitted(at, arrival.spec, arrival.debug))
        return found


class _Starts:
    """The journal port: notes when jobs that waited at the beginning start."""

    def __init__(self, waiting: Iterable[str]) -> None:
        self.open = dict.fromkeys(waiting)
        self.at: dict[str, int] = {}

    def append(self, events: Sequence[Event], plan: Plan | None, snapshot: Snapshot) -> None:  # noqa: ARG002 - the port
        """Note starts."""
        for event in events:
            if isinstance(event, Started) and event.job in self.open:
                del self.open[event.job]
                self.at[event.job] = event.at


def run_on(
    document: Mapping[str, Any],
    planner: JobPlanner,
    past: Past,
    durations: Durations,
    watched: Sequence[str],
    horizon: int,
    seed: int,
    enough: Callable[[], bool],
) -> dict[str, int]:
    """Return when jobs that wait in a state start in one possible future, ms; those that do not are left out.

    Args:
        document: The state, `control.codec.state_document`, of the time ``past.until``.
        planner: Decides; fresh.
        past: Gives the submissions to come.
        durations: Draws runtimes; may be shared by futures.
        watched: Jobs whose starts end the run when all of them have started.
        horizon: How far to run at most, ms.
        seed: Draws this future.
        enough: Asked at every instant; True stops here.
    """
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 11])))
    state = restore(document)
    jobs = state.snapshot.jobs
    clock = VirtualClock()
    clock.time = past.until
    engine = _Engine(clock, durations, generator, state)
    intake = _Intake(clock, future(past, horizon, generator))
    starts = _Starts(jobs.spec[row].id for row in jobs.live if jobs.phase[row] is Phase.QUEUED)
    loop = Loop(state, planner, clock, engine, intake, starts, seed=seed, explain=False)
    missing = set(watched) & starts.open.keys()
    end, check = past.until + horizon, past.until
    while missing and not enough():
        times = [at for at in (engine.next_at(), intake.next_at(), check or None) if at is not None]
        if not times or (now := max(min(times), clock.time)) > end:
            break
        clock.time = now
        check = _settle(loop, engine, now)
        missing &= starts.open.keys()
    return starts.at


def _settle(loop: Loop, engine: _Engine, now: int) -> int:
    """Step until this instant brings no more news; return when the planner wants to look again, 0: never."""
    for _ in range(_SETTLE):
        engine.halted = False
        plan = loop.step()
        if not engine.halted:
            break
    due = loop.wake_at(plan)
    return due if due > now else 0
