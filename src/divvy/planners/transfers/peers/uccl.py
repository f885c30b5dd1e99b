"""UCCL P2P: the nearest NIC by PCI distance on each side.

Source: uccl-project/uccl, p2p engine: each GPU is bound to its nearest NIC.
"""

from __future__ import annotations

from collections.abc import Sequence

from divvy.planners.transfers.candidates import Finder, nics_of
from divvy.planners.transfers.peers.parts import by_nics, put, refuse
from divvy.planners.transfers.plan import RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads


def plan(ways: Roads, finder: Finder, transfers: Sequence[Transfer], seed: int = 0) -> RoutePlan:
    """Return the plan by UCCL's rule."""
    del seed
    out = RoutePlan("uccl")
    for index, transfer in enumerate(transfers):
        near, far = nics_of(ways, transfer.source)[:1], nics_of(ways, transfer.target)[:1]
        route = by_nics(finder, transfer, near[0], far[0]) if near and far else None
        if route is None:
            refuse(out, transfer, "the nearest NICs are not joined" if near and far else "there is no NIC")
        else:
            put(out, index, transfer, [(route, 1.0)])
    return out
