"""Plans as documents: the JSON of `divvy slices plan` and `compare`, and queries one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from divvy.fleet.mig.profile import Layout, Sku
from divvy.planners.slices.base import Choice, SlicePlan
from divvy.sim.queries.judge import Verdict
from divvy.sim.queries.study import Proof, Study


def layout_rows(layouts: Sequence[Layout]) -> list[dict[str, Any]]:
    """Return the layouts as JSON: one entry per GPU, slices by start."""
    return [
        {"gpu": gpu, "slices": [{"profile": p.profile, "start": p.start} for p in layout]}
        for gpu, layout in enumerate(layouts)
    ]


def slice_order(sku: Sku, layouts: Sequence[Layout]) -> list[dict[str, Any]]:
    """Return where the slices of a choice (ascending size) lie, in its order."""
    found = [
        (sku.profile(p.profile).gpcs, gpu, p.start, p.profile)
        for gpu, layout in enumerate(layouts)
        for p in layout
    ]
    return [{"gpu": gpu, "start": start, "profile": name} for _, gpu, start, name in sorted(found)]


def verdict_rows(verdict: Verdict | None) -> dict[str, Any]:
    """Return latencies as JSON; None where nothing was met."""
    if verdict is None:
        return {"p50_ms": None, "p95_ms": None, "p99_ms": None, "buckets": []}
    return {
        "p50_ms": round(verdict.p50_ms, 3),
        "p95_ms": round(verdict.p95_ms, 3),
        "p99_ms": round(verdict.p99_ms, 3),
        "buckets": [
            {
                "batches": [b.low, b.high],
                "p95_ms": round(b.p95_ms, 3),
                "p99_ms": round(b.p99_ms, 3),
                "met": b.met,
                "queries": b.queries,
            }
            for b in verdict.buckets
        ],
    }


def plan_document(
    study: Study,
    plan: SlicePlan,
    proof: Proof,
    planner: str,
    homogeneous: tuple[str, Proof],
    paris: tuple[str, Proof],
) -> dict[str, Any]:
    """Return the document ``divvy.slices.plan/1``."""
    request, bound = study.request, study.bound_qps
    return {
        "schema": "divvy.slices.plan/1",
        "sku": request.sku.name,
        "gpus": request.gpus,
        "model": request.profile.model,
        "planner": planner,
        "dispatcher": plan.choice.dispatcher,
        "prices": {str(size): price for size, price in plan.choice.price},
        "slo_ms": request.slo_us / 1e3,
        "percentile": request.percentile,
        "per_bucket": request.per_bucket,
        "batches": {str(batch): round(weight, 6) for batch, weight in request.batches.weights},
        "layout": layout_rows(plan.layouts),
        "rate_qps": round(proof.rate_qps, 3),
        **verdict_rows(proof.verdict),
        "bound_qps": round(bound, 3),
        "of_bound": round(proof.rate_qps / bound, 4) if bound > 0 else 0.0,
        "baseline": {"best_homogeneous": homogeneous[0], "qps": round(homogeneous[1].rate_qps, 3)},
        "paris_qps": round(paris[1].rate_qps, 3),
        "paris": paris[0],
        "seeds": {"search": list(study.search_seeds), "confirm": list(study.fresh_seeds)},
        "intervals": {
            name: [round(value, 3) for value in one.interval]
            for name, one in (("rate_qps", proof), ("baseline_qps", homogeneous[1]), ("paris_qps", paris[1]))
        },
        "per_seed_qps": [round(rate, 3) for rate in proof.per_seed],
        "queries_per_seed": study.fresh.queries,
        "explanation": list(plan.explanation),
    }


def event_lines(
    study: Study,
    choice: Choice,
    layouts: Sequence[Layout],
    rate_qps: float,
    case: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """Yield one JSON line per query of the first confirming seed at a rate; times in seconds from the start.

    A query that no slice could run has no slice, start and finish.
    """
    if rate_qps <= 0:
        return
    load, run = study.fresh.run(choice, rate_qps, study.fresh_seeds[0])
    where = slice_order(study.request.sku, layouts)
    columns = zip(
        load.arrivals.tolist(),
        load.batches.tolist(),
        run.chosen.tolist(),
        run.start.tolist(),
        run.finish.tolist(),
        strict=True,
    )
    for q, (arrival, batch, chosen, start, finish) in enumerate(columns):
        served = chosen >= 0
        yield json.dumps(
            {
                **(case or {}),
                "q": q,
                "arrival": arrival / 1e6,
                "batch": batch,
                "slice": where[chosen] if served else None,
                "start": start / 1e6 if served else None,
                "finish": finish / 1e6 if served else None,
            }
        )
