"""Live serving beside what people use today: real servers, real balancers, as rows of ``divvy.bench/1``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from divvy.cli.bench_kept import Kept
from divvy.cli.bench_row import Row
from divvy.cli.bench_serving_change import change_rows
from divvy.cli.bench_serving_contenders import BALANCERS, RAYS
from divvy.cli.bench_serving_divvy import ROUTERS
from divvy.cli.bench_serving_rates import BEST, EQUAL, Rates, leave_out, measure, rate_rows, zero_row
from divvy.cli.bench_serving_replay import prediction_rows
from divvy.cli.bench_serving_router import added_rows, kill_rows, pinned_row
from divvy.cli.bench_serving_search import Effort, Trials
from divvy.cli.bench_serving_stage import CASES, Stage
from divvy.cli.chatter import libraries_quiet

#: What decides a live figure.
_ROOMS: Final = (
    *("adapters/lab", "adapters/load", "adapters/balancers", "adapters/rayserve", "adapters/front", "perf"),
    *("planners/queries", "planners/slices", "sim/queries"),
)
_FULL: Final = Effort(seeds=5, queries=400, step=1.04, lanes=4)
_QUICK: Final = Effort(seeds=1, queries=80, step=1.4, lanes=4)
PARTS: Final = {
    "router": "latency that the router adds, requests per second on one core",
    "kill": "a back end killed under load",
    "change": "layouts changed while serving",
    "replay": "the replay's prediction of the live p99, and MLPerf's generator",
    "rates": "every contender on its own best layout",
    "equal": "the same on equal slices",
}


def rows(
    *,
    quick: bool = False,
    announce: Callable[[str], None] = lambda _: None,
    parts: Sequence[str] = (),
    cache: Path | None = None,
    minutes: float = math.inf,
    seeds: int | None = None,
) -> Iterator[Row]:
    """Yield every figure of live serving; a quick run has the same rows from one seed and fewer queries.

    Args:
        quick: Whether to stay within a minute.
        announce: Told what is being measured.
        parts: Only these parts.
        cache: Where trials are kept, so that a run that was stopped goes on.
        minutes: Begin no trial after so long.
        seeds: Seeds of the rates.
    """
    full = _QUICK if quick else _FULL
    effort = Effort(seeds or full.seeds, full.queries, full.step, full.lanes)
    trials = Trials(Kept(cache, _ROOMS), effort, time.monotonic() + minutes * 60)
    wanted = parts or tuple(PARTS)
    everything: dict[tuple[str, str], Sequence[Rates]] = {}
    with libraries_quiet():
        stages = [Stage(case) for case in (CASES[:1] if quick else CASES)]
        if "router" in wanted:
            announce("the router alone")
            yield from added_rows(quick=quick)
            yield pinned_row(quick=quick)
        if "kill" in wanted:
            yield from kill_rows(stages[0], quick=quick)
        if "change" in wanted:
            announce("layouts are changed while serving")
            yield from change_rows(stages[0], quick=quick)
        if "replay" in wanted:
            announce("replay beside life")
            queries = 50 if quick else 500
            yield from prediction_rows(stages[0], seeds=effort.seeds, queries=queries, quick=quick)
        layouts = [layout for part, layout in (("rates", BEST), ("equal", EQUAL)) if part in wanted]
        for stage in stages:
            found = _rates(stage, layouts, trials, quick=quick, announce=announce)
            everything |= {(stage.case.name, layout): rates for layout, rates in found.items()}
            for layout, rates in found.items():
                yield from rate_rows(stage.case.name, layout, rates, _how(stage, effort))
    if everything:
        yield zero_row(everything)


def _rates(
    stage: Stage, layouts: Sequence[str], trials: Trials, *, quick: bool, announce: Callable[[str], None]
) -> dict[str, list[Rates]]:
    """Return the rates on a case by layout.

    Ray's processes are never quite idle: it comes last, and each of its contenders has the machine to itself.
    """
    found = {}
    for layout in layouts:
        go = partial(measure, stage, trials=trials, equal=layout == EQUAL, announce=announce)
        found[layout] = go([*BALANCERS, *ROUTERS])
    for layout in layouts:
        go = partial(measure, stage, trials=trials, equal=layout == EQUAL, announce=announce)
        for ray in RAYS:
            why = "not in a quick run: it takes half a minute to come up" if quick else trials.over
            found[layout] += leave_out(ray, trials.effort, why) if why else go([ray])
    return found


def _how(stage: Stage, effort: Effort) -> str:
    """Return how rates were measured, for the notes."""
    return (
        f"objective {stage.request.slo_us / 1e3:.1f} ms: p99 of all, p95 of each bucket;"
        f" {effort.queries} queries a trial, grid of {effort.step - 1:.0%};"
        f" slept slices (emulated), times x {stage.case.scale:g}"
    )
