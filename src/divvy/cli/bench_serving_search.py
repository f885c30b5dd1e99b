"""The largest rate that a live contender serves within the objective: real requests, a grid of rates."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Final

import numpy as np

from divvy.adapters.lab.lab import Running
from divvy.adapters.load.openloop import fire_now
from divvy.adapters.load.volley import Plan, Volley
from divvy.cli.bench_kept import Figures, Kept
from divvy.cli.bench_serving_stage import Stage
from divvy.sim.queries.arrivals import make_stream
from divvy.sim.queries.judge import percentile_us
from divvy.sim.queries.strict import within

_DRAIN_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.05
#: A search gives up after so many steps of its grid below where it began.
_LOWEST: Final = 48

#: Sends the queries of a plan to a contender.
Fire = Callable[[Plan], Volley]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: seeds, queries of a trial, the step of the grid of rates, trials at a time."""

    seeds: int
    queries: int
    step: float
    lanes: int


def make_plan(stage: Stage, rate_qps: float, seed: int, queries: int, *, whole: bool = False) -> Plan:
    """Return the queries of a trial: the same seed gives the same queries to every contender.

    Args:
        stage: The case.
        rate_qps: Queries per second.
        seed: Of the stream.
        queries: How many.
        whole: Whether to send all of them, even when the objective cannot be met any more.
    """
    request = stage.request
    load = make_stream(request.batches, queries, seed).at(rate_qps)
    most = -1 if whole else int(queries * 0.01)
    path = f"/v2/models/{request.profile.model}/infer"
    return Plan(load.arrivals, load.batches, path, slo_us=request.slo_us, most_late=most)


def figures_of(stage: Stage, plan: Plan, volley: Volley) -> dict[str, float]:
    """Return what a trial shows: percentiles in milliseconds, whether the objective is met (1 or 0)."""
    request, good = stage.request, volley.good
    met = bool(good.all()) and within(
        volley.latency_us, plan.batches, request.slo_us, request.batches.buckets()
    )
    figures = {"met": float(met), "failed": float((~good).sum()), "queries": float(good.size)}
    if good.any():
        latency = volley.latency_us[good]
        figures |= {f"p{p}_ms": percentile_us(latency, p) / 1e3 for p in (50, 95, 99)}
        figures["generator_late_p99_ms"] = float(np.percentile(volley.late_us[good], 99)) / 1e3
    return figures


def await_idle(running: Sequence[Running]) -> None:
    """Wait until no slice has a query any more, so that a trial does not inherit from the one before."""
    end = time.monotonic() + _DRAIN_SECONDS
    for one in running:
        ear = HTTPConnection("127.0.0.1", one.port, timeout=2)
        while time.monotonic() < end:
            ear.request("GET", "/metrics")
            text = ear.getresponse().read().decode()
            if text.rpartition("divvy_lab_inflight{")[2].partition("} ")[2].strip() == "0":
                break
            time.sleep(_LOOK_SECONDS)
        ear.close()


class Trials:
    """Runs trials and keeps their figures.

    Args:
        kept: Where figures are kept.
        effort: How much is measured.
        end: Moment (`time.monotonic`) after which no trial is begun.
    """

    def __init__(self, kept: Kept, effort: Effort, end: float) -> None:
        self._kept, self.effort, self._end = kept, effort, end

    @property
    def over(self) -> str:
        """Return that the time is up; empty while it is not."""
        return "" if time.monotonic() < self._end else "not measured in the time given"

    def one(
        self, stage: Stage, who: str, slices: Sequence[int], rate_qps: float, seed: int, fire: Fire
    ) -> Figures | None:
        """Return the figures of a trial; None where the time was up."""
        key = ("trial", stage.case.name, who, list(slices), round(rate_qps, 4), seed, self.effort.queries)
        found = self._kept.find(key)
        if found is None and time.monotonic() < self._end:
            plan = make_plan(stage, rate_qps, seed, self.effort.queries)
            found = figures_of(stage, plan, fire(plan))
            self._kept.store(key, found)
        return found

    def largest(
        self, stage: Stage, who: str, slices: Sequence[int], near_qps: float, seed: int, fire: Fire
    ) -> float | None:
        """Return the largest rate of the grid that meets the objective; None where the time was up."""
        lost = False

        def meets(index: int) -> bool:
            nonlocal lost
            found = self.one(stage, who, slices, near_qps * self.effort.step**index, seed, fire)
            lost = lost or found is None
            return found is not None and found["met"] == 1.0

        best = climb(meets)
        if lost:
            return None
        return 0.0 if best is None else near_qps * self.effort.step**best


def climb(meets: Callable[[int], bool]) -> int | None:
    """Return the largest index that holds, None if none from `-_LOWEST` on; what holds at one holds below.

    Begins at 0, moves away by doubling steps, then halves.
    """
    stride = 1
    if meets(0):
        low, high = 0, None
        while high is None:
            if meets(low + stride):
                low, stride = low + stride, stride * 2
            else:
                high = low + stride
    else:
        high, low = 0, -1
        while not meets(low):
            high, stride = low, stride * 2
            low = max(low - stride, -_LOWEST)
            if low == high:
                return None
    while high - low > 1:
        middle = (low + high) // 2
        if meets(middle):
            low = middle
        else:
            high = middle
    return low


def sender(url: str, running: Sequence[Running]) -> Fire:
    """Return what sends a plan to a URL once its servers are idle."""

    def fire(plan: Plan) -> Volley:
        await_idle(running)
        return fire_now(url, plan, patience_seconds=3.0)

    return fire
