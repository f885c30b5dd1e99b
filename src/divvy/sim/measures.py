"""Measures over a recorded replay; the definitions are in docs/explanation/measures.md.

Everything is computed from the record alone, that is, from what `events` writes: anybody can recompute
every figure from that file (a test does).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from divvy.errors import InputError
from divvy.fleet.job import StopCause
from divvy.sim.columns import Columns, owed_by_leaf
from divvy.sim.recorder import OPEN
from divvy.sim.replay import Replay
from divvy.sim.steps import Floats, Ints, Steps, cells, ints, quantile
from divvy.units import DAY, HOUR, MINUTE, SECOND, gpu_hours

MATTERS: Final = 100.0
"""GPU-hours owed below which an account is not judged on its own."""
SERVED: Final = 0.95


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a replay that counts, ms."""

    start: int
    end: int


def window_of(last_submission: int, end: int, warmup: int) -> Window:
    """Return what counts: from the end of the warm-up to the last submission.

    After the last submission the queue only drains, which says nothing about a shared fleet. Where all
    submissions fall into the warm-up the window ends with the replay instead.

    Raises:
        InputError: If nothing ran, or nothing is left after the warm-up.
    """
    until = last_submission if last_submission > warmup else end
    if until <= warmup == 0:
        raise InputError.one(
            "trace-idle",
            "no job of the trace ever ran, so there is nothing to measure",
            path="trace",
            fix="give a larger fleet or jobs that fit it: --gpus N or --nodes KxM",
        )
    if until <= warmup:
        raise InputError.one(
            "warmup-all",
            f"the replay ends after {end / HOUR:.1f} h, within the warm-up of {warmup / HOUR:g} h",
            path="--warmup",
            fix="choose a shorter one, such as --warmup 0",
        )
    return Window(warmup, until)


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits from submission to first start, s; infinite where a job never started, nan without jobs."""

    p50: float
    p90: float
    n: int


@dataclass(frozen=True, slots=True)
class AccountFigures:
    """One account over the window: GPU-hours, and delivered over owed capped per period, day and hour."""

    account: str
    share: float
    owed: float
    delivered: float
    unallocated: float
    period: float
    day: float
    hour: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Every figure of one replay."""

    occupancy: float
    occupancy_while_contended: float
    useful_occupancy_while_contended: float
    contended: float
    period: float
    day: float
    hour: float
    accounts: tuple[AccountFigures, ...]
    unallocated_share: float
    waits: dict[str, Waits]
    preemptions: int
    node_losses: int
    lost: float
    lost_allocated: float
    lost_fraction: float
    occupied: float
    capacity: float
    events: int
    jobs: int
    finished: int
    never_started: int


def measure(replay: Replay, window: Window) -> Figures:
    """Return every figure of a replay over a window."""
    columns = Columns(replay)
    occupied, useful, contended = _occupancy(columns, window)
    span = ints([window.start, window.end])
    capacity = int(columns.capacity.between(span)[0])
    held = Steps.of_intervals(columns.run_start, columns.run_end, columns.run_gpus)
    total = int(held.between(span)[0])
    accounts = _accounts(replay, columns, window)
    owed = sum(one.owed for one in accounts)
    work = int(columns.useful(np.ones(len(columns.run_job), dtype=bool), span)[0])
    free = int(columns.useful(~columns.run_allocated, span)[0])
    lost, lost_allocated = _lost(columns, span)
    ended = (columns.run_end >= window.start) & (columns.run_end < window.end)
    preempted = (columns.run_cause == StopCause.PREEMPTED) | (columns.run_cause == StopCause.DRAINED)
    return Figures(
        occupancy=_over(total, capacity),
        occupancy_while_contended=_over(occupied, contended),
        useful_occupancy_while_contended=_over(useful, contended),
        contended=_over(contended, capacity),
        period=_over(sum(one.period * one.owed for one in accounts if one.owed), owed),
        day=_over(sum(one.day * one.owed for one in accounts if one.owed), owed),
        hour=_over(sum(one.hour * one.owed for one in accounts if one.owed), owed),
        accounts=tuple(accounts),
        unallocated_share=_over(free, work),
        waits=_waits(replay, columns, window),
        preemptions=int((ended & preempted).sum()),
        node_losses=int((ended & (columns.run_cause == StopCause.NODE_LOST)).sum()),
        lost=gpu_hours(lost),
        lost_allocated=gpu_hours(lost_allocated),
        lost_fraction=_over(lost, total),
        occupied=gpu_hours(total),
        capacity=gpu_hours(capacity),
        events=len(replay.record.log),
        jobs=int(columns.there.sum()),
        finished=int(columns.finished.sum()),
        never_started=int((columns.there & (columns.first_start == OPEN)).sum()),
    )


def _over(part: float, whole: float) -> float:
    """Return a ratio; nan where there is nothing to compare with."""
    return float(part) / float(whole) if whole else float("nan")


def _occupancy(columns: Columns, window: Window) -> tuple[int, int, int]:
    """Return occupied, useful and offered GPU-ms while more devices are asked for than there are."""
    there = columns.there
    demand = Steps.of_intervals(columns.submit[there], columns.over[there], columns.gpus[there])
    held = Steps.of_intervals(columns.run_start, columns.run_end, columns.run_gpus)
    useful = Steps.of_intervals(
        columns.run_start + columns.run_restore, columns.run_end - columns.run_lost, columns.run_gpus
    )
    moments = np.concatenate(
        [
            demand.instants,
            held.instants,
            useful.instants,
            columns.capacity.instants,
            ints([window.start, window.end]),
        ]
    )
    moments = np.unique(np.clip(moments, window.start, window.end))
    first, length = moments[:-1], np.diff(moments)
    there_is = columns.capacity.value(first)
    length = np.where(demand.value(first) > there_is, length, 0)
    return (
        int((held.value(first) * length).sum()),
        int((useful.value(first) * length).sum()),
        int((there_is * length).sum()),
    )


def _accounts(replay: Replay, columns: Columns, window: Window) -> list[AccountFigures]:
    """Return owed and delivered per leaf account."""
    tree = replay.budget.tree
    grid = cells(window.start, window.end, HOUR)
    days = (grid[:-1] - window.start) // DAY
    figures: list[AccountFigures] = []
    for place, (leaf, owed) in enumerate(zip(tree.leaves, owed_by_leaf(replay, columns, grid), strict=True)):
        runs = columns.run_account == place
        delivered = columns.useful(runs & columns.run_allocated, grid)
        free = columns.useful(runs & ~columns.run_allocated, grid)
        figures.append(
            AccountFigures(
                tree.paths[leaf],
                float(tree.share[leaf]),
                gpu_hours(owed.sum()),
                gpu_hours(delivered.sum()),
                gpu_hours(free.sum()),
                _capped(delivered, owed, np.zeros_like(days)),
                _capped(delivered, owed, days),
                _capped(delivered, owed, np.arange(len(owed))),
            )
        )
    return figures


def _capped(delivered: Floats, owed: Floats, group: Ints) -> float:
    """Return delivered over owed with delivered capped at owed per group of cells."""
    due = np.bincount(group, owed)
    got = np.minimum(np.bincount(group, delivered), due)
    return _over(float(got.sum()), float(due.sum()))


def _lost(columns: Columns, span: Ints) -> tuple[int, int]:
    """Return the GPU-ms thrown away or spent restoring, of all runs and of allocated ones."""
    results: list[int] = []
    for chosen in (np.ones(len(columns.run_job), dtype=bool), columns.run_allocated):
        start, end, gpus = columns.run_start[chosen], columns.run_end[chosen], columns.run_gpus[chosen]
        restore, lost = columns.run_restore[chosen], columns.run_lost[chosen]
        wasted = Steps.of_intervals(
            np.concatenate([start, end - lost]), np.concatenate([start + restore, end]), np.tile(gpus, 2)
        )
        results.append(int(wasted.between(span)[0]))
    return results[0], results[1]


def _waits(replay: Replay, columns: Columns, window: Window) -> dict[str, Waits]:
    """Return the waits of the jobs submitted in the window, by class."""
    policy = replay.budget.policy
    counted = columns.there & (columns.submit >= window.start) & (columns.submit < window.end)
    wait = np.where(columns.first_start == OPEN, np.inf, (columns.first_start - columns.submit) / SECOND)
    declared = columns.min_runtime
    favoured = np.asarray(replay.workload.debug, dtype=bool)
    classes = {
        "all": np.ones(len(wait), dtype=bool),
        "debug": (declared > 0)
        & (declared <= policy.debug_max_min_runtime)
        & (columns.gpus <= policy.debug_max_gpus),
        "debug_favoured": favoured,
        "debug_first": favoured & ~_behind_their_like(columns, favoured),
        "le_15min": columns.runtime <= 15 * MINUTE,
        "ge_32gpu": columns.gpus >= 32,
        "overlay": columns.overlay,
    }
    result: dict[str, Waits] = {}
    for name, members in classes.items():
        chosen = wait[counted & members]
        result[name] = Waits(quantile(chosen, 0.5), quantile(chosen, 0.9), int(chosen.size))
    return result


def _behind_their_like(columns: Columns, favoured: np.ndarray) -> np.ndarray:
    """Return which favoured jobs found another one of their account waiting when they were submitted."""
    behind = np.zeros(len(favoured), dtype=bool)
    for account in np.unique(columns.account[favoured]):
        rows = np.flatnonzero(favoured & columns.there & (columns.account == account))
        latest = OPEN
        for row in rows.tolist():  # in order of submission
            first, submit = int(columns.first_start[row]), int(columns.submit[row])
            behind[row] = latest > submit
            latest = max(latest, columns.end if first == OPEN else first)
    return behind
