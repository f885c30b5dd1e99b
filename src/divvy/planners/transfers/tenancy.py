"""Pairs the GPUs that fill caches with those that go on from them, and tells the routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.online import Online
from divvy.planners.transfers.pairing import Request, pair
from divvy.planners.transfers.plan import RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads


@dataclass(frozen=True, slots=True)
class Lane:
    """Where the caches of one place go.

    Attributes:
        source: Place that fills them.
        target: Place that takes them; empty where none can be reached.
        routes: Kinds of route with their part of the bytes.
        predicted_s: When one cache is there, the other lanes being busy too; 0 where there is no lane.
        others: Predicted time of the places that were not taken, the nearest rival only; 0 for none.
    """

    source: str
    target: str
    routes: tuple[tuple[str, float], ...]
    predicted_s: float
    others: float


def lanes(
    ways: Roads,
    finder: Finder,
    sources: Sequence[str],
    targets: Sequence[str],
    size_bytes: int,
    descriptors: int = 1,
) -> tuple[Lane, ...]:
    """Return a lane for every place that fills caches; each is chosen under the load of those before it.

    Args:
        ways: The roads.
        finder: Finds routes; keeps what it found.
        sources: Places that fill caches, in order.
        targets: Places that take them.
        size_bytes: Bytes of one cache.
        descriptors: Pieces that it lies in.
    """
    requests = [Request(source, source, size_bytes, ("cache",), descriptors) for source in sources]
    pairs = {one.request: one for one in pair(ways, finder, requests, list(targets), {})}
    online, out = Online(ways, finder), []
    for place, source in enumerate(sources):
        chosen = pairs.get(source)
        if chosen is None:
            out.append(Lane(source, "", (), 0.0, 0.0))
            continue
        plan = RoutePlan("lanes")
        transfer = Transfer(source, source, chosen.target, size_bytes, descriptors=descriptors)
        online.place(place, transfer, plan)
        routes = tuple((flow.kind, round(flow.size_bytes / size_bytes, 3)) for flow in plan.flows)
        rival = min(chosen.others.values(), default=0.0)
        out.append(Lane(source, chosen.target, routes, chosen.predicted_s, rival))
    return tuple(out)
