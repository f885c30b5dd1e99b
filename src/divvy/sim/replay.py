"""Replay a scenario: the loop that runs live, on simulated ports, from first submission to last end."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from divvy.control.loop import Loop
from divvy.control.state import FleetState
from divvy.errors import EngineError
from divvy.fleet.budget import Budget
from divvy.fleet.event import Event
from divvy.fleet.ledger import LedgerEntry
from divvy.fleet.snapshot import Snapshot
from divvy.planners.base import JobPlanner
from divvy.sim.accounts import on_clock
from divvy.sim.contracts import Workload
from divvy.sim.engine import SimulatedEngine, TraceIntake, VirtualClock
from divvy.sim.recorder import Recorder
from divvy.sim.scenario import Scenario
from divvy.units import DAY

_TELL_EVERY: Final = 2_048
_SETTLE: Final = 1_000
_PATIENCE: Final = 2 * DAY


class Observer(Protocol):
    """Looks at a replay while it runs."""

    def __call__(self, now: int, state: FleetState, record: Recorder, workload: Workload) -> None:
        """Take the end of an instant (ms)."""


class Asker(Protocol):
    """Asks for more than a workload submits, such as ends that its jobs do not know of themselves."""

    def next_at(self) -> int | None:
        """Return when it asks next, ms; None for never again."""

    def poll(self, now: int, snapshot: Snapshot) -> Iterable[Event]:
        """Return what it asks for up to now."""


class _Joined:
    """The intake of a workload, and an asker beside it."""

    def __init__(self, intake: TraceIntake, asker: Asker, clock: VirtualClock, snapshot: Snapshot) -> None:
        self._intake, self._asker, self._clock, self._snapshot = intake, asker, clock, snapshot
        self.workload = intake.workload

    def next_at(self) -> int | None:
        """Return when either has something."""
        return _earliest(self._intake.next_at(), self._asker.next_at())

    def poll(self) -> Iterable[Event]:
        """Return what both have; the asker sees the state before the workload's submissions."""
        return [*self._asker.poll(self._clock.time, self._snapshot), *self._intake.poll()]


@dataclass(frozen=True, slots=True)
class Replay:
    """A finished replay.

    Attributes:
        policy: Name of the planner.
        seed: Seed of the workload.
        workload: What it was fed with.
        budget: Accounts and settings.
        record: What happened.
        end: When it stopped, ms.
        refused: Events that the state refused; empty unless a planner is at fault.
        ledger: Every charge, in the order in which it was closed.
    """

    policy: str
    seed: int
    workload: Workload
    budget: Budget
    record: Recorder
    end: int
    refused: tuple[str, ...]
    ledger: tuple[LedgerEntry, ...] = ()


def replay(
    scenario: Scenario,
    planner: JobPlanner,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
    workload: Workload | None = None,
    observe: Observer | None = None,
    asker: Asker | None = None,
) -> Replay:
    """Run a scenario under a planner, from its first submission until nothing more can happen.

    Args:
        scenario: What to run.
        planner: Decides; fresh, since planners keep indices.
        seed: Draws the contracts and the overlay; also handed to the planner.
        on_progress: Told now and then how many jobs of how many are over.
        workload: What `Scenario.workload` gave for this seed, where somebody has it already.
        observe: Told the time, the state, the record and the workload after every instant; only looks.
        asker: Asks for more than the workload submits.

    Raises:
        EngineError: If the planner keeps changing its mind at one instant.
    """
    if workload is None:
        workload = scenario.workload(seed)
    clock = VirtualClock()
    engine = SimulatedEngine(clock, workload, scenario.capacity(), scenario.pace)
    record = Recorder(workload, engine)
    ledger: list[LedgerEntry] = []
    state = FleetState(on_clock(scenario.budget, scenario.trace.begin), ledger.append)
    submissions = TraceIntake(clock, workload, scenario.trace.incidents)
    intake = submissions if asker is None else _Joined(submissions, asker, clock, state.snapshot)
    loop = Loop(state, planner, clock, engine, intake, record, seed=seed, explain=False)
    with _collector_paused():
        seen = None if observe is None else partial(observe, state=state, record=record, workload=workload)
        _drive(loop, clock, engine, intake, scenario, on_progress, seen)
    record.close(clock.time)
    refused = tuple(f"{refusal.event}: {refusal.error}" for refusal in loop.refused)
    books = tuple(ledger)
    return Replay(planner.name, seed, workload, scenario.budget, record, clock.time, refused, books)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the garbage collector from walking a heap that only grows, which would double the time.

    Nothing in a replay makes cycles; what it drops is freed by reference counts all the same.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _drive(
    loop: Loop,
    clock: VirtualClock,
    engine: SimulatedEngine,
    intake: TraceIntake | _Joined,
    scenario: Scenario,
    on_progress: Callable[[int, int], None] | None,
    seen: Callable[[int], None] | None = None,
) -> None:
    """Move the clock from instant to instant and step the loop at each, until nothing is left to happen."""
    patience = scenario.budget.policy.lookback + _PATIENCE
    live, total = loop.state.snapshot.jobs.live, len(intake.workload)
    check = last_news = steps = 0
    while True:
        news = _earliest(engine.next_at(), intake.next_at())
        # A planner may want to look again when nothing happens, but not for ever at a queue that no
        # passage of time can start: after a whole window without news there is nothing to wait for.
        wake = check if check and live and (news is not None or check - last_news <= patience) else None
        now = _earliest(news, wake)
        if now is None or (scenario.until is not None and now > scenario.until):
            break
        clock.time = now
        if now == news:
            last_news = now
        check = _settle(loop, engine, now)
        if seen is not None:
            seen(now)
        steps += 1
        if on_progress is not None and steps % _TELL_EVERY == 0:
            on_progress(len(loop.state.snapshot.jobs) - len(live), total)
    if scenario.until is not None:
        clock.time = max(clock.time, scenario.until)
    if on_progress is not None:
        on_progress(len(loop.state.snapshot.jobs) - len(live), total)


def _settle(loop: Loop, engine: SimulatedEngine, now: int) -> int:
    """Step until this instant brings no more news; return when the planner wants to look again, 0 for never.

    A run that was told to stop has stopped at once here, which the live loop would hear as news too.
    """
    for _ in range(_SETTLE):
        engine.halted = False
        plan = loop.step()
        if not engine.halted:
            wake = loop.wake_at(plan)
            return wake if wake > now else 0
    raise EngineError.one(
        "planner-unsettled", f"the planner still preempts after {_SETTLE} passes at {now} ms"
    )


def _earliest(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
