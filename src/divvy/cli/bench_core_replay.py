"""Replays of the Philly trace and of the reclaim scenario, beside what the source of the policy publishes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final, NamedTuple

import numpy as np

from divvy.cli.bench_row import Row, figure, find_data
from divvy.planners.jobs.registry import create
from divvy.sim.accounts import equal_shares
from divvy.sim.intervals import interval
from divvy.sim.measures import MATTERS, Figures, Window, measure, window_of
from divvy.sim.reclaim import reclaim_scenario, reclaimed
from divvy.sim.replay import Replay, replay
from divvy.sim.scenario import Scenario, build_fleet
from divvy.sim.steps import Steps, ints
from divvy.sim.traces import read_trace
from divvy.sim.traces.trace import Trace
from divvy.units import DAY, gpu_hours

TRACE: Final = "traces/philly/philly-2017-09-10.csv"
SHAPES: Final = {"232 GPUs, 2x demand": "29x8", "152 GPUs, 3x demand": "19x8"}
_WARMUP: Final = 7 * DAY
PUBLISHED: Final = "published (Ai2)"


class Measured(NamedTuple):
    """Figures of one replay."""

    figures: Figures
    wall_seconds: float
    used_seconds: float
    lost_resumable: float


class Aim(NamedTuple):
    """One measure of a replay: how it is read, what it is to be, whether a part of the trace can meet it."""

    measure: str
    unit: str
    read: Callable[[Measured], float]
    target: float | None = None
    at_least: bool = True
    note: str = ""
    of_whole: bool = False


def _worst(figures: Figures) -> float:
    """Return delivered/owed of the account that got least, of those that are owed enough to matter."""
    return min((one.period for one in figures.accounts if one.owed >= MATTERS), default=math.nan)


_AIMS: Final = (
    Aim("replay, wall clock", "s", lambda m: m.wall_seconds, 10, at_least=False, of_whole=True),
    Aim(
        "replay, processor time",
        "s",
        lambda m: m.used_seconds,
        10,
        at_least=False,
        of_whole=True,
        note="what the wall clock shows on an idle machine",
    ),
    Aim("delivered/owed, period", "", lambda m: m.figures.period, 0.99),
    Aim("delivered/owed, day", "", lambda m: m.figures.day),
    Aim("delivered/owed, hour", "", lambda m: m.figures.hour, 0.92),
    Aim("useful occupancy while contended", "", lambda m: m.figures.useful_occupancy_while_contended, 0.96),
    Aim("occupancy while contended", "", lambda m: m.figures.occupancy_while_contended),
    Aim("GPU time lost", "", lambda m: m.figures.lost_fraction, 0.02, at_least=False),
    Aim(
        "GPU time lost, of resumable jobs",
        "",
        lambda m: m.lost_resumable,
        note="redone since the last checkpoint, and restoring; the rest is of jobs that cannot resume",
    ),
    Aim("GPU-hours lost", "GPU-h", lambda m: m.figures.lost),
    Aim("worst account, period", "", lambda m: _worst(m.figures)),
    Aim("unallocated part of delivered time", "", lambda m: m.figures.unallocated_share),
    Aim("declared debug jobs, p90 wait", "s", lambda m: m.figures.waits["debug"].p90),
)

#: What the source reports of its own clusters over 30 days at 2 to 3 times demand, as it words it.
_CLAIMS: Final = (
    ("delivered/owed", 0.98, "", "owed is capped at demand hour by hour; 30 days, 2 to 3 times demand"),
    ("accounts at 95% or more", 13 / 15, "", "13 of 15"),
    ("worst account", 0.90, "", ""),
    ("occupancy", 0.98, "", ""),
    ("unallocated part of delivered time", 0.18, "", ""),
    ("debug jobs, p90 wait", 30.0, "s", "few GPUs, minimum runtime of 15 min at most; 2 h before"),
    ("largest cluster, median wait", 24.0, "s", ""),
    ("largest cluster, p90 wait", 6_480.0, "s", "1.8 h"),
)


def replay_rows(
    *,
    seeds: Sequence[int],
    days: tuple[int, int] | None = None,
    trace: Trace | None = None,
    shapes: dict[str, str] = SHAPES,
    warmup: int = _WARMUP,
    announce: Callable[[str], None] = lambda _: None,
) -> Iterator[Row]:
    """Yield the figures of the Philly replays, or why there are none, then what the source publishes.

    Args:
        seeds: Seeds of the contracts.
        days: First day and end of the part that is replayed; None for all of it.
        trace: A trace to use in place of the file.
        shapes: Fleets by name.
        warmup: What counts for nothing at the beginning, ms.
        announce: Told what is being done.
    """
    path = find_data(TRACE)
    if trace is None and path is not None:
        trace = read_trace(path.read_bytes(), "philly", str(path))
    notes = ["equal shares, honest contracts, with placement"]
    if trace is None:
        notes = [f"skipped: no ../shared/data/{TRACE} beside the checkout"]
    elif days is not None:
        trace = _part(trace, *days)
        notes.append(f"only days {days[0]} to {days[1]} of the file: it says nothing about the whole")
    for name, shape in shapes.items():
        runs = []
        if trace is not None:
            budget, claims = equal_shares(trace)
            scenario = Scenario(trace, build_fleet(None, shape), budget, claims)
            for seed in seeds:
                announce(f"replay: {name}, seed {seed}")
                runs.append(_run(scenario, seed, warmup))
        for aim in _AIMS:
            row = _row(f"Philly, {name}", aim, runs, [*notes, aim.note])
            if days is not None and aim.of_whole:
                row["met"] = None
            yield row
    yield from published_rows()


def published_rows() -> Iterator[Row]:
    """Yield what the source of the policy publishes of its own clusters."""
    for measured, value, unit, note in _CLAIMS:
        text = "its clusters, not this trace" + (f"; {note}" if note else "")
        yield figure("other clusters, 30 days", measured, value, unit, contender=PUBLISHED, note=text)


def _part(trace: Trace, first: int, end: int) -> Trace:
    """Return the jobs of some days, which become the first ones."""
    jobs = [job for job in trace.jobs if first * DAY <= job.submit < end * DAY]
    return replace(trace, jobs=tuple(job._replace(submit=job.submit - first * DAY) for job in jobs))


def _row(case: str, aim: Aim, runs: Sequence[Measured], notes: Sequence[str]) -> Row:
    values = [aim.read(run) for run in runs]
    several = len(values) > 1
    return figure(
        case,
        aim.measure,
        fmean(values) if values else None,
        aim.unit,
        interval=interval(values) if several else None,
        n=len(values),
        target=aim.target,
        at_least=aim.at_least,
        note="; ".join([*filter(None, notes), *(["95% interval of the mean over seeds"] if several else [])]),
    )


def _run(scenario: Scenario, seed: int, warmup: int) -> Measured:
    workload = scenario.workload(seed)
    wall, used = time.perf_counter(), time.process_time()
    run = replay(scenario, create("budget"), seed, workload=workload)
    wall, used = time.perf_counter() - wall, time.process_time() - used
    window = window_of(scenario.trace.last_submission, run.end, warmup)
    figures = measure(run, window)
    return Measured(figures, wall, used, _lost_by_resumable(run, window) / figures.occupied)


def _lost_by_resumable(run: Replay, window: Window) -> float:
    """Return the GPU-hours that jobs which can resume threw away or spent restoring."""
    record, spec = run.record, run.workload.spec
    job = ints(record.job)
    mine = np.array([one.resumable for one in spec], dtype=bool)[job]
    gpus = ints([one.gpus for one in spec])[job][mine]
    start, end = ints(record.start)[mine], ints(record.end)[mine]
    restore, lost = ints(record.restore)[mine], ints(record.lost)[mine]
    wasted = Steps.of_intervals(
        np.concatenate([start, end - lost]), np.concatenate([start + restore, end]), np.tile(gpus, 2)
    )
    return gpu_hours(int(wasted.between(ints([window.start, window.end]))[0]))


def reclaim_rows(*, seeds: Sequence[int], announce: Callable[[str], None] = lambda _: None) -> Iterator[Row]:
    """Yield what an account that was idle for 48 h of 7 days gets back, and what is left to others."""
    got, least = [], []
    scenario = reclaim_scenario(build_fleet(None, "8x8"))
    for seed in seeds:
        announce(f"reclaim scenario, seed {seed}")
        found = reclaimed(replay(scenario, create("budget"), seed))
        got.append(found["delivered_over_entitlement"])
        least.append(found["others_minimum"])
    floor = scenario.budget.policy.floor
    for measured, values, target in (
        ("delivered part of the idle account's entitlement", got, 0.95),
        ("least part of its share that another held over an hour", least, floor),
    ):
        yield figure(
            "reclaim: ten equal accounts, one idle for 48 h of 7 days",
            measured,
            fmean(values),
            "",
            interval=(min(values), max(values)),
            n=len(values),
            target=target,
            at_least=True,
            note="64 GPUs in 8 nodes; interval: least and greatest over seeds",
        )
