"""Extra gangs laid over a trace: large jobs where the trace has too few to say anything about them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from divvy.sim.traces.trace import Trace, TraceJob
from divvy.units import HOUR

PREFIX = "gang-"
_STREAM = 17


@dataclass(frozen=True, slots=True)
class Overlay:
    """Parameters of the extra gangs.

    Attributes:
        part: Their GPU time over that of the trace.
        sizes: Devices of a gang, equally likely; those larger than the fleet are left out.
        median: Median of the lognormal runtime, ms.
        sigma: Its sigma.
        longest: Cut of the runtime, ms.
    """

    part: float = 0.10
    sizes: tuple[int, ...] = (64, 96, 128)
    median: int = 4 * HOUR
    sigma: float = 0.8
    longest: int = 24 * HOUR


def add_gangs(trace: Trace, overlay: Overlay, gpus: int, seed: int) -> tuple[TraceJob, ...]:
    """Return the jobs of a trace and extra gangs, in order of submission.

    Gangs arrive uniformly over the trace, in accounts drawn in proportion to their GPU time, until they
    are worth ``part`` of the trace's GPU time; the last one is shortened to end there.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, _STREAM])))
    sizes = [size for size in overlay.sizes if size <= gpus]
    demand = trace.gpu_time()
    total = sum(demand.values())
    rest = int(total * overlay.part)
    accounts = list(demand)
    chances = np.array([demand[account] / total for account in accounts])
    gangs: list[TraceJob] = []
    while rest > 0 and sizes:
        size = sizes[int(rng.integers(len(sizes)))]
        drawn = overlay.median * float(np.exp(overlay.sigma * rng.standard_normal()))
        runtime = min(int(drawn), overlay.longest, max(1, rest // size))
        submit = int(rng.random() * trace.last_submission)
        account = accounts[int(rng.choice(len(accounts), p=chances))]
        gangs.append(TraceJob(f"{PREFIX}{len(gangs) + 1:04d}", submit, runtime, size, account))
        rest -= size * runtime
    return tuple(sorted([*trace.jobs, *gangs], key=lambda job: job.submit))
