"""The upper bound on the rate: the best legal layout with stable queues, as a mixed integer program.

No schedule serves more: every query needs at least its time on some slice, slices have so much time, and in
every bucket the required share of queries must sit on slices that are fast enough even without any wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import coo_array

from divvy.perf.latency import INFEASIBLE
from divvy.planners.slices.base import Request
from divvy.planners.slices.packing import Counts, shapes, sizes_of


@dataclass(frozen=True, slots=True)
class BoundResult:
    """An upper bound and the layout at which it is (nearly) reached.

    Attributes:
        rate_qps: No schedule on any legal layout serves more.
        per_gpu: Numbers of slices of each GPU at that optimum; empty where nothing can be served.
    """

    rate_qps: float
    per_gpu: tuple[Counts, ...]


@dataclass(frozen=True, slots=True)
class _Flow:
    """One variable: queries per second of a batch on a slice size.

    Attributes:
        batch: Index of the batch.
        size: Index of the slice size.
        seconds: Time of the slice that one query takes.
        timely: Whether the query can be in time there.
    """

    batch: int
    size: int
    seconds: float
    timely: bool


def _flows(request: Request, margin: float, *, batching: bool) -> list[_Flow]:
    """Return the possible flows; `margin` shortens the objective (0 for the bound itself)."""
    limit = request.slo_us * (1 - margin)
    flows = []
    for b, batch in enumerate(request.batches.batches):
        for k, size in enumerate(sizes_of(request.sku)):
            own = request.time_us(size, batch)
            if own == INFEASIBLE:
                continue
            seconds, fastest = float(own), own
            if batching:
                runs = [
                    (larger, request.time_us(size, larger))
                    for larger in range(batch, max(request.profile.batches(size), default=0) + 1)
                ]
                fit = [(larger, time) for larger, time in runs if time != INFEASIBLE]
                seconds = min(time * batch / larger for larger, time in fit)
                fastest = min(time for _, time in fit)
            flows.append(_Flow(b, k, seconds / 1e6, fastest <= limit))
    return flows


def _groups(request: Request) -> list[list[int]]:
    """Return the batches (by index) of every group whose percentile must hold."""
    batches = request.batches.batches
    if not request.per_bucket:
        return [list(range(len(batches)))]
    return [
        [i for i, batch in enumerate(batches) if low <= batch <= high]
        for low, high in request.batches.buckets()
    ]


def _rows(request: Request, flows: list[_Flow], groups: list[list[int]]) -> tuple[Any, Any, Any]:
    """Return the matrices of balance, capacity (by size) and timeliness; column 0 is the rate."""
    weights = [weight for _, weight in request.batches.weights]
    share = request.percentile / 100
    of = {b: g for g, members in enumerate(groups) for b in members}
    wide = 1 + len(flows)
    balance = np.zeros((len(weights), wide))
    capacity = np.zeros((len(sizes_of(request.sku)), wide))
    timely = np.zeros((len(groups), wide))
    balance[:, 0] = [-weight for weight in weights]
    for b, weight in enumerate(weights):
        timely[of[b], 0] -= share * weight
    for column, flow in enumerate(flows, start=1):
        balance[flow.batch, column] = 1
        capacity[flow.size, column] = flow.seconds
        if flow.timely:
            timely[of[flow.batch], column] = 1
    return balance, capacity, timely


def upper_bound(request: Request, *, batching: bool = False, margin: float = 0.0) -> BoundResult:
    """Return the largest rate of any schedule on any legal layout of the request's GPUs.

    Args:
        request: What is asked.
        batching: Whether queries may share a run: then a query is charged its share of the best larger batch.
        margin: Share of the objective kept for waiting; 0 for the bound, more to guide a search.
    """
    if not all(request.runs_anywhere(batch) for batch in request.batches.batches):
        return BoundResult(0.0, ())
    flows, groups, options = _flows(request, margin, batching=batching), _groups(request), shapes(request.sku)
    balance, capacity, timely = _rows(request, flows, groups)
    wide, extra = balance.shape[1], len(options)
    offers = np.array(options, float).T  # by size and option

    def pad(matrix: Any, right: Any) -> Any:
        return coo_array(np.hstack([matrix, right]))

    blank = np.zeros
    rows = [
        LinearConstraint(pad(balance, blank((balance.shape[0], extra))), 0, 0),
        LinearConstraint(pad(capacity, -offers), -np.inf, 0),
        LinearConstraint(pad(timely, blank((timely.shape[0], extra))), 0, np.inf),
        LinearConstraint(pad(blank((1, wide)), np.ones((1, extra))), 0, request.gpus),
    ]
    cost = blank(wide + extra)
    cost[0] = -1
    whole = np.concatenate([blank(wide), np.ones(extra)])
    limits = Bounds(0, np.concatenate([np.full(wide, np.inf), np.full(extra, request.gpus)]))
    answer = milp(cost, constraints=rows, integrality=whole, bounds=limits, options={"mip_rel_gap": 1e-3})
    if answer.x is None:
        return BoundResult(0.0, ())
    dual = answer.fun if answer.mip_dual_bound is None else answer.mip_dual_bound
    best = max(-float(answer.fun or 0.0), -float(dual or 0.0))
    per_gpu = tuple(
        option for option, count in zip(options, answer.x[wide:], strict=True) for _ in range(round(count))
    )
    return BoundResult(best, per_gpu)


def layout_bound(
    request: Request, counts: Counts, *, batching: bool = False, margin: float = 0.0
) -> tuple[float, dict[int, float]]:
    """Return the largest rate on given slices, and what a second of each slice size is worth there.

    The prices are the duals of the sizes' capacities, scaled so that the dearest per compute slice is 1 per
    compute slice; an idle size keeps a small price, so that work still prefers the smaller of two idle ones.
    """
    flows, groups = _flows(request, margin, batching=batching), _groups(request)
    flows = [flow for flow in flows if counts[flow.size]]
    if len({flow.batch for flow in flows}) < len(request.batches.batches):
        return 0.0, {}
    balance, capacity, timely = _rows(request, flows, groups)
    cost = np.zeros(balance.shape[1])
    cost[0] = -1
    answer = linprog(
        cost,
        A_ub=np.vstack([capacity, -timely]),
        b_ub=np.concatenate([np.array(counts, float), np.zeros(timely.shape[0])]),
        A_eq=balance,
        b_eq=np.zeros(balance.shape[0]),
        method="highs",
    )
    if answer.x is None:
        return 0.0, {}
    sizes = sizes_of(request.sku)
    worth = [max(0.0, -float(m)) for m in answer.ineqlin.marginals[: len(sizes)]]
    dearest = max((w / size for w, size in zip(worth, sizes, strict=True)), default=0.0) or 1.0
    prices = {
        size: max(w / dearest, 0.02 * size)
        for size, w, count in zip(sizes, worth, counts, strict=True)
        if count
    }
    return -float(answer.fun or 0.0), prices
