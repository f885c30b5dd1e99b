"""The recent past of a live fleet as a trace: the same jobs, to be replayed under another policy or budget.

How long a job runs is known only of those that ended by themselves. For the others it is drawn, once and for
all sides of a comparison, from the jobs most like them that ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from divvy.fleet.job import JobSpec
from divvy.sim.foresight.past import Durations
from divvy.sim.traces.trace import Trace, TraceJob


class Lived(NamedTuple):
    """A job of the past.

    Attributes:
        spec: What was asked for.
        submitted: When, ms.
        ran: How long it ran in all so far, ms.
        live: Whether it still waits or runs.
    """

    spec: JobSpec
    submitted: int
    ran: int
    live: bool


class Relived(NamedTuple):
    """The past as a trace.

    Attributes:
        trace: The jobs, on a clock that begins with the first.
        first: That time, ms.
        drawn: Jobs of which the runtime was drawn.
        left_out: Jobs that somebody ended before they ran at all.
    """

    trace: Trace
    first: int
    drawn: int
    left_out: int


def relive(past: Sequence[Lived], durations: Durations, seed: int) -> Relived | None:
    """Return the past as a trace; None where no job is left.

    Args:
        past: Jobs in order of submission.
        durations: How long jobs like these ran.
        seed: Of the drawn runtimes.
    """
    generator = np.random.default_rng(seed)
    kept = [lived for lived in past if lived.ran or lived.live]
    if not kept:
        return None
    first, drawn = kept[0].submitted, 0
    jobs: list[TraceJob] = []
    for spec, submitted, ran, live in kept:
        runtime = ran
        if live:
            runtime = ran + durations.draw(spec, ran, generator)
            drawn += 1
        jobs.append(_row(spec, max(submitted - first, 0), max(runtime, 1)))
    return Relived(Trace(tuple(jobs), begin=first), first, drawn, len(past) - len(kept))


def _row(spec: JobSpec, submit: int, runtime: int) -> TraceJob:
    return TraceJob(
        spec.id,
        submit,
        runtime,
        spec.gpus,
        spec.account,
        spec.author,
        spec.min_runtime,
        spec.resumable,
        spec.restart,
        spec.priority,
        spec.kind,
        spec.model,
        spec.per_node,
        spec.time_limit,
        or_accounts=tuple(path for path in spec.budgets if path != spec.account),
        clusters=spec.clusters,
    )
