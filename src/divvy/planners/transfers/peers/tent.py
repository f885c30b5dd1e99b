"""Mooncake TENT: each slice to the rail with the least (in flight + slice) / EWMA bandwidth * tier penalty.

Source: kvcache-ai/Mooncake, TENT's rail selection; penalties 1, 5, 10 for near, same-node and far rails.
The EWMA starts at the NIC's rate. Slices are counted in 64 steps per transfer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from divvy.planners.transfers.candidates import Candidate, Finder, affine, distance, nics_of
from divvy.planners.transfers.peers.parts import by_nics, put, refuse
from divvy.planners.transfers.plan import RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads

_STEPS = 64


def plan(ways: Roads, finder: Finder, transfers: Sequence[Transfer], seed: int = 0) -> RoutePlan:
    """Return the plan by TENT's rule."""
    del seed
    out = RoutePlan("tent")
    inflight: dict[str, float] = defaultdict(float)
    for index, transfer in enumerate(transfers):
        targets = affine(ways, transfer.target)
        routes: dict[str, Candidate] = {}
        for position, nic in enumerate(nics_of(ways, transfer.source)):
            into = targets[position % len(targets)] if targets else ""
            candidate = by_nics(finder, transfer, nic, into) if into else None
            if candidate is not None:
                routes[nic] = candidate
        if not routes:
            refuse(out, transfer, "no rail joins the two ends")
            continue
        share: dict[str, float] = defaultdict(float)
        piece = transfer.size_bytes / _STEPS
        for _ in range(_STEPS):
            best = min(
                routes, key=lambda nic: _score(ways, transfer, nic, routes[nic], inflight[nic] + piece)
            )
            inflight[best] += piece
            share[best] += 1.0
        put(out, index, transfer, [(routes[nic], amount) for nic, amount in share.items()])
    return out


def _score(ways: Roads, transfer: Transfer, nic: str, candidate: Candidate, load: float) -> float:
    """Return the predicted time of the next slice with its penalty."""
    rank = distance(ways, transfer.source, nic)
    penalty = 1.0 if rank <= 2 else 5.0 if rank <= 4 else 10.0
    return load / candidate.gb_per_s * penalty
