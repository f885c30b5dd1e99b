"""What live servers are compared on: cases, best layouts by replay, and the rates expected."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from divvy.cli.slice_inputs import DEFAULT_BATCH, load_batches, make_request
from divvy.fleet.mig.profile import Layout
from divvy.fleet.mig.skus import find_sku
from divvy.perf.fitted import fitted_profile
from divvy.perf.latency import slowed
from divvy.planners.slices.base import Choice, Request, SlicePlan
from divvy.planners.slices.registry import find_planner
from divvy.sim.queries.kernel import Ints
from divvy.sim.queries.strict import ROUND_ROBIN, StrictJudge

_SKU: Final = "A100-80GB"
_FACTOR: Final = 1.5
_SEARCH_QUERIES: Final = 4_000
#: First seed of the live runs; layouts are chosen on seed 0, and what is expected is found on seed 50.
FIRST_SEED: Final = 1_000
_EXPECTED: Final = (50,)


@dataclass(frozen=True, slots=True)
class Case:
    """A model on a fleet.

    Attributes:
        model: A fitted profile.
        gpus: How many GPUs are cut.
        scale: All times of the profile times this, so that the machine is not the limit.
    """

    model: str
    gpus: int
    scale: float

    @property
    def name(self) -> str:
        """Return the name of the case in reports."""
        return f"{self.model} x {self.scale:g}, {self.gpus} GPUs"


#: bert and densenet201 are slow enough for this machine as they are; resnet50 is slowed down.
CASES: Final = (Case("bert", 2, 1.0), Case("densenet201", 2, 1.0), Case("resnet50", 2, 3.0))


@dataclass(frozen=True, slots=True)
class Deployed:
    """Layouts and how to serve them, with the rate that the replay expects.

    Attributes:
        layouts: One per GPU.
        choice: Slices and rule.
        expected_qps: Largest rate by replay; 0 where nothing meets the objective.
    """

    layouts: tuple[Layout, ...]
    choice: Choice
    expected_qps: float

    @property
    def text(self) -> str:
        """Return the slices as text, such as ``2 x 7g``."""
        counts = sorted(Counter(self.choice.slices).items(), reverse=True)
        return " + ".join(f"{count} x {size}g" for size, count in counts)


class Stage:
    """One case: its objective, its traffic, and where each rule serves best.

    Args:
        case: The case.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.profile = slowed(fitted_profile(case.model), case.scale)
        self._known: dict[tuple[str, bool], Deployed] = {}

    @cached_property
    def request(self) -> Request:
        """Return what is asked for: p95 of every bucket; the judge adds p99 of all."""
        batches = load_batches(DEFAULT_BATCH)
        return make_request(
            self.profile, find_sku(_SKU), self.case.gpus, batches, _FACTOR, None, 95.0, per_bucket=True
        )

    @cached_property
    def judge(self) -> StrictJudge:
        """Return the judge of layouts."""
        return StrictJudge(self.request, _SEARCH_QUERIES)

    def deploy(self, rule: str, *, equal: bool) -> Deployed:
        """Return where a rule serves best.

        Args:
            rule: A dispatch rule, or `ROUND_ROBIN`.
            equal: Whether all slices must be equal; else every legal layout is tried.
        """
        if (rule, equal) not in self._known:
            plan = self._plan(rule, equal=equal)
            most = max(plan.rate_qps, 1.0) * 3
            rate = self.judge.rate(plan.choice, _EXPECTED, 0.0, most) if plan.rate_qps > 0 else 0.0
            self._known[rule, equal] = Deployed(plan.layouts, plan.choice, rate)
        return self._known[rule, equal]

    def replayed(self, choice: Choice, rate_qps: float, seed: int, queries: int) -> Ints:
        """Return the latencies in microseconds of a live trial's arrivals, as the replay has them."""
        load, run = StrictJudge(self.request, queries).run(choice, rate_qps, seed)
        return run.finish - load.arrivals

    def _plan(self, rule: str, *, equal: bool) -> SlicePlan:
        """Return the plan with the highest rate under a rule.

        Round robin is tried on equal slices only: on unequal ones the slowest decides.
        """
        equally = find_planner("homogeneous").plan(self.request, self.judge, rule)
        if equal or rule == ROUND_ROBIN:
            return equally
        planner = find_planner("divvy" if rule.partition(":")[0] == "divvy" else "exhaustive")
        plan = planner.plan(self.request, self.judge, rule)
        return plan if plan.rate_qps >= equally.rate_qps else equally
