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
from divvy.cli.bench_serving_contenders import BALANCERS, RAYS
from divvy.cli.bench_serving_rates import BEST, EQUAL, Rates, leave_out, measure, rate_rows, zero_row
from divvy.cli.bench_serving_search import Effort, Trials
from divvy.cli.bench_serving_stage import CASES, Stage
from divvy.cli.chatter import libraries_quiet

TAKES_CACHE: Final = True
#: What decides a live figure.
_ROOMS: Final = (
    *("adapters/lab", "adapters/load", "adapters/balancers", "adapters/rayserve", "perf"),
    *("planners/queries", "planners/slices", "sim/queries"),
)
_FULL: Final = Effort(seeds=5, queries=500, step=1.04, lanes=2)
_QUICK: Final = Effort(seeds=1, queries=120, step=1.25, lanes=4)
PARTS: Final = {"rates": "every contender on its own best layout", "equal": "the same on equal slices"}


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
    found: dict[tuple[str, str], Sequence[Rates]] = {}
    cases = CASES[:1] if quick else CASES
    with libraries_quiet():
        for case in cases:
            stage = Stage(case)
            for part, layout in (("rates", BEST), ("equal", EQUAL)):
                if part not in wanted:
                    continue
                go = partial(measure, stage, trials=trials, equal=layout == EQUAL, announce=announce)
                # Ray's processes are never quite idle: each of its contenders has the machine to itself.
                alone = [one for ray in RAYS for one in (leave_out(ray, effort) if quick else go([ray]))]
                found[case.name, layout] = [*go(BALANCERS), *alone]
                yield from rate_rows(case.name, layout, found[case.name, layout], _how(stage, effort))
    if found:
        yield zero_row(found)


def _how(stage: Stage, effort: Effort) -> str:
    """Return how rates were measured, for the notes."""
    return (
        f"objective {stage.request.slo_us / 1e3:.1f} ms: p99 of all, p95 of each bucket;"
        f" {effort.queries} queries a trial, grid of {effort.step - 1:.0%};"
        f" slept slices (emulated), times x {stage.case.scale:g}"
    )
