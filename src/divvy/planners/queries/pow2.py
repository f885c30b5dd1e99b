"""Power of two choices: two slices at random, the one with the shorter queue (Ray Serve's default)."""

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
    """Return the better of two different slices drawn from those that can run the query."""
    able = 0
    for s in range(free_at.shape[0]):
        if service[s, batch] >= 0:
            able += 1
    if able == 0:
        return NOWHERE
    first = draw % able
    second = (first + 1 + (draw // 65_536) % (able - 1)) % able if able > 1 else first
    one, two, seen = NOWHERE, NOWHERE, 0
    for s in range(free_at.shape[0]):
        if service[s, batch] < 0:
            continue
        if seen == first:
            one = s
        if seen == second:
            two = s
        seen += 1
    return two if queued[two] < queued[one] else one


RULE = Rule("pow2", "the shorter of two queues drawn at random", choose, counts=True)
