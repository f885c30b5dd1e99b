"""A plan with its proof: found on some seeds, confirmed on others, beside bound and baselines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from divvy.errors import InputError
from divvy.planners.slices.base import Choice, Request, SlicePlan, SlicePlanner, shares_runs
from divvy.planners.slices.bound import upper_bound
from divvy.planners.slices.homogeneous import Homogeneous
from divvy.planners.slices.registry import find_planner
from divvy.planners.slices.search import paris_variants
from divvy.sim.queries.judge import ReplayJudge, Verdict

#: Queries per seed: in a search of eight GPUs or more (fewer GPUs are cheap: up to four times as many),
#: and in the confirmation.
SEARCH_QUERIES: Final = 5_000
CONFIRM_QUERIES: Final = 12_000
#: The first seed of the confirmation; searches use small numbers.
_FRESH: Final = 1_000
_STEP: Final = 0.99
#: A finite stream may hold less work than its distribution: searches look so far above the bound.
_SLACK: Final = 1.1
_ALPHAS: Final = (0.8, 1.0, 1.25)
_BETAS: Final = (1.0, 1.5)


@dataclass(frozen=True, slots=True)
class Proof:
    """What replays say about a choice.

    Attributes:
        rate_qps: Found on the search seeds and met on every confirming seed; 0 if nothing is.
        verdict: Latencies at that rate on the confirming seeds; None at rate 0.
        per_seed: The largest rate of each confirming seed on its own.
        interval: 95% interval of their mean (Student), (0, 0) where nothing is met.
    """

    rate_qps: float
    verdict: Verdict | None
    per_seed: tuple[float, ...]
    interval: tuple[float, float]


@dataclass(frozen=True)
class Study:
    """The stage on which plans of one request are proved: judges and seeds.

    Attributes:
        request: Model, traffic, objective, GPUs.
        bound_qps: Upper bound on the rate.
        search: Judge of the searches.
        fresh: Judge of the confirmation.
        search_seeds: Seeds of the searches.
        fresh_seeds: Seeds of the confirmation.
    """

    request: Request
    bound_qps: float
    search: ReplayJudge
    fresh: ReplayJudge
    search_seeds: tuple[int, ...]
    fresh_seeds: tuple[int, ...]

    def prove(self, choice: Choice, near: float = 0.0) -> Proof:
        """Return the rate of a choice, found on the search seeds and confirmed on the fresh ones.

        Args:
            choice: Slices and rule.
            near: A rate near which to look first; 0 to look everywhere.
        """
        most = self.bound_qps * _SLACK
        found = 0.0
        if near > 0:
            found = self.search.rate(choice, self.search_seeds, near * 0.85, min(most, near * 1.2))
        if found <= 0:
            found = self.search.rate(choice, self.search_seeds, 0.0, most)
        if found <= 0:
            return Proof(0.0, None, (0.0,) * len(self.fresh_seeds), (0.0, 0.0))
        rate = found
        while not self.fresh.meets(choice, rate, self.fresh_seeds):
            rate *= _STEP
            if rate < found * 0.2:
                return Proof(0.0, None, (0.0,) * len(self.fresh_seeds), (0.0, 0.0))
        alone = tuple(
            self.fresh.rate(choice, (seed,), rate * (1 - 0.02), min(most, rate * 1.5)) or rate
            for seed in self.fresh_seeds
        )
        return Proof(rate, self.fresh.verdict(choice, rate, self.fresh_seeds), alone, interval(alone))

    def under(self, dispatcher: str) -> Study:
        """Return this stage under the bound of a rule: one that runs queries together has a higher one."""
        if not shares_runs(dispatcher):
            return self
        return replace(self, bound_qps=upper_bound(self.request, batching=True).rate_qps)

    def quick(self, choice: Choice, least: float = 0.0) -> float:
        """Return the rate on the first search seed if it is above `least`, else 0."""
        return self.search.rate(choice, self.search_seeds[:1], least, self.bound_qps * _SLACK)


def make_study(
    request: Request,
    seeds: int,
    *,
    queries: int = CONFIRM_QUERIES,
    arrivals: str = "poisson",
    gaps: NDArray[np.float64] | None = None,
) -> Study:
    """Return the stage for a request, under the bound for rules that run every query alone.

    Raises:
        InputError: If some batch fits on no slice, or no slice size of the SKU was measured.
    """
    if seeds < 1:
        raise InputError.one("seeds", f"{seeds} seeds", path="--seeds", allowed=">= 1")
    if not request.sizes:
        raise InputError.one(
            "profile-sizes",
            f"the profile of {request.profile.model} has no slice size of {request.sku.name}",
            path="--profile",
            allowed=", ".join(str(p.gpcs) for p in request.sku.base_profiles),
        )
    missing = [batch for batch in request.batches.batches if not request.runs_anywhere(batch)]
    if missing:
        largest = max(max(request.profile.batches(size), default=0) for size in request.sizes)
        raise InputError.one(
            "batch-too-large",
            f"batch {', '.join(map(str, missing[:3]))} of {request.profile.model} fits no slice",
            path="--batch",
            allowed=f"up to {largest}",
        )
    searched = SEARCH_QUERIES * max(1, min(4, 8 // request.gpus))
    return Study(
        request,
        upper_bound(request).rate_qps,
        ReplayJudge(request, min(searched, queries), arrivals, gaps),
        ReplayJudge(request, queries, arrivals, gaps),
        tuple(request.seed + i for i in range(seeds)),
        tuple(request.seed + _FRESH + i for i in range(seeds)),
    )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95% interval of the mean (Student); of a single value the value itself."""
    array = np.array(values, float)
    if array.size < 2:
        return float(array[0]), float(array[0])
    half = float(stdtrit(array.size - 1, 0.975)) * float(array.std(ddof=1)) / float(np.sqrt(array.size))
    return float(array.mean() - half), float(array.mean() + half)


def best_homogeneous(study: Study, rules: Iterable[str] = ("fifs", "jsq")) -> tuple[str, Choice]:
    """Return the best equal slices with the better of the rules, by name; the largest if none serves."""
    request, best, least = study.request, None, 0.0
    for size, rule in product(reversed(request.sizes), tuple(rules)):
        choice = Homogeneous(size).plan(request, study.search, rule).choice
        rate = study.quick(choice, least)
        if best is None or rate > least:
            best, least = (f"homogeneous:{size}+{rule}", choice), max(rate, least)
    if best is None:
        raise InputError.one("profile-sizes", "no slice size to try")
    return best


def best_paris(study: Study) -> tuple[str, Choice]:
    """Return the best PARIS + ELSA: every knee, rounding, alpha and beta, by name."""
    request, best, least = study.request, None, 0.0
    for planner in paris_variants(request):
        plan = planner.plan(request, study.search, "elsa")
        for alpha, beta in product(_ALPHAS, _BETAS):
            choice = replace(plan.choice, dispatcher=f"elsa:alpha={alpha:g},beta={beta:g}")
            rate = study.quick(choice, least) if choice.slices else 0.0
            if best is None or rate > least:
                name = f"paris:knee={planner.knee},rounding={planner.rounding}+{choice.dispatcher}"
                best, least = (name, choice), max(rate, least)
    if best is None:
        raise InputError.one("profile-sizes", "no slice size to try")
    return best


def plan_and_prove(study: Study, planner: SlicePlanner, dispatcher: str) -> tuple[SlicePlan, Proof]:
    """Return a planner's plan and its proof."""
    plan = planner.plan(study.request, study.search, dispatcher)
    return plan, study.prove(plan.choice, plan.rate_qps)


def never_worse(
    study: Study, plan: SlicePlan, proof: Proof, known: Sequence[tuple[str, Proof]]
) -> tuple[SlicePlan, Proof]:
    """Return the plan, or the known layout under its own rule that the confirming seeds put before it.

    A search sees few seeds; where those were lucky, the confirming ones have the last word, with a note.

    Args:
        study: The stage.
        plan: What the search found.
        proof: Its proof.
        known: Planner and rule (``homogeneous:3+fifs``), each with its proof on the same seeds.
    """
    name, best = max(known, key=lambda one: one[1].rate_qps)
    if best.rate_qps <= proof.rate_qps:
        return plan, proof
    planner, _, dispatcher = name.partition("+")
    other = find_planner(planner).plan(study.request, study.search, dispatcher)
    note = (
        f"taken instead: {name}, with {best.rate_qps:.1f} queries/s on the confirming seeds;"
        f" what the search had taken serves {proof.rate_qps:.1f} on them"
    )
    choice = replace(other.choice, dispatcher=dispatcher)
    return SlicePlan(other.layouts, choice, (note, *plan.explanation), best.rate_qps), best
