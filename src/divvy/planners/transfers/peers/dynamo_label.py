"""Dynamo: one domain label must be equal on both sides; inside it NVLink is used, outside the nearest NIC.

Source: ai-dynamo/dynamo, topology-aware placement by a Kubernetes label (required or preferred); routes
are not compared. On one machine the machine is the domain.
"""

from __future__ import annotations

from collections.abc import Sequence

from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.peers.parts import by_kind, put, refuse
from divvy.planners.transfers.plan import RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads


def plan(ways: Roads, finder: Finder, transfers: Sequence[Transfer], seed: int = 0) -> RoutePlan:
    """Return the plan by Dynamo's rule."""
    del seed
    out = RoutePlan("dynamo-label")
    for index, transfer in enumerate(transfers):
        first, second = (ways.topo.vertices[v] for v in (transfer.source, transfer.target))
        is_same = first.machine == second.machine or (first.domain != "" and first.domain == second.domain)
        inside = ("nvlink", "pcie-p2p", "host-staged") if is_same else ()
        route = by_kind(
            finder, transfer, *inside, "rdma-affine", "rdma-other", "rdma-staged", "host-staged", "tcp"
        )
        if route is None:
            refuse(out, transfer, "neither the label nor the network joins the two ends")
        else:
            put(out, index, transfer, [(route, 1.0)])
    return out
