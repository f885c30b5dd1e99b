"""The contract of every slice planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from divvy.fleet.mig.profile import Layout, Sku
from divvy.perf.latency import INFEASIBLE, LatencyProfile
from divvy.perf.traffic import BatchDistribution


@dataclass(frozen=True)
class Request:
    """What is to be planned.

    Attributes:
        sku: The kind of GPU.
        gpus: How many.
        profile: Latencies of the model.
        batches: Distribution of batch sizes.
        slo_us: Objective from arrival to end, microseconds.
        percentile: Share of queries that must meet it, percent.
        per_bucket: Whether every batch bucket must meet it on its own.
        seed: Seeds planners that draw.
    """

    sku: Sku
    gpus: int
    profile: LatencyProfile
    batches: BatchDistribution
    slo_us: int
    percentile: float = 95.0
    per_bucket: bool = False
    seed: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the slice sizes that the SKU has and the profile measured, ascending."""
        offered = {profile.gpcs for profile in self.sku.base_profiles}
        return tuple(size for size in self.profile.sizes if size in offered)

    def time_us(self, gpcs: int, batch: int) -> int:
        """Return the time of a batch on a slice size, or `INFEASIBLE`."""
        return self.profile.latency_us(gpcs, batch)

    def runs_anywhere(self, batch: int) -> bool:
        """Return whether some slice size can run a batch."""
        return any(self.time_us(size, batch) != INFEASIBLE for size in self.sizes)


def shares_runs(dispatcher: str) -> bool:
    """Return whether a dispatch rule, as on the command line, may run several queries at once."""
    options = (part.partition("=") for part in dispatcher.partition(":")[2].split(","))
    return any(name == "batching" and float(value) > 0 for name, _, value in options)


@dataclass(frozen=True, slots=True)
class Choice:
    """How to serve: slice sizes, dispatch rule, prices.

    Attributes:
        slices: Compute slices of every slice of the fleet, ascending.
        dispatcher: Rule with its parameters, as on the command line.
        price: Price per slice size, for rules that weigh; empty for the compute slices themselves.
    """

    slices: tuple[int, ...]
    dispatcher: str
    price: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """A layout for every GPU, and why.

    Attributes:
        layouts: One legal layout per GPU.
        choice: How the slices are to be served.
        explanation: What was considered and why this was taken, one line each.
        rate_qps: What the planner's own search found, 0 for planners that do not search.
    """

    layouts: tuple[Layout, ...]
    choice: Choice
    explanation: tuple[str, ...]
    rate_qps: float = 0.0


class Judge(Protocol):
    """Replays a choice; planners that search are given one, so that they need no simulator."""

    def meets(self, choice: Choice, rate_qps: float, seeds: Sequence[int]) -> bool:
        """Return whether the objective holds at a rate, on every seed."""

    def rate(self, choice: Choice, seeds: Sequence[int], least: float, most: float) -> float:
        """Return the largest rate at which the objective holds on every seed; 0 if not even at `least`."""


class SlicePlanner(Protocol):
    """Decides how to cut a number of equal GPUs for one model.

    `plan` is a pure function of its arguments: the same request gives the same plan.
    """

    @property
    def name(self) -> str:
        """Return the name in the registry."""

    def plan(self, request: Request, judge: Judge, dispatcher: str) -> SlicePlan:
        """Return the layouts and how to serve them."""
