"""The budget policy beside every baseline, on the Philly trace: the table, frontiers, sensitivities.

A full run is some 700 replays; give it a cache and as much time as there is, and it goes on where it
stopped. What the time did not reach is a row without a value that says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

from divvy.cli.bench_core_replay import TRACE, published_rows
from divvy.cli.bench_kept import Figures
from divvy.cli.bench_row import Row, figure, find_data
from divvy.cli.bench_runs import Runs
from divvy.planners.jobs.registry import PLANNERS, documented
from divvy.sim.experiment import Experiment
from divvy.sim.intervals import interval
from divvy.units import DAY, HOUR, MINUTE, format_duration

Announce = Callable[[str], None]

OWN: Final = "budget"
POLICIES: Final = (OWN, *(name for name in sorted(PLANNERS) if name != OWN))
SHAPES: Final = {"29x8": "232 GPUs", "19x8": "152 GPUs"}
SEEDS: Final = 5
#: A part of the trace in which demand exceeds both fleets; what counts of it begins after the warm-up.
_QUICK: Final[dict[str, Any]] = {"days": (20.0, 21.0), "warmup": DAY // 4, "stop": True}
_RECLAIM_SHAPE: Final = "8x8"
#: Moments of a replay at which start intervals are asked for.
_MOMENTS: Final = 60


#: No gang may wait longer than under this policy.
_RIVAL: Final = "fairshare"
_GANGS: Final = "wait_seconds.overlay.p90"


class Aim(NamedTuple):
    """One measure of the table."""

    measure: str
    key: str
    unit: str = ""
    target: float | None = None
    at_least: bool = True
    below: str = ""
    """Another figure of the same replays that is the target."""


AIMS: Final = (
    Aim("delivered/owed, period", "delivered_over_owed.period", target=0.995),
    Aim("delivered/owed, day", "delivered_over_owed.day"),
    Aim("delivered/owed, hour", "delivered_over_owed.hour", target=0.93),
    Aim("worst account, period", "worst_account.period", target=0.95),
    Aim("worst account, hour", "worst_account.hour", target=0.80),
    Aim("accounts at 95% or more", "accounts_at_95"),
    Aim("occupancy while contended", "occupancy_while_contended", target=0.98),
    Aim("useful occupancy while contended", "useful_occupancy_while_contended", target=0.96),
    Aim("declared debug jobs, p50 wait", "wait_seconds.debug.p50", "s"),
    Aim("declared debug jobs, p90 wait", "wait_seconds.debug.p90", "s", 60, at_least=False),
    Aim("debug jobs within the daily allowance, p90 wait", "wait_seconds.debug_favoured.p90", "s"),
    Aim(
        "of these, with no other of their account waiting, p90 wait",
        "wait_seconds.debug_first.p90",
        "s",
        60,
        at_least=False,
    ),
    Aim("all jobs, p50 wait", "wait_seconds.all.p50", "s"),
    Aim("jobs of 32 GPUs or more, p90 wait", "wait_seconds.ge_32gpu.p90", "s"),
    Aim("overlay gangs, p90 wait", _GANGS, "s"),
    Aim("GPU time lost", "lost_fraction", target=0.02, at_least=False),
    Aim("GPU-hours lost", "lost_gpu_hours", "GPU-h"),
    Aim("unallocated part of delivered time", "unallocated_share"),
    Aim("preemptions", "preemptions", "runs"),
    Aim("replay and its measures", "wall_seconds", "s", 10, at_least=False),
)
_BRIEF: Final = tuple(
    aim._replace(target=None)
    for aim in AIMS
    if aim.measure
    in (
        "delivered/owed, period",
        "delivered/owed, day",
        "delivered/owed, hour",
        "worst account, hour",
        "useful occupancy while contended",
        "declared debug jobs, p90 wait",
        "GPU time lost",
        "GPU-hours lost",
        "preemptions",
    )
)
_RECLAIM: Final = (
    Aim(
        "delivered part of the idle account's entitlement", "reclaim.delivered_over_entitlement", target=0.95
    ),
    Aim("least part of its share that another held over an hour", "reclaim.others_minimum", target=0.7),
)


_INTERVAL: Final = (
    Aim("starts that came by their p90", "start_interval.coverage", target=0.85),
    Aim("starts that came by their p90: not all", "start_interval.coverage", target=0.95, at_least=False),
    Aim(
        "median width, p90 - p50",
        "start_interval.median_width_seconds",
        "s",
        at_least=False,
        below="start_interval.mean_wait.width_at_same_coverage_seconds",
    ),
    Aim("median of p90 - moment of asking", "start_interval.median_bound_seconds", "s"),
    Aim("submission + mean wait: starts that came by it", "start_interval.mean_wait.coverage"),
    Aim(
        "submission + mean wait: what it lacks to hold as often as the p90",
        "start_interval.mean_wait.width_at_same_coverage_seconds",
        "s",
    ),
)


#: What is also given as a difference, seed by seed on the same workload.
_PAIRED: Final = (*(aim.key for aim in _BRIEF), "wait_seconds.all.p50", "wait_seconds.overlay.p90")


class Line(NamedTuple):
    """Rows to write: a case, its contender, the experiments of its seeds, and what is read of them."""

    case: str
    contender: str
    runs: tuple[Experiment, ...]
    aims: tuple[Aim, ...]
    note: str = ""
    against: tuple[Experiment, ...] = ()
    rival: tuple[Experiment, ...] = ()
    """Whose waits of gangs are the target."""


def _seeds(base: Experiment, count: int) -> tuple[Experiment, ...]:
    return tuple(replace(base, seed=seed) for seed in range(count))


def _table(seeds: int) -> Iterator[Line]:
    """Yield every fleet, kind of placement, shares, overlay and policy."""
    for nodes, size in SHAPES.items():
        for pooled in (False, True):
            for shares in ("equal", "by-demand"):
                for gangs in (False, True):
                    place = "pooled" if pooled else f"nodes {nodes}"
                    case = f"Philly, {size}, {place}, {shares} shares{', gang overlay' if gangs else ''}"
                    base = Experiment(OWN, 0, nodes, pooled, shares, gangs)
                    own = _seeds(base, seeds)
                    for policy in POLICIES:
                        runs = _seeds(replace(base, policy=policy), seeds)
                        aims = AIMS if gangs else tuple(aim for aim in AIMS if "overlay" not in aim.measure)
                        note = documented(policy)["label"]
                        if policy != OWN:
                            aims = tuple(aim._replace(target=None) for aim in aims)
                        against = () if policy == OWN else own
                        rival = _seeds(replace(base, policy=_RIVAL), seeds) if policy == OWN else ()
                        yield Line(case, policy, runs, aims, note, against, rival)


def _frontier_cap(seeds: int) -> Iterator[Line]:
    """Yield caps on the minimum runtime from 15 min to 24 h: what is delivered against what is lost."""
    for nodes, size in SHAPES.items():
        for cap in (15 * MINUTE, HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, 16 * HOUR, 24 * HOUR):
            base = Experiment(OWN, 0, nodes, settings=(("max_min_runtime", cap),))
            case = f"frontier of the cap on minimum runtimes, {size}: {format_duration(cap)}"
            yield Line(case, OWN, _seeds(base, seeds), _BRIEF)


def _frontier_floor(seeds: int) -> Iterator[Line]:
    """Yield floors from 0 to 1, on the trace and in the reclaim scenario."""
    floors = (0.0, 0.25, 0.5, 0.7, 0.85, 1.0)
    for nodes, size in SHAPES.items():
        for floor in floors:
            base = Experiment(OWN, 0, nodes, settings=(("floor", floor),))
            yield Line(f"frontier of the floor, {size}: {floor:g}", OWN, _seeds(base, seeds), _BRIEF)
    for floor in floors:
        base = Experiment(OWN, 0, _RECLAIM_SHAPE, reclaim=True, settings=(("floor", floor),))
        aims = tuple(aim._replace(target=None) for aim in _RECLAIM)
        yield Line(f"frontier of the floor, reclaim scenario: {floor:g}", OWN, _seeds(base, seeds), aims)


def _sensitivity(seeds: int) -> Iterator[Line]:
    """Yield window, taper, margin and estimate noise, each moved alone from its default."""
    choices: tuple[tuple[str, str, tuple[float, ...]], ...] = (
        ("window", "lookback", (DAY, 3 * DAY, 7 * DAY, 14 * DAY)),
        ("taper", "taper", (0, DAY, 3 * DAY)),
        ("margin", "margin", (0.0, 0.05, 0.1, 0.2, 0.4)),
    )
    for name, setting, values in choices:
        for value in values:
            settings: tuple[tuple[str, float], ...] = ((setting, value),)
            if setting == "lookback":
                settings += (("taper", min(DAY, int(value) // 2)),)
            base = Experiment(OWN, 0, "29x8", settings=settings)
            shown = f"{value:g}" if setting == "margin" else format_duration(int(value))
            yield Line(f"sensitivity to the {name}, 232 GPUs: {shown}", OWN, _seeds(base, seeds), _BRIEF)
    for spread in (0.0, 0.5, 1.0, 2.0):
        base = Experiment(OWN, 0, "29x8", spread=spread)
        case = f"sensitivity to the noise of estimates, 232 GPUs: sigma {spread:g}"
        yield Line(case, OWN, _seeds(base, seeds), _BRIEF)


def _reclaim(seeds: int) -> Iterator[Line]:
    """Yield what an account that was idle for 48 h of 7 days gets back, under every policy."""
    for policy in POLICIES:
        base = Experiment(policy, 0, _RECLAIM_SHAPE, reclaim=True)
        aims = _RECLAIM if policy == OWN else tuple(aim._replace(target=None) for aim in _RECLAIM)
        case = "reclaim: ten equal accounts, one idle for 48 h of 7 days"
        yield Line(case, policy, _seeds(base, seeds), aims, documented(policy)["label"])


def _start_interval(seeds: int) -> Iterator[Line]:
    """Yield how often start intervals hold, and how wide they are."""
    for nodes, size in SHAPES.items():
        base = Experiment(OWN, 0, nodes, ask=_MOMENTS)
        case = f"start intervals, {size}, {_MOMENTS} moments"
        yield Line(case, OWN, _seeds(base, seeds), _INTERVAL)


#: Parts by name, in the order in which they are reported.
PARTS: Final[dict[str, Callable[[int], Iterator[Line]]]] = {
    "table": _table,
    "reclaim": _reclaim,
    "frontier-cap": _frontier_cap,
    "frontier-floor": _frontier_floor,
    "sensitivity": _sensitivity,
    "start-interval": _start_interval,
    "published": lambda _seeds: iter(()),
}


def rows(
    *,
    quick: bool = False,
    announce: Announce = lambda _: None,
    parts: Sequence[str] = (),
    cache: Path | None = None,
    minutes: float = math.inf,
    seeds: int = SEEDS,
    days: tuple[float, float] | None = None,
) -> Iterator[Row]:
    """Yield every figure of the comparison.

    Args:
        quick: Whether to stay within a minute: one seed, a day of the trace.
        announce: Told what is being run.
        parts: Names of parts; empty for all.
        cache: Where finished replays are kept.
        minutes: Time after which no further replay is begun.
        seeds: Seeds of every case.
        days: Part of the trace, which is replayed to its last submission; None for all of it.
    """
    lines = [
        line
        for name, make in PARTS.items()
        if not parts or name in parts
        for line in make(1 if quick else seeds)
    ]
    note = ""
    if quick:
        lines, note = [_shorten(line, _QUICK) for line in lines], "only a day of the file"
    elif days is not None:
        lines = [_shorten(line, {"days": days, "stop": True}) for line in lines]
        note = f"only days {days[0]:g} to {days[1]:g} of the file, to the last submission"
    file = find_data(TRACE)
    if file is None:
        missing = f"skipped: no ../shared/data/{TRACE} beside the checkout"
        yield from (row for line in lines for row in _rows(line, lambda _: None, missing))
    else:
        runs = Runs(file, cache=cache, minutes=minutes, quick=quick, announce=announce)
        runs.all(_in_order(lines))
        late = "not run: the time was up"
        yield from (row for line in lines for row in _rows(line, runs.one, late, note))
    if not parts or "published" in parts:
        yield from published_rows()


def _shorten(line: Line, part: Mapping[str, Any]) -> Line:
    """Return a line on a part of the trace; a single day is measured against no target."""

    def short(runs: tuple[Experiment, ...]) -> tuple[Experiment, ...]:
        return tuple(one if one.reclaim else replace(one, **part) for one in runs)

    aims = line.aims if part is not _QUICK else tuple(aim._replace(target=None) for aim in line.aims)
    runs, against, rival = short(line.runs), short(line.against), short(line.rival)
    return line._replace(runs=runs, against=against, rival=rival if part is not _QUICK else (), aims=aims)


def _in_order(lines: Sequence[Line]) -> list[Experiment]:
    """Return all experiments: one seed of everything before the next, nodes before pools."""
    every = dict.fromkeys(one for line in lines for one in line.runs)
    return sorted(every, key=lambda one: (one.seed, one.pooled, one.gangs, one.shares != "equal"))


def _rows(
    line: Line, read: Callable[[Experiment], Figures | None], missing: str, more: str = ""
) -> Iterator[Row]:
    """Yield the rows of a line: every measure, then the paired differences to our own policy."""
    found = [figures for one in line.runs if (figures := read(one)) is not None]
    pairs = [
        (figures, other)
        for one, twin in zip(line.runs, line.against, strict=False)
        if (figures := read(one)) is not None and (other := read(twin)) is not None
    ]
    for aim in line.aims:
        values = [figures[aim.key] for figures in found if aim.key in figures]
        notes = [line.note, more, *([missing] if not found else _gaps(values, found, line))]
        target, bound = aim.target, aim.at_least
        if aim.key == _GANGS and line.rival:
            others = [figures[_GANGS] for one in line.rival if (figures := read(one)) and _GANGS in figures]
            target, bound = (fmean(others) if others else None), False
        if aim.below:
            others = [figures[aim.below] for figures in found if aim.below in figures]
            target = fmean(others) if others else None
        yield figure(
            line.case,
            aim.measure,
            fmean(values) if values else None,
            aim.unit,
            contender=line.contender,
            interval=interval(values) if len(values) > 1 else None,
            n=len(values),
            target=target,
            at_least=bound,
            note="; ".join(filter(None, notes)),
        )
    for aim in line.aims if line.against else ():
        if aim.key not in _PAIRED:
            continue
        gaps = [one[aim.key] - other[aim.key] for one, other in pairs if aim.key in one and aim.key in other]
        yield figure(
            line.case,
            f"{aim.measure}: difference to {OWN}, paired",
            fmean(gaps) if gaps else None,
            aim.unit,
            contender=line.contender,
            interval=interval(gaps) if len(gaps) > 1 else None,
            n=len(gaps),
            note="; ".join(filter(None, [line.note, more, "" if gaps else missing])),
        )


def _gaps(values: Sequence[float], found: Sequence[Mapping[str, float]], line: Line) -> Iterator[str]:
    """Yield what a reader must know about the seeds behind a figure."""
    if len(values) < len(found):
        yield f"infinite or without jobs in {len(found) - len(values)} of {len(found)} seeds"
    if len(found) < len(line.runs):
        yield f"{len(found)} of {len(line.runs)} seeds were run"
    elif len(found) > 1:
        yield "95% interval of the mean over seeds"
