"""Divvy's planner for batches: the linear program's split, made into flows with rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from divvy.perf.transfer import KindCost, overhead
from divvy.planners.transfers.assign import Assignment, assign
from divvy.planners.transfers.bound import windows_of
from divvy.planners.transfers.candidates import Finder, kind_of
from divvy.planners.transfers.columns import GB, Column, Split, solve
from divvy.planners.transfers.plan import Flow, RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads, path_of

Floats = NDArray[np.float64]

_LEAST_SHARE = 1e-5
_PLAINEST = 3
_MOST_DEADLINES = 12
_SMALL_SHARE = 0.02
_TOLD = 0.5
_SMALL_COST = 1.005


def plan(ways: Roads, finder: Finder, transfers: Sequence[Transfer], seed: int = 0) -> RoutePlan:
    """Return the plan for transfers that all have a way.

    Every flow gets the rate of the program as its weight. Rates are max-min fair by weight, the
    program's rates fit together, so each flow gets at least its own: nothing ends later than planned,
    and what is left over is used.
    """
    del finder, seed
    return plan_and_split(ways, transfers, certify=False)[0]


def plan_and_split(
    ways: Roads, transfers: Sequence[Transfer], *, certify: bool = True
) -> tuple[RoutePlan, Split | None]:
    """Return the plan and the program's solution; the latter only if it also serves for the bound.

    Args:
        ways: The roads.
        transfers: What to move; each has a way.
        certify: Whether to prove the split by its bound, which takes longer than finding it.
    """
    out = RoutePlan("divvy")
    if not transfers:
        return out, None
    windows, moved = windows_of(transfers, early=False)
    split = solve(ways, moved, windows, certify=certify)
    # A deadline that the fastest plan keeps anyway needs no window of its own.
    due = sorted(
        {t.deadline_s for t in moved if t.deadline_s is not None and t.deadline_s < split.makespan_s}
    )
    begins = sorted({*windows, *due[:_MOST_DEADLINES]})
    columns = [split.columns[i] for i in _pool(split)]
    kinds = [kind_of(ways, c.path) for c in columns]
    guess = split.makespan_s + 40e-6
    solved = assign(split.capacity, moved, columns, kinds, begins, guess, ways.costs)
    if solved is None:
        columns, begins = split.columns, windows
        kinds = [kind_of(ways, c.path) for c in columns]
        solved = Assignment(split.gigabytes, split.makespan_s)
    else:
        columns, kinds, solved = _slim(ways, split.capacity, moved, columns, kinds, begins, solved)
    out.flows = _flows(ways, moved, columns, kinds, solved.gigabytes, begins, solved.makespan_s)
    return out, (split if certify and moved == list(transfers) else None)


def _slim(
    ways: Roads,
    capacity: Floats,
    transfers: Sequence[Transfer],
    columns: list[Column],
    kinds: list[str],
    begins: Sequence[float],
    solved: Assignment,
) -> tuple[list[Column], list[str], Assignment]:
    """Return the plan without routes that carry next to nothing, if that costs next to nothing."""
    need = np.array([t.size_bytes / GB for t in transfers])
    owner = np.array([c.transfer for c in columns])
    share = solved.gigabytes.sum(axis=1) / need[owner]
    most = np.zeros(len(transfers))
    np.maximum.at(most, owner, share)
    keep = np.flatnonzero((share >= _SMALL_SHARE) | (share >= most[owner]))
    if len(keep) == int((share > 0).sum()):
        return columns, kinds, solved
    fewer, names = [columns[i] for i in keep], [kinds[i] for i in keep]
    slim = assign(capacity, transfers, fewer, names, begins, solved.makespan_s, ways.costs)
    if slim is not None and slim.makespan_s <= solved.makespan_s * _SMALL_COST:
        return fewer, names, slim
    return columns, kinds, solved


def _pool(split: Split) -> list[int]:
    """Return the columns worth choosing from: every one that the program uses, and the plainest seeds."""
    used = split.gigabytes.sum(axis=1) > 0
    count: dict[int, int] = {}
    keep: list[int] = []
    for i, column in enumerate(split.columns):
        count[column.transfer] = count.get(column.transfer, 0) + 1
        if used[i] or (i < split.plain and count[column.transfer] <= _PLAINEST):
            keep.append(i)
    return keep


def _whole(
    transfer: Transfer,
    mine: Sequence[int],
    kinds: Sequence[str],
    begins: Sequence[float],
    costs: Mapping[str, KindCost],
) -> tuple[int, int, float]:
    """Return a transfer of a few bytes on the path that starts first, from its release on."""
    size, pieces = transfer.size_bytes, transfer.descriptors
    best = min(mine, key=lambda c: overhead(kinds[c], size, pieces, costs).seconds)
    window = max((w for w, begin in enumerate(begins) if begin <= transfer.release_s), default=0)
    return best, window, size / GB


def _flows(
    ways: Roads,
    transfers: Sequence[Transfer],
    columns: Sequence[Column],
    kinds: Sequence[str],
    amounts: Floats,
    begins: Sequence[float],
    end: float,
) -> list[Flow]:
    """Return flows with exactly the bytes of each transfer; crumbs are added to its largest flow."""
    flows: list[Flow] = []
    for i, transfer in enumerate(transfers):
        mine = [c for c, column in enumerate(columns) if column.transfer == i]
        total = transfer.size_bytes / GB
        parts = [
            (c, w, float(amounts[c, w]))
            for c in mine
            for w in range(len(begins))
            if amounts[c, w] > _LEAST_SHARE * total
        ]
        if sum(part[2] for part in parts) < _TOLD * total:  # too small for the solver's tolerance
            parts = [_whole(transfer, mine, kinds, begins, ways.costs)]
        scale = total / sum(part[2] for part in parts)
        share = {c: sum(p[2] for p in parts if p[0] == c) * scale / total for c in mine}
        for c, window, amount in parts:
            size = amount * scale * GB
            pieces = max(1, round(transfer.descriptors * share[c]))
            fixed = overhead(kinds[c], transfer.size_bytes * share[c], pieces, ways.costs)
            begin = begins[window]
            start = max(begin, transfer.release_s + fixed.seconds)
            finish = begins[window + 1] if window + 1 < len(begins) else end
            weight = size / GB / max(finish - start, 1e-9)
            path = path_of(ways, columns[c].path.arcs)
            flows.append(Flow(i, kinds[c], path, size, weight, start, coalesce=fixed.coalesce))
    return flows
