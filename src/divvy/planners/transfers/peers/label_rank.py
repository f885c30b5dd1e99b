"""Label rank: the direct path by the pair's label, NV > PIX > PXB > PHB > NODE > SYS; else the nearest NIC.

Source: the order in which `nvidia-smi topo -m` explains its labels, taken as a ranking by many schedulers.
"""

from __future__ import annotations

from collections.abc import Sequence

from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.peers.parts import by_kind, put, refuse
from divvy.planners.transfers.plan import RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads


def plan(ways: Roads, finder: Finder, transfers: Sequence[Transfer], seed: int = 0) -> RoutePlan:
    """Return the plan by label."""
    del ways, seed
    out = RoutePlan("label-rank")
    for index, transfer in enumerate(transfers):
        route = by_kind(
            finder,
            transfer,
            "nvlink",
            "pcie-p2p",
            "host-staged",
            "rdma-affine",
            "rdma-other",
            "rdma-staged",
            "tcp",
        )
        if route is None:
            refuse(out, transfer, "no label and no NIC joins the two ends")
        else:
            put(out, index, transfer, [(route, 1.0)])
    return out
