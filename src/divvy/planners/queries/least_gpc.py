"""Least GPC time: the cheapest slice that still meets the deadline, bound on arrival."""

from __future__ import annotations

from typing import Any

from divvy.planners.queries.rule import NOWHERE, Rule

# ruff: noqa: ARG001 - every rule has the same arguments


def choose(
    now: int,
    deadline: int,
    batch: int,
    free_at: Any,
    queued: Any,
    service: Any,
    price: Any,
    params: Any,
    draw: int,
) -> int:
    """Return the slice with the least price x time among those in time, else the one done first."""
    best, cost, fallback, soonest = NOWHERE, 0.0, NOWHERE, 0
    for s in range(free_at.shape[0]):
        time = service[s, batch]
        if time < 0:
            continue
        done = max(free_at[s], now) + time
        if fallback == NOWHERE or done < soonest:
            fallback, soonest = s, done
        if done <= deadline and (
            best == NOWHERE
            or price[s] * time < cost
            or (price[s] * time == cost and free_at[s] < free_at[best])
        ):
            best, cost = s, price[s] * time
    return fallback if best == NOWHERE else best


RULE = Rule("least-gpc", "the cheapest slice (GPC time) that meets the deadline, bound on arrival", choose)
