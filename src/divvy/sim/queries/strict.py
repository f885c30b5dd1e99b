"""A strict objective: p99 of all queries, and p95 of every bucket; and round robin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from divvy.planners.slices.base import Choice, Request
from divvy.sim.queries.judge import ReplayJudge, service_table
from divvy.sim.queries.kernel import Ints, Load, Run

#: Answers for a balancer that gives every server the same number of queries, one after the other.
ROUND_ROBIN: Final = "roundrobin"


def within(latency_us: Ints, batches: Ints, slo_us: int, buckets: Sequence[tuple[int, int]]) -> bool:
    """Return whether 99% of all queries and 95% of each bucket took at most the objective (nearest rank)."""
    late = latency_us > slo_us
    if int(late.sum()) > late.size * 0.01 + 1e-9:
        return False
    for low, high in buckets:
        mine = late[(batches >= low) & (batches <= high)]
        if int(mine.sum()) > mine.size * 0.05 + 1e-9:
            return False
    return True


class StrictJudge(ReplayJudge):
    """Replays choices under the strict objective; knows `ROUND_ROBIN` beside the rules.

    Args:
        request: Model, traffic and objective; its percentile is 95 and it is per bucket.
        queries: Queries per seed.
    """

    def __init__(self, request: Request, queries: int) -> None:
        super().__init__(request, queries)
        self._buckets = request.batches.buckets()

    def run(self, choice: Choice, rate_qps: float, seed: int, *, whole: bool = True) -> tuple[Load, Run]:
        """Return the load and what became of it."""
        if choice.dispatcher != ROUND_ROBIN:
            return super().run(choice, rate_qps, seed, whole=whole)
        load = self.stream(seed).at(rate_qps)
        return load, round_robin(load, service_table(self.request, choice.slices))

    def meets(self, choice: Choice, rate_qps: float, seeds: Sequence[int]) -> bool:
        """Return whether the objective holds at a rate, on every seed."""
        if not choice.slices or rate_qps <= 0:
            return False
        return all(self.holds(*self.run(choice, rate_qps, seed, whole=False)) for seed in seeds)

    def holds(self, load: Load, run: Run, *, tail: bool = False) -> bool:
        """Return whether the objective is met, and the backlog was worked off soon."""
        if not super().holds(load, run, tail=tail):
            return False
        return within(run.finish - load.arrivals, load.batches, self.request.slo_us, self._buckets)


def round_robin(load: Load, service: Ints) -> Run:
    """Replay queries on slices in turn, each slice first come first served; -1 where one cannot run it."""
    n, slices = load.arrivals.size, service.shape[0]
    chosen = np.arange(n, dtype=np.int64) % slices
    start, finish = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    free = [0] * slices
    for query, (now, batch) in enumerate(zip(load.arrivals.tolist(), load.batches.tolist(), strict=True)):
        s = query % slices
        time = int(service[s, batch])
        if time < 0:
            chosen[query] = -1
            continue
        start[query] = max(now, free[s])
        finish[query] = free[s] = int(start[query]) + time
    return Run(chosen, start, finish)
