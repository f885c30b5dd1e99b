"""Built-in workloads, so that a comparison runs without any file.

`synthetic`: a small lab. Sizes, runtimes and their sources:

- Sizes: counts of the 82,248 jobs of the Philly trace as published with Sia (SOSP'23).
- Runtimes: lognormal with Philly's median of 1,144 s and 90% point of 11,266 s, cut at two days; the real
  tail is longer still (Jeon et al., USENIX ATC 2019).
- Demand over supply 2, the lower end of what Ai2 reports ("Impactful scheduling for GPU clusters").
- Demand over accounts by Zipf's law, by day a sine with three times as much at noon as at midnight: our
  assumptions, in place of a source.

`reclaim`: ten equal saturated accounts, the last idle for the first 48 h of a 7-day window.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from divvy.sim.steps import Floats, Ints, ints
from divvy.sim.traces.trace import Trace, TraceJob
from divvy.units import DAY, HOUR, SECOND

SIZES: Final = {1: 76_627, 2: 1_818, 4: 1_870, 8: 1_643, 16: 199, 32: 67, 64: 6, 128: 3}
MEDIAN_SECONDS: Final = 1_144
P90_SECONDS: Final = 11_266
LOAD: Final = 2.0
DAYS: Final = 14
LABS: Final = ("vision", "language", "speech", "robotics", "biology", "systems")
_Z90: Final = 1.2815515655446004
_LONGEST: Final = 2 * DAY
_SWING: Final = 0.5

RECLAIM_ACCOUNTS: Final = tuple(f"team{number:02d}" for number in range(1, 11))
SLEEPER: Final = RECLAIM_ACCOUNTS[-1]
RECLAIM_WINDOW: Final = 7 * DAY
RECLAIM_IDLE: Final = 48 * HOUR
_RECLAIM_SIZES: Final = {1: 50, 2: 20, 4: 15, 8: 15}
_RECLAIM_BACKLOG: Final = 0.6
"""Work of every account, in fleets over the window: more than it can get under any policy here."""


def synthetic_trace(gpus: int, seed: int = 0) -> Trace:
    """Return a workload of twice what a fleet can do in two weeks."""
    rng = np.random.Generator(np.random.PCG64(seed))
    sizes = ints([size for size in SIZES if size <= gpus])
    chance = np.array([SIZES[int(size)] for size in sizes], dtype=np.float64)
    chance /= chance.sum()
    sigma = math.log(P90_SECONDS / MEDIAN_SECONDS) / _Z90
    mean = MEDIAN_SECONDS * SECOND * math.exp(sigma**2 / 2) * float(chance @ sizes)
    target = LOAD * gpus * DAYS * DAY
    most = max(16, round(2 * target / mean))
    size = rng.choice(sizes, most, p=chance)
    drawn = MEDIAN_SECONDS * SECOND * np.exp(sigma * rng.standard_normal(most))
    runtime = np.clip(drawn, SECOND, _LONGEST).astype(np.int64)
    count = min(most, 1 + int(np.searchsorted(np.cumsum(size * runtime), target)))
    submit = _arrivals(count, rng)
    weight = 1 / np.arange(1, len(LABS) + 1)
    lab = rng.choice(len(LABS), count, p=weight / weight.sum())
    return Trace(
        tuple(
            TraceJob(f"s{n:06d}", int(submit[n] - submit[0]), int(runtime[n]), int(size[n]), LABS[lab[n]])
            for n in range(count)
        )
    )


def reclaim_trace(gpus: int, seed: int = 0) -> Trace:
    """Return ten accounts that always have more to do than they can get, one of them only after 48 h."""
    jobs: list[TraceJob] = []
    sizes = ints([size for size in _RECLAIM_SIZES if size <= gpus])
    chance = np.array([_RECLAIM_SIZES[int(size)] for size in sizes], dtype=np.float64)
    chance /= chance.sum()
    for number, account in enumerate(RECLAIM_ACCOUNTS):
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, number])))
        work = _RECLAIM_BACKLOG * gpus * RECLAIM_WINDOW
        start = RECLAIM_IDLE if account == SLEEPER else 0
        while work > 0:
            size = int(rng.choice(sizes, p=chance))
            runtime = min(int(HOUR * math.exp(float(rng.standard_normal()))), DAY)
            jobs.append(TraceJob(f"{account}-{len(jobs):06d}", start, max(runtime, SECOND), size, account))
            work -= size * runtime
    return Trace(tuple(sorted(jobs, key=lambda job: job.submit)))


def _arrivals(count: int, rng: np.random.Generator) -> Ints:
    """Return sorted instants over the days, ms, in whole seconds, more of them by day than by night."""
    grid: Floats = np.linspace(0, DAYS, DAYS * 24 * 4 + 1)
    expected = grid - _SWING / (2 * math.pi) * np.sin(2 * math.pi * grid)
    place = np.interp(np.sort(rng.random(count)) * expected[-1], expected, grid)
    return ints(np.floor(place * DAY / SECOND)) * SECOND
