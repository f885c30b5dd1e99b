"""Judges a choice of slices and rule by replay: does the objective hold, and up to which rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from divvy.perf.latency import INFEASIBLE
from divvy.planners.queries.registry import find_rule
from divvy.planners.slices.base import Choice, Request, shares_runs
from divvy.sim.queries.arrivals import Stream, make_stream
from divvy.sim.queries.kernel import Allowance, Load, Run, replay

#: Rates are found to this relative precision.
PRECISION: Final = 0.005
#: A rule that may put off late queries must still finish 99% of each group within so many objectives.
TAIL: Final = 2
#: After the last arrival the fleet must have worked off its backlog within so many objectives.
_DRAIN: Final = 4


@dataclass(frozen=True, slots=True)
class BucketResult:
    """A batch bucket's latencies at one rate, milliseconds."""

    low: int
    high: int
    queries: int
    p95_ms: float
    p99_ms: float
    met: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a replay says at one rate; latencies in milliseconds."""

    met: bool
    p50_ms: float
    p95_ms: float
    p99_ms: float
    buckets: tuple[BucketResult, ...]


def service_table(request: Request, slices: Sequence[int], *, batching: bool = False) -> NDArray[np.int64]:
    """Return microseconds by slice and batch; column 0 is unused; negative where it does not fit.

    As wide as the largest query; with `batching` as the largest batch that runs, for queries run together.
    """
    widest = request.batches.largest
    if batching:
        widest = max(widest, *(max(request.profile.batches(size), default=0) for size in set(slices)))
    rows = {
        size: [INFEASIBLE] + [request.time_us(size, batch) for batch in range(1, widest + 1)]
        for size in set(slices)
    }
    return np.array([rows[size] for size in slices], np.int64).reshape(len(slices), widest + 1)


class ReplayJudge:
    """Replays a request's traffic on choices of slices.

    The percentile is by nearest rank: at most floor(share x n) queries may be late. Rates share their random
    numbers: a stream is drawn once per seed and only scaled.

    Args:
        request: Model, traffic and objective.
        queries: Queries per seed.
        arrivals: Kind of arrivals.
        gaps: Gaps of a recorded trace.
    """

    def __init__(
        self,
        request: Request,
        queries: int,
        arrivals: str = "poisson",
        gaps: NDArray[np.float64] | None = None,
    ) -> None:
        self.request = request
        self.queries = queries
        self._arrivals = arrivals
        self._gaps = gaps
        self._streams: dict[int, Stream] = {}
        self._tables: dict[tuple[tuple[int, ...], bool], NDArray[np.int64]] = {}
        self._edges = np.array([low for low, _ in request.batches.buckets()], np.int64)
        self._allowances: dict[tuple[int, int], Allowance] = {}
        self.replays = 0

    def stream(self, seed: int) -> Stream:
        """Return the stream of a seed."""
        if seed not in self._streams:
            self._streams[seed] = make_stream(
                self.request.batches, self.queries, seed, self._arrivals, self._gaps
            )
        return self._streams[seed]

    def _allowance(self, seed: int, widest: int) -> Allowance:
        """Return how many queries of each bucket may be late on a seed."""
        batches = self.stream(seed).batches
        every = np.arange(widest)
        bucket = (
            np.searchsorted(self._edges, every, side="right") - 1 if self.request.per_bucket else every * 0
        )
        bucket = np.maximum(bucket, 0)
        count = np.bincount(bucket[batches], minlength=int(bucket.max()) + 1)
        share = 1 - self.request.percentile / 100
        return Allowance(bucket, np.floor(share * count + 1e-9).astype(np.int64))

    def run(self, choice: Choice, rate_qps: float, seed: int, *, whole: bool = True) -> tuple[Load, Run]:
        """Return the load and what became of it; unless `whole`, until too many queries are late."""
        rule, params = find_rule(choice.dispatcher)
        wide = choice.slices, shares_runs(choice.dispatcher)
        if wide not in self._tables:
            self._tables[wide] = service_table(self.request, choice.slices, batching=wide[1])
        prices = dict(choice.price)
        price = np.array([prices.get(size, float(size)) for size in choice.slices])
        load = self.stream(seed).at(rate_qps)
        self.replays += 1
        table = self._tables[wide]
        allowance = None
        if not whole:
            key = (seed, table.shape[1])
            if key not in self._allowances:
                self._allowances[key] = self._allowance(*key)
            allowance = self._allowances[key]
        return load, replay(rule, params, load, self.request.slo_us, table, price, allowance)

    def holds(self, load: Load, run: Run, *, tail: bool = False) -> bool:
        """Return whether the objective is met: no query refused, few enough late, backlog drained.

        Args:
            load: The queries.
            run: What became of them.
            tail: Whether 99% of each group must also be done within `TAIL` objectives.
        """
        if not run.complete or bool((run.chosen < 0).any()):
            return False
        slo, latency = self.request.slo_us, run.finish - load.arrivals
        if int(run.finish.max()) - int(load.arrivals[-1]) > _DRAIN * slo:
            return False
        bucket = np.zeros(latency.size, np.int64)
        if self.request.per_bucket:
            bucket = np.searchsorted(self._edges, load.batches, side="right") - 1
        count = np.bincount(bucket)
        limits = [(slo, 1 - self.request.percentile / 100)] + ([(TAIL * slo, 0.01)] if tail else [])
        for limit, share in limits:
            tardy = np.bincount(bucket[latency > limit], minlength=count.size)
            if bool((tardy > np.floor(share * count + 1e-9)).any()):
                return False
        return True

    def meets(self, choice: Choice, rate_qps: float, seeds: Sequence[int]) -> bool:
        """Return whether the objective holds at a rate, on every seed."""
        if not choice.slices or rate_qps <= 0:
            return False
        tail = find_rule(choice.dispatcher)[0].late
        return all(self.holds(*self.run(choice, rate_qps, seed, whole=False), tail=tail) for seed in seeds)

    def rate(self, choice: Choice, seeds: Sequence[int], least: float, most: float) -> float:
        """Return the largest rate at which the objective holds on every seed, 0 if none above `least`.

        Args:
            choice: Slices and rule.
            seeds: Seeds that all must hold.
            least: A rate that is not interesting any more (0 to search from the ground).
            most: A rate that cannot be exceeded.
        """
        low, high = least, most
        if high <= 0:
            return 0.0
        probe = max(least * (1 + PRECISION), most * 0.02)
        if not self.meets(choice, probe, seeds):
            if least > 0 or not self.meets(choice, most * 0.001, seeds):
                return 0.0
            low, high = most * 0.001, probe
        else:
            low, high = self._bracket(choice, seeds, probe, most) if least > 0 else (probe, most)
        while high - low > PRECISION * low:
            middle = (low + high) / 2
            if self.meets(choice, middle, seeds):
                low = middle
            else:
                high = middle
        return low

    def _bracket(self, choice: Choice, seeds: Sequence[int], low: float, most: float) -> tuple[float, float]:
        """Return two rates, one that holds and one that does not: most finds are only a little better."""
        step = 1.03
        while low * step < most:
            if not self.meets(choice, low * step, seeds):
                return low, low * step
            low *= step
            step **= 2
        return low, most

    def verdict(self, choice: Choice, rate_qps: float, seeds: Sequence[int]) -> Verdict:
        """Return the latencies at a rate over all seeds together, and by bucket; `met` asks every seed."""
        loads, runs = zip(*(self.run(choice, rate_qps, seed) for seed in seeds), strict=True)
        latency = np.concatenate([run.finish - load.arrivals for load, run in zip(loads, runs, strict=True)])
        batches = np.concatenate([load.batches for load in loads])
        met = all(self.holds(load, run) for load, run in zip(loads, runs, strict=True))
        buckets = []
        for low, high in self.request.batches.buckets():
            part = latency[(batches >= low) & (batches <= high)]
            if part.size:
                good = percentile_us(part, self.request.percentile) <= self.request.slo_us
                p95, p99 = (percentile_us(part, p) / 1e3 for p in (95, 99))
                buckets.append(BucketResult(low, high, int(part.size), p95, p99, bool(good)))
        p50, p95, p99 = (percentile_us(latency, p) / 1e3 for p in (50, 95, 99))
        return Verdict(met, p50, p95, p99, tuple(buckets))


def percentile_us(latencies: NDArray[np.int64], percent: float) -> int:
    """Return a percentile by nearest rank: the least value that at least that share does not exceed."""
    rank = max(int(np.ceil(latencies.size * percent / 100 - 1e-9)), 1)
    return int(np.partition(latencies, rank - 1)[rank - 1])
