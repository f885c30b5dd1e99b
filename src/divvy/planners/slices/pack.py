"""Several models on one fleet: fewest GPUs, or most headroom, as integer programs over slice configurations.

Every slice serves one model with 1..n processes; a process runs what waits, up to a batch limit. A program
chooses numbers of slices per configuration under the placement rules; a replay decides whether the objectives
hold, and tells the program which model needs more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from divvy.fleet.mig.profile import Sku
from divvy.perf.latency import INFEASIBLE, LatencyProfile
from divvy.planners.slices.packing import Counts, shapes, sizes_of

#: Work of a program, in nodes: a plan does not depend on the machine; the time is a last resort.
_NODES: Final = 400
_SECONDS: Final = 60.0
#: More headroom is not looked for: such a fleet is far too large, and stays uncut beyond it.
_MOST_HEADROOM: Final = 100.0


@dataclass(frozen=True)
class Demand:
    """What one model must serve: queries of size 1, which the server may batch.

    Attributes:
        model: Name.
        profile: Its latencies.
        rate_qps: Queries per second.
        slo_us: Objective over waiting for a batch, queue and run, microseconds.
        percentile: Share of queries that must meet it, percent.
    """

    model: str
    profile: LatencyProfile
    rate_qps: float
    slo_us: int
    percentile: float = 95.0


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    """How a slice serves a model.

    Attributes:
        demand: Index of the model's demand.
        size: Compute slices.
        processes: Server processes that share the slice.
        batch: Most queries in one run of one process.
        capacity_qps: Queries per second of the whole slice at full batches.
    """

    demand: int
    size: int
    processes: int
    batch: int
    capacity_qps: float


@dataclass(frozen=True, slots=True)
class Packing:
    """What a program chose.

    Attributes:
        slices: Configuration to number of slices.
        per_gpu: Numbers of slices of each GPU, by size; at least those of `slices`.
        headroom: Capacity over (weighted) rate of the tightest model.
    """

    slices: tuple[tuple[Configuration, int], ...]
    per_gpu: tuple[Counts, ...]
    headroom: float


def best_batch(profile: LatencyProfile, size: int, processes: int, limit_us: float) -> tuple[int, float]:
    """Return the batch with the highest throughput in a run of at most `limit_us`, and the throughput."""
    best, rate = 0, 0.0
    for batch in range(1, max(profile.batches(size, processes), default=0) + 1):
        time = profile.latency_us(size, batch, processes)
        if time == INFEASIBLE or time > limit_us:
            continue
        here = batch * processes * 1e6 / time
        if here > rate * (1 + 1e-9):
            best, rate = batch, here
    return best, rate


def configurations(sku: Sku, demands: Sequence[Demand], shares: Sequence[float]) -> list[Configuration]:
    """Return every configuration worth having; a run may take the model's share of its objective."""
    found = []
    for index, demand in enumerate(demands):
        for size in sizes_of(sku):
            for processes in demand.profile.processes(size):
                batch, rate = best_batch(demand.profile, size, processes, demand.slo_us * shares[index])
                if batch:
                    found.append(Configuration(index, size, processes, batch, rate))
    return _undominated(found)


def _undominated(found: list[Configuration]) -> list[Configuration]:
    """Keep, per model and size, the configuration with the highest capacity and those nearly as good.

    A smaller batch with 97% of the capacity waits less: it is kept too.
    """
    kept = []
    for one in found:
        rivals = [c for c in found if (c.demand, c.size) == (one.demand, one.size)]
        most = max(c.capacity_qps for c in rivals)
        if one.capacity_qps >= 0.97 * most:
            better = [c for c in rivals if c.batch < one.batch and c.capacity_qps >= one.capacity_qps]
            if not better:
                kept.append(one)
    return kept


def _solve(
    sku: Sku,
    demands: Sequence[Demand],
    options: Sequence[Configuration],
    weights: Sequence[float],
    gpus: int | None,
) -> tuple[Any, list[Counts]]:
    """Solve for the fewest GPUs (`gpus` None) or for the most headroom on a number of GPUs.

    Columns: slices by configuration, GPUs by shape, headroom.
    """
    shape_list, sizes = list(shapes(sku)), sizes_of(sku)
    n, m = len(options), len(shape_list)
    room = np.zeros((len(sizes), n + m + 1))
    serve = np.zeros((len(demands), n + m + 1))
    for column, option in enumerate(options):
        room[sizes.index(option.size), column] = -1
        serve[option.demand, column] = option.capacity_qps / demands[option.demand].rate_qps
    room[:, n : n + m] = np.array(shape_list, float).T
    serve[:, -1] = [-weight for weight in weights]
    fleet = np.zeros((1, n + m + 1))
    fleet[0, n : n + m] = 1
    cost = np.zeros(n + m + 1)
    low, high = np.zeros(n + m + 1), np.full(n + m + 1, np.inf)
    if gpus is None:
        cost[n : n + m] = 1
        cost[:n] = 1e-4  # of equal numbers of GPUs, the one with fewer slices
        low[-1] = high[-1] = 1
    else:
        cost[-1] = -1
        high[-1] = _MOST_HEADROOM
    rows = [
        LinearConstraint(coo_array(room), 0, np.inf),
        LinearConstraint(coo_array(serve), 0, np.inf),
        LinearConstraint(coo_array(fleet), 0, np.inf if gpus is None else gpus),
    ]
    whole = np.ones(n + m + 1, np.int64)
    whole[-1] = 0
    answer = milp(
        cost,
        constraints=rows,
        integrality=whole,
        bounds=Bounds(low, high),
        options={"mip_rel_gap": 0.01, "node_limit": _NODES, "time_limit": _SECONDS},
    )
    return answer, shape_list


def pack(
    sku: Sku,
    demands: Sequence[Demand],
    options: Sequence[Configuration],
    weights: Sequence[float],
    gpus: int | None = None,
) -> Packing | None:
    """Return the fewest GPUs whose capacity covers every weighted rate, or the most headroom on `gpus`.

    None if no packing covers the rates.
    """
    if {option.demand for option in options} != set(range(len(demands))):
        return None
    answer, shape_list = _solve(sku, demands, options, weights, gpus)
    if answer.x is None:
        return None
    n = len(options)
    counts = [round(value) for value in answer.x[: n + len(shape_list)]]
    slices = tuple((option, count) for option, count in zip(options, counts[:n], strict=True) if count)
    per_gpu = tuple(shape for shape, count in zip(shape_list, counts[n:], strict=True) for _ in range(count))
    return Packing(slices, per_gpu, float(answer.x[-1]))


def lower_bound_gpus(sku: Sku, demands: Sequence[Demand]) -> int:
    """Return a number of GPUs that any serving needs: full batches, no waits, the late share anywhere.

    0 if some demand cannot be met at all.
    """
    rows: list[tuple[int, int, float, float]] = []  # demand, size, timely and any capacity of a slice
    for index, demand in enumerate(demands):
        for size in sizes_of(sku):
            timely = anyhow = 0.0
            for processes in demand.profile.processes(size):
                timely = max(timely, best_batch(demand.profile, size, processes, demand.slo_us)[1])
                anyhow = max(anyhow, best_batch(demand.profile, size, processes, np.inf)[1])
            if anyhow > 0:
                rows.append((index, size, timely, anyhow))
    shape_list, sizes, n = list(shapes(sku)), sizes_of(sku), len(rows)
    wide = 3 * n + len(shape_list)  # slices, their timely and other shares of time, GPUs by shape
    room, share, must, rate = (np.zeros((k, wide)) for k in (len(sizes), n, len(demands), len(demands)))
    for i, (index, size, timely, anyhow) in enumerate(rows):
        room[sizes.index(size), i] = -1
        share[i, i], share[i, n + i], share[i, 2 * n + i] = 1, -1, -1
        must[index, n + i] = timely / demands[index].rate_qps
        rate[index, n + i], rate[index, 2 * n + i] = (
            timely / demands[index].rate_qps,
            anyhow / demands[index].rate_qps,
        )
    room[:, 3 * n :] = np.array(shape_list, float).T
    cost = np.concatenate([np.zeros(3 * n), np.ones(len(shape_list))])
    whole = np.concatenate([np.ones(n), np.zeros(2 * n), np.ones(len(shape_list))]).astype(np.int64)
    answer = milp(
        cost,
        constraints=[
            LinearConstraint(coo_array(room), 0, np.inf),
            LinearConstraint(coo_array(share), 0, np.inf),
            LinearConstraint(coo_array(must), [d.percentile / 100 for d in demands], np.inf),
            LinearConstraint(coo_array(rate), 1, np.inf),
        ],
        integrality=whole,
        options={"mip_rel_gap": 1e-4, "time_limit": _SECONDS},
    )
    if answer.x is None:
        return 0
    dual = answer.fun if answer.mip_dual_bound is None else answer.mip_dual_bound
    return int(np.ceil(float(dual or 0.0) - 1e-6))
