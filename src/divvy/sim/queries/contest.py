"""Every planner x every dispatcher on the same streams: rates, wins and losses against equal slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, log
from typing import Any, Final

import numpy as np

from divvy.planners.slices.base import SlicePlan
from divvy.planners.slices.registry import find_planner
from divvy.sim.queries.report import layout_rows, verdict_rows
from divvy.sim.queries.study import Proof, Study, best_homogeneous, interval, plan_and_prove

#: Two rates within this share of one another are a draw.
_DRAW: Final = 0.01


@dataclass(frozen=True)
class Case:
    """One planner with one dispatcher on one model and number of GPUs, with its plan and proof."""

    model: str
    gpus: int
    planner: str
    dispatcher: str
    study: Study
    plan: SlicePlan
    proof: Proof


@dataclass(frozen=True)
class Contest:
    """Everything compared, and the best equal slices with the better of fifs and jsq per model and GPUs."""

    cases: tuple[Case, ...]
    baselines: dict[tuple[str, int], tuple[str, Proof]]


def hold(
    stages: Sequence[Callable[[], Study]], planners: Sequence[str], dispatchers: Sequence[str]
) -> Iterator[tuple[Study, tuple[str, Proof], list[Case]]]:
    """Yield, stage by stage, the baseline and every planner x dispatcher on it."""
    for make in stages:
        study = make()
        name, choice = best_homogeneous(study)
        baseline = name, study.prove(choice)
        request, cases = study.request, []
        for planner, dispatcher in product(planners, dispatchers):
            mine = study.under(dispatcher)
            plan, proof = plan_and_prove(mine, find_planner(planner), dispatcher)
            model = request.profile.model
            cases.append(Case(model, request.gpus, planner, dispatcher, mine, plan, proof))
        yield study, baseline, cases


def gather(
    stages: Sequence[Callable[[], Study]],
    planners: Sequence[str],
    dispatchers: Sequence[str],
    done: Callable[[], None] = lambda: None,
) -> Contest:
    """Return the whole contest; `done` is called after each stage."""
    cases: list[Case] = []
    baselines: dict[tuple[str, int], tuple[str, Proof]] = {}
    for study, baseline, found in hold(stages, planners, dispatchers):
        baselines[study.request.profile.model, study.request.gpus] = baseline
        cases += found
        done()
    return Contest(tuple(cases), baselines)


def ratio(case: Proof, other: Proof) -> tuple[float, tuple[float, float]] | None:
    """Return the mean ratio seed by seed with its 95% interval; None where the other is zero."""
    pairs = [(a, b) for a, b in zip(case.per_seed, other.per_seed, strict=True) if b > 0]
    if not pairs or len(pairs) < len(other.per_seed):
        return None
    values = np.array([a / b for a, b in pairs])
    return float(values.mean()), interval(values.tolist())


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean; 0 if a value is 0, and of nothing."""
    if not values or min(values) <= 0:
        return 0.0
    return exp(sum(log(value) for value in values) / len(values))


def contest_document(contest: Contest) -> dict[str, Any]:
    """Return the document ``divvy.slices.compare/1``: a row per case, and wins and losses."""
    return {
        "schema": "divvy.slices.compare/1",
        "rows": [_row(contest, case) for case in contest.cases],
        "baselines": [
            {"model": model, "gpus": gpus, "name": name, "qps": round(proof.rate_qps, 3)}
            for (model, gpus), (name, proof) in sorted(contest.baselines.items())
        ],
        "summary": summary(contest),
    }


def _row(contest: Contest, case: Case) -> dict[str, Any]:
    base = contest.baselines[case.model, case.gpus][1]
    against = ratio(case.proof, base)
    bound = case.study.bound_qps
    return {
        "model": case.model,
        "gpus": case.gpus,
        "planner": case.planner,
        "dispatcher": case.dispatcher,
        "used_dispatcher": case.plan.choice.dispatcher,
        "slo_ms": case.study.request.slo_us / 1e3,
        "rate_qps": round(case.proof.rate_qps, 3),
        "interval": [round(value, 3) for value in case.proof.interval],
        "bound_qps": round(bound, 3),
        "of_bound": round(case.proof.rate_qps / bound, 4) if bound > 0 else 0.0,
        "baseline_qps": round(base.rate_qps, 3),
        "against_baseline": None if against is None else round(against[0], 4),
        "against_baseline_interval": None if against is None else [round(v, 4) for v in against[1]],
        "outcome": outcome(case, contest),
        "layout": layout_rows(case.plan.layouts),
        "slices": {str(size): count for size, count in sorted(Counter(case.plan.choice.slices).items())},
        **verdict_rows(case.proof.verdict),
    }


def outcome(case: Case, contest: Contest) -> str:
    """Return win, loss or draw against the best equal slices, or nothing where both serve nothing."""
    mine, base = case.proof.rate_qps, contest.baselines[case.model, case.gpus][1].rate_qps
    if mine <= 0 and base <= 0:
        return "nothing"
    if abs(mine - base) <= _DRAW * max(mine, base):
        return "draw"
    return "win" if mine > base else "loss"


def summary(contest: Contest) -> list[dict[str, Any]]:
    """Return wins, losses and means of every planner x dispatcher over all models and numbers of GPUs.

    Geometric means are over the cases with a rate above zero; the others are counted as ``zero``.
    """
    rows = []
    for way in dict.fromkeys((case.planner, case.dispatcher) for case in contest.cases):
        cases = [case for case in contest.cases if (case.planner, case.dispatcher) == way]
        counts = Counter(outcome(case, contest) for case in cases)
        ratios = [
            case.proof.rate_qps / contest.baselines[case.model, case.gpus][1].rate_qps
            for case in cases
            if contest.baselines[case.model, case.gpus][1].rate_qps > 0
        ]
        above = [value for value in ratios if value > 0]
        bounds = [case.proof.rate_qps / case.study.bound_qps for case in cases if case.study.bound_qps > 0]
        rows.append(
            {
                "planner": way[0],
                "dispatcher": way[1],
                "cases": len(cases),
                "wins": counts["win"],
                "losses": counts["loss"],
                "draws": counts["draw"],
                "zero": sum(case.proof.rate_qps <= 0 for case in cases),
                "mean_against_baseline": round(sum(ratios) / len(ratios), 4) if ratios else None,
                "geometric_mean_against_baseline": round(geometric_mean(above), 4) if above else None,
                "geometric_mean_of_bound": round(geometric_mean([b for b in bounds if b > 0]), 4)
                if any(bounds)
                else None,
            }
        )
    return rows
