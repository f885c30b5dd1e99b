"""The one simulator that runs every planner's flows: rates are max-min fair by weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from divvy.planners.transfers.fair import Uses, fair_rates, uses_of
from divvy.planners.transfers.plan import Flow
from divvy.planners.transfers.roads import Roads

GB = 1e9
_SAME = 1e-9


class Piece(NamedTuple):
    """A span of time in which all rates stay the same; rates in 1e9 bytes per second by flow."""

    begin_s: float
    end_s: float
    rates: NDArray[np.float64]


@dataclass(slots=True)
class Outcome:
    """What happened.

    Attributes:
        finish_s: By flow, when its last byte arrived.
        start_s: By flow, when its first byte moved.
        pieces: Constant-rate spans in order; empty unless they were asked for.
        makespan_s: When the last transfer finished.
        by_transfer: Finish of each transfer that has flows, by its index.
    """

    finish_s: NDArray[np.float64]
    start_s: NDArray[np.float64]
    makespan_s: float
    by_transfer: dict[int, float]
    pieces: list[Piece] = field(default_factory=list)


def simulate(
    ways: Roads,
    flows: Sequence[Flow],
    *,
    keep_pieces: bool = False,
    incast: Mapping[int, int] | None = None,
) -> Outcome:
    """Run the flows to their end.

    Args:
        ways: The roads; their capacities hold at every moment.
        flows: The parts, each with its path, bytes, weight and earliest start.
        keep_pieces: Whether to return the rates over time.
        incast: Most flows that may use a resource at once, by resource; others wait in order.
    """
    left = np.array([f.size_bytes / GB for f in flows])
    size = left.copy()
    begin = np.array([f.start_s for f in flows])
    weight, limit = np.array([f.weight for f in flows]), np.array([f.limit_gb_per_s for f in flows])
    uses = uses_of([f.path for f in flows])
    finish, started = np.full(len(flows), np.nan), np.full(len(flows), np.nan)
    pieces: list[Piece] = []
    now = 0.0
    while np.isnan(finish).any():
        waiting = np.isnan(finish) & (begin > now * (1 + 1e-15) + 1e-15)
        active = np.isnan(finish) & ~waiting
        if incast:
            active &= _admitted(uses, active, started, incast)
        if not active.any():
            now = float(begin[waiting].min())
            continue
        started[active & np.isnan(started)] = now
        rates = _rates(uses, ways, weight, limit, active)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.where(active & (rates > 0), left / np.where(rates > 0, rates, 1.0), np.inf)
        step = float(ends.min())
        until = float(begin[waiting].min(initial=np.inf)) - now
        step = min(step, until)
        if not np.isfinite(step):
            raise ArithmeticError("a flow has no rate: a resource on its path has no capacity")
        if keep_pieces and step > 0:
            pieces.append(
                Piece(now, now + step, np.where(active, np.minimum(rates, left / max(step, 1e-300)), 0.0))
            )
        left = np.where(active, left - rates * step, left)
        done = active & (left <= _SAME * size)
        left[done] = 0.0
        now += step
        finish[done] = now
    return _outcome(flows, started, finish, pieces)


def _outcome(
    flows: Sequence[Flow], started: NDArray[np.float64], finish: NDArray[np.float64], pieces: list[Piece]
) -> Outcome:
    """Return the outcome: a transfer ends with its last flow."""
    by_transfer: dict[int, float] = {}
    for index, flow in enumerate(flows):
        by_transfer[flow.transfer] = max(by_transfer.get(flow.transfer, 0.0), float(finish[index]))
    return Outcome(finish, started, max(by_transfer.values(), default=0.0), by_transfer, pieces)


def _step(rates: NDArray[np.float64], left: NDArray[np.float64], until: float) -> float:
    """Return how long the rates stay: until a flow ends or one begins."""
    moving = rates > 0
    step = min(float((left[moving] / rates[moving]).min(initial=np.inf)), until)
    if not np.isfinite(step):
        raise ArithmeticError("a flow has no rate: a resource on its path has no capacity")
    return step


def _rates(
    uses: Uses,
    ways: Roads,
    weight: NDArray[np.float64],
    limit: NDArray[np.float64],
    active: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Return the rates of active flows; the others have none."""
    index = np.flatnonzero(active)
    place = np.full(len(active), -1)
    place[index] = np.arange(len(index))
    kept = active[uses.flow]
    resources, compact = np.unique(uses.resource[kept], return_inverse=True)
    small = Uses(place[uses.flow[kept]], compact, uses.times[kept])
    rates = np.zeros(len(active))
    rates[index] = fair_rates(small, ways.capacity[resources], weight[index], limit[index])
    return rates


def _admitted(
    uses: Uses, active: NDArray[np.bool_], started: NDArray[np.float64], incast: Mapping[int, int]
) -> NDArray[np.bool_]:
    """Return which active flows may run: those that run already, then the others in order, to each limit."""
    allowed = active.copy()
    for resource, most in incast.items():
        mine = np.unique(uses.flow[uses.resource == resource])
        mine = mine[active[mine]]
        order = sorted(mine.tolist(), key=lambda f: (np.isnan(started[f]), f))
        allowed[order[most:]] = False
    return allowed
