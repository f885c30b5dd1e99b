"""The time of one pass of the budget planner over a large fleet under pressure (`divvy.sim.crowd`)."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from divvy.bootstrap import collector
from divvy.cli.bench_row import Row, figure, median, quantile
from divvy.control.loop import Loop
from divvy.fleet.decision import Hold, Plan, Preempt, Start
from divvy.fleet.event import Event
from divvy.fleet.snapshot import Snapshot
from divvy.planners.base import Context, JobPlanner
from divvy.planners.jobs.registry import create
from divvy.sim.crowd import Crowd, Scene, stage
from divvy.units import MINUTE, SECOND

TARGET_MS: Final = 50.0
_STEP: Final = 15 * SECOND
_COARSE: Final = 10 * MINUTE


class TimedPlanner:
    """A planner whose passes are timed, ms: by the wall clock and in processor time of the thread.

    The garbage collector runs as Python starts it; what it takes inside of a pass counts, and is told apart.
    """

    def __init__(self, planner: JobPlanner) -> None:
        self._planner = planner
        self.name = planner.name
        self.wall: list[float] = []
        self.used: list[float] = []
        self.planned: list[float] = []
        """Processor time without the garbage collector's."""
        self._collecting = self._collected = 0

    def forget(self) -> None:
        """Drop the times so far."""
        self.wall.clear()
        self.used.clear()
        self.planned.clear()

    def watch(self, phase: str, _info: dict[str, int]) -> None:
        """Note how long the garbage collector runs; to be put into `gc.callbacks`."""
        now = time.thread_time_ns()
        if phase == "start":
            self._collecting = now
        else:
            self._collected += now - self._collecting

    def plan(self, snapshot: Snapshot, context: Context) -> Plan:
        """Return the planner's plan."""
        self._collected = 0
        wall, used = time.perf_counter_ns(), time.thread_time_ns()
        plan = self._planner.plan(snapshot, context)
        self.used.append((time.thread_time_ns() - used) / 1e6)
        self.planned.append(self.used[-1] - self._collected / 1e6)
        self.wall.append((time.perf_counter_ns() - wall) / 1e6)
        return plan


class Unwritten:
    """A journal that counts what it is given; its cost is measured elsewhere."""

    def __init__(self) -> None:
        self.events = 0

    def append(self, events: Sequence[Event], plan: Plan | None, snapshot: Snapshot) -> None:  # noqa: ARG002
        """Count events."""
        self.events += len(events)


def pass_rows(
    crowd: Crowd | None = None,
    *,
    policy: str = "budget",
    passes: int = 200,
    warm: tuple[int, int] = (18, 20),
    limit_seconds: float = 300.0,
    announce: Callable[[str], None] = lambda _: None,
) -> Iterator[Row]:
    """Yield the time of a pass: median, p99, longest, processor time, and of the first one.

    Args:
        crowd: The fleet and its demand.
        policy: Planner.
        passes: Passes that are timed.
        warm: Passes before that at ten minutes' and at the timed distance, in which the crowd settles.
        limit_seconds: When to stop although passes are missing; the count of the row tells.
        announce: Told what is being done.
    """
    crowd = crowd or Crowd()
    announce(f"one pass: {crowd.pending:,} jobs are submitted")
    scene = stage(crowd)
    planner, journal = TimedPlanner(create(policy)), Unwritten()
    loop = Loop(scene.state, planner, scene.clock, scene.engine, scene.intake, journal, explain=True)
    announce("one pass: the crowd settles")
    thresholds = gc.get_threshold()
    collector.calm()  # as the loop process does
    gc.callbacks.append(planner.watch)
    try:
        first, plans, settled = _run(scene, loop, planner, journal, (*warm, passes), limit_seconds, announce)
    finally:
        gc.callbacks.remove(planner.watch)
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    case = f"one pass, {policy}"
    note = _conditions(crowd, plans, journal.events)
    if not settled:
        note = f"stopped after {limit_seconds:g} s, before the crowd had settled; {note}"
    yield from _time_rows(case, planner, note)
    yield figure(case, "first pass, all indices built", first, "ms", note="same crowd, wall clock")


def _run(
    scene: Scene,
    loop: Loop,
    planner: TimedPlanner,
    journal: Unwritten,
    counts: tuple[int, int, int],
    limit_seconds: float,
    announce: Callable[[str], None],
) -> tuple[float, list[Plan], bool]:
    """Make the passes; return the time of the first, ms, the plans that count, and whether all settled."""
    coarse, fine, passes = counts
    began = time.monotonic()
    plan = loop.step()
    collector.settle()
    first, settled = planner.wall[0], False
    plans = [plan]
    for number in range(coarse + fine + passes):
        if time.monotonic() - began > limit_seconds:
            break
        if number == coarse + fine:
            plans.clear()
            planner.forget()
            journal.events = 0
            settled = True
            announce("one pass: timed")
        scene.clock.time += _COARSE if number < coarse else _STEP
        scene.intake.due = sum(isinstance(decision, Start) for decision in plan.decisions)
        plan = loop.step()
        plans.append(plan)
    return first, plans, settled


def _time_rows(case: str, planner: TimedPlanner, note: str) -> Iterator[Row]:
    wall, used = planner.wall, planner.used
    span, count = (min(wall), max(wall)), len(wall)
    for measure, times, target in (
        ("", wall, TARGET_MS),
        (", processor time", used, None),
        (", processor time without garbage collection", planner.planned, None),
    ):
        spread = (min(times), max(times))
        yield figure(
            case, f"p50{measure}", median(times), "ms", interval=spread, n=count, note="least to longest"
        )
        value = quantile(times, 0.99)
        yield figure(case, f"p99{measure}", value, "ms", interval=spread, n=count, target=target, note=note)
    yield figure(case, "longest", span[1], "ms", n=count, note="of the timed passes")


def _conditions(crowd: Crowd, plans: Sequence[Plan], events: int) -> str:
    """Return what the timed passes were about, per pass."""
    count = len(plans)
    starts = sum(isinstance(d, Start) for plan in plans for d in plan.decisions) / count
    taken = sum(isinstance(d, Preempt) for plan in plans for d in plan.decisions) / count
    held = sum(isinstance(slot, Hold) for plan in plans for slot in plan.slots) / count
    waits = sum(len(plan.waits) for plan in plans) / count
    return (
        f"{crowd.gpus:,} devices on {crowd.nodes:,} nodes, {crowd.accounts} leaf accounts in"
        f" {len(crowd.levels)} levels, {crowd.pending:,} pending; {_STEP // SECOND} s between passes,"
        f" per pass {events / count:.1f} events, {starts:.1f} starts, {taken:.1f} preemptions, {held:.2f}"
        f" slots, {waits:.0f} waits explained"
    )
