"""Divvy's rule: late binding, slack first, and a slice only takes work that is worth its price.

Queries wait in one queue per batch size. A slice that falls idle claims, among the oldest of each size, the
one with the least slack that it can still finish in time and that is not much dearer here than on its
cheapest slice; how much dearer grows with the time that it has waited. What can no longer be in time anywhere
is served when a slice would otherwise be idle, so that one late query does not make the next one late too;
but shortly before twice the objective it goes first, so that the tail stays short.
"""

from __future__ import annotations

from typing import Any

from divvy.planners.queries.rule import NOWHERE, Rule


def claim(
    now: int,
    s: int,
    slo: int,
    arrivals: Any,
    kinds: Any,
    count: int,
    head: Any,
    service: Any,
    price: Any,
    cheapest: Any,
    params: Any,
) -> int:
    """Return the batch size whose oldest query slice `s` takes now, or NOWHERE to stay idle.

    Args:
        now: Microseconds.
        s: The idle slice.
        slo: Microseconds from arrival to the deadline.
        arrivals: By query.
        kinds: The batch sizes that wait, ascending, in the first `count` places.
        count: How many of them.
        head: By batch size: its oldest waiting query, or negative.
        service: Microseconds by slice and batch, negative where it does not fit.
        price: By slice.
        cheapest: By batch size: the least price x time of any slice that could meet the deadline.
        params: (dearness allowed at once, how much it grows over the whole wait; the others are the loop's).
    """
    best, least = NOWHERE, 0
    for i in range(count):
        batch = kinds[i]
        q = head[batch]
        if q < 0:
            continue
        time = service[s, batch]
        if time < 0:
            continue
        slack = arrivals[q] + slo - now - time
        if slack < 0:
            continue
        if best != NOWHERE and (slack > least or (slack == least and batch > best)):
            continue
        dear = price[s] * time - cheapest[batch] * params[0]
        if dear > 0:  # worth it only after some of the wait: compared without a division
            waited = now - arrivals[q]
            if dear * max(slo - time, 1) > cheapest[batch] * params[1] * waited:
                continue
        best, least = batch, slack
    return best


RULE = Rule(
    "divvy",
    "late binding, least slack first, a slice takes what is worth its price (near, growth, batching, rescue)",
    late=True,
    params=(("near", 1.05), ("growth", 4.0), ("batching", 0.0), ("rescue", 0.2)),
)
