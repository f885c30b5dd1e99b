"""Join the shortest queue, by number of queries."""

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
    """Return the slice with the fewest unfinished queries; ties go to the one that is done first."""
    best = NOWHERE
    for s in range(free_at.shape[0]):
        if service[s, batch] < 0:
            continue
        if (
            best == NOWHERE
            or queued[s] < queued[best]
            or (queued[s] == queued[best] and free_at[s] < free_at[best])
        ):
            best = s
    return best


RULE = Rule("jsq", "join the shortest queue (number of queries)", choose, counts=True)
