"""The online planner: each transfer, when it comes, takes the routes that end it first under present load.

It looks at nothing but the candidates and a vector of load, so that 64 transfers of 72 GPUs are planned
in a few milliseconds. A transfer is cut into a few chunks; each goes to the route on which it would end
first (water-filling), so that rails and relays are used together where that pays. Rates are max-min fair
in proportion to the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from divvy.perf.transfer import overhead
from divvy.planners.transfers.candidates import Candidate, Finder
from divvy.planners.transfers.plan import Flow, Refused, RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads

GB = 1e9
_MOST = 12
_CHUNKS = 4
_WORTH_SPLITTING_BYTES = 8e6


class _Options(NamedTuple):
    """The candidates of a pair as arrays: resources and uses, padded with a resource that is never loaded."""

    routes: list[Candidate]
    resources: NDArray[np.int64]
    times: NDArray[np.float64]


class Online:
    """Plans transfers as they come; keeps the load of what it placed and the candidates as arrays.

    Args:
        ways: The roads.
        finder: Finds candidates; what it found is kept.
        chunks: Into how many parts a transfer is cut that is worth splitting.
        worth_bytes: From which size on it is.
    """

    def __init__(
        self,
        ways: Roads,
        finder: Finder,
        *,
        chunks: int = _CHUNKS,
        worth_bytes: float = _WORTH_SPLITTING_BYTES,
    ) -> None:
        self._finder = finder
        self._chunks = chunks
        self._worth = worth_bytes
        self._costs = ways.costs
        self._known: dict[tuple[str, str], _Options] = {}
        self._slow = np.append(1.0 / np.maximum(ways.capacity, 1e-9), 0.0)
        self._load = np.zeros(len(ways.capacity) + 1)

    def options(self, source: str, target: str) -> _Options:
        """Return the candidates of a pair."""
        key = (source, target)
        if key not in self._known:
            routes = self._finder.between(source, target)[:_MOST]
            width = max((len(c.path.uses) for c in routes), default=0)
            resources = np.full((len(routes), width), len(self._load) - 1, dtype=np.int64)
            times = np.zeros((len(routes), width))
            for i, candidate in enumerate(routes):
                for j, (resource, count) in enumerate(candidate.path.uses):
                    resources[i, j], times[i, j] = resource, count
            self._known[key] = _Options(routes, resources, times)
        return self._known[key]

    def adopt(self, other: Online) -> None:
        """Take over the candidates that another planner of the same roads has found, not its load."""
        self._known = other._known

    def place(self, index: int, transfer: Transfer, out: RoutePlan) -> None:
        """Add the flows of one transfer to a plan, and its load."""
        routes, resources, times = self.options(transfer.source, transfer.target)
        if not routes:
            out.refused.append(
                Refused(transfer.id, "no-link", f"no link joins {transfer.source} and {transfer.target}")
            )
            return
        slow = self._slow[resources] * times
        fixed = [overhead(c.kind, transfer.size_bytes, transfer.descriptors, self._costs) for c in routes]
        waits = np.array([o.seconds for o in fixed])
        chunks = self._chunks if transfer.size_bytes >= self._worth and len(routes) > 1 else 1
        size = transfer.size_bytes / GB / chunks
        share = [0] * len(routes)
        for _ in range(chunks):
            queued = self._load[resources] * self._slow[resources]
            best = int(np.argmin(waits + (queued + slow * size).max(axis=1)))
            share[best] += 1
            self._load[resources[best]] += times[best] * size
        for route, count in enumerate(share):
            if count:
                self._add(index, transfer, routes[route], count / chunks, out)

    def predict(self, transfer: Transfer) -> float:
        """Return when a transfer would end on its best single route under the present load."""
        routes, resources, times = self.options(transfer.source, transfer.target)
        size = transfer.size_bytes / GB
        if not size:
            return 0.0
        waits = np.array(
            [overhead(c.kind, transfer.size_bytes, transfer.descriptors, self._costs).seconds for c in routes]
        )
        busy = (self._load[resources] + times * size) * self._slow[resources]
        return float((waits + busy.max(axis=1)).min())

    def trial(self, transfer: Transfer) -> tuple[float, RoutePlan]:
        """Return when a transfer would end if it were placed now, split as it would be, and its flows."""
        before, out = self._load.copy(), RoutePlan("divvy-online")
        self.place(0, transfer, out)
        ends = [
            flow.start_s + max(float(self._load[r] * self._slow[r]) for r, _ in flow.path.uses)
            for flow in out.flows
        ]
        self._load = before
        return max(ends, default=0.0), out

    def _add(self, index: int, transfer: Transfer, route: Candidate, share: float, out: RoutePlan) -> None:
        size = transfer.size_bytes * share
        cost = overhead(route.kind, size, max(1, round(transfer.descriptors * share)), self._costs)
        start = transfer.release_s + cost.seconds
        out.flows.append(Flow(index, route.kind, route.path, size, size / GB, start, coalesce=cost.coalesce))


def plan(ways: Roads, finder: Finder, transfers: Sequence[Transfer], seed: int = 0) -> RoutePlan:
    """Return routes for transfers in the order of their release, larger ones first among equals."""
    del seed
    out = RoutePlan("divvy-online")
    planner = Online(ways, finder)
    order = sorted(range(len(transfers)), key=lambda i: (transfers[i].release_s, -transfers[i].size_bytes, i))
    for index in order:
        planner.place(index, transfers[index], out)
    return out
