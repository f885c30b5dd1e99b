"""What ``divvy bench slurm`` measures: what Divvy costs a Slurm, and whether simulations tell what happens.

Everything runs against a Slurm of its own (`adapters/slurm/sandbox.py`): 64 nodes of 8 GPUs that do not
exist, jobs that sleep. Where none can be started, every row says so and has no value.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import structlog

from divvy.adapters.slurm import sandbox
from divvy.cli import bench_slurm_cost, bench_slurm_trace
from divvy.cli.bench_row import Row, figure

Announce = Callable[[str], None]

PARTS: Final = {
    "cost": "requests and time of a cycle at 10,000 waiting jobs",
    "waits": "500 jobs of a trace on a real Slurm under Divvy, beside the simulator",
    "fairshare": "the same jobs on that Slurm by itself, beside the simulator's fairshare",
}


def rows(*, quick: bool, announce: Announce, parts: Sequence[str] = ()) -> Iterator[Row]:
    """Yield one row per figure."""
    reason = sandbox.missing()
    if reason:
        for part in parts or PARTS:
            yield figure(part, "not measured", None, "", note=reason)
        return
    # What the engine tells its log would go to the terminal here.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    chosen = tuple(parts or PARTS)
    if "cost" in chosen:
        yield from bench_slurm_cost.rows(quick=quick, announce=announce)
    if "waits" in chosen:
        yield from bench_slurm_trace.waits(quick=quick, announce=announce)
    if "fairshare" in chosen:
        yield from bench_slurm_trace.fairshare(quick=quick, announce=announce)
