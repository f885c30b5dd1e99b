"""First idle, first serve: queries in order of arrival, each to the slice that falls idle first."""

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
    """Return the slice that is idle longest or falls idle first, among those that can run the query.

    With known times, a common queue in order of arrival is the same as binding to the least `free_at`.
    """
    best = NOWHERE
    for s in range(free_at.shape[0]):
        if service[s, batch] >= 0 and (best == NOWHERE or free_at[s] < free_at[best]):
            best = s
    return best


RULE = Rule("fifs", "first idle, first serve: one common queue in order of arrival", choose)
