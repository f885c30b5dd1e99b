"""Weighted max-min fair rates over shared resources: a kernel over arrays, and its plain twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from divvy.planners.transfers.roads import Path

_SLACK = 1e-12
_FULL = 1e-9


class Uses(NamedTuple):
    """Which flow crosses which resource how often, as three arrays of the same length."""

    flow: NDArray[np.int64]
    resource: NDArray[np.int64]
    times: NDArray[np.float64]


def uses_of(paths: Sequence[Path]) -> Uses:
    """Return the uses of some paths, numbered in their order."""
    rows = [(i, resource, times) for i, path in enumerate(paths) for resource, times in path.uses]
    flow, resource, times = zip(*rows, strict=True) if rows else ((), (), ())
    return Uses(
        np.array(flow, dtype=np.int64), np.array(resource, dtype=np.int64), np.array(times, dtype=np.float64)
    )


def fair_rates(
    uses: Uses, capacity: NDArray[np.float64], weight: NDArray[np.float64], limit: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the rate of each flow: all rise in proportion to their weight until something of theirs is full.

    Args:
        uses: What the flows cross.
        capacity: Rate of each resource.
        weight: Positive share of each flow.
        limit: Highest rate of each flow, ``inf`` for none.
    """
    count, size = len(weight), len(capacity)
    rate = np.zeros(count)
    free = np.ones(count, dtype=bool)
    left = np.asarray(capacity, dtype=np.float64).copy()
    ceiling = limit / weight
    flow, resource, times = uses
    push = weight[flow] * times
    while free.any():
        load = np.bincount(resource, weights=push * free[flow], minlength=size)
        loaded = load > _SLACK
        room = np.full(size, np.inf)
        room[loaded] = np.maximum(left[loaded], 0.0) / load[loaded]
        level = float(room.min(initial=np.inf))
        top = float(ceiling[free].min())
        if np.isinf(level) and np.isinf(top):
            rate[free] = np.inf
            break
        level = min(top, level)
        held = free & (ceiling <= level * (1 + _SLACK))
        crossing = flow[(room <= level * (1 + _FULL))[resource]]
        held[crossing] |= free[crossing]
        rate[held] = weight[held] * level
        left -= np.bincount(resource, weights=rate[flow] * times * held[flow], minlength=size)
        free &= ~held
    return rate


def fair_rates_plain(
    paths: Sequence[Path], capacity: Sequence[float], weight: Sequence[float], limit: Sequence[float]
) -> list[float]:
    """Return the same as `fair_rates`, one flow and one resource at a time: the definition, for the tests."""
    uses = [dict(path.uses) for path in paths]
    rate = [0.0] * len(weight)
    free = set(range(len(weight)))
    left = list(capacity)
    while free:
        load = [sum(weight[f] * uses[f].get(r, 0) for f in free) for r in range(len(left))]
        room = [max(left[r], 0.0) / load[r] if load[r] > _SLACK else float("inf") for r in range(len(left))]
        level = min([limit[f] / weight[f] for f in free] + room)
        if level == float("inf"):
            for f in free:
                rate[f] = float("inf")
            return rate
        full = {r for r in range(len(left)) if room[r] <= level * (1 + _FULL)}
        held = {f for f in free if limit[f] / weight[f] <= level * (1 + _SLACK) or full & uses[f].keys()}
        for f in held:
            rate[f] = weight[f] * level
        for r in range(len(left)):
            left[r] -= sum(rate[f] * uses[f].get(r, 0) for f in held)
        free -= held
    return rate
