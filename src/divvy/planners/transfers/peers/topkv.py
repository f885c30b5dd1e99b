"""TopKV: one transport class per transfer, by nominal bandwidth: NVLink, then PCIe inside a node, then RDMA.

Source: "Topology-Aware Data Movement for Disaggregated GPU Inference", arXiv 2607.28633: classes with a
bandwidth each; links are not shared in its model and one class is chosen per transfer.
"""

from __future__ import annotations

from collections.abc import Sequence

from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.peers.parts import put, refuse
from divvy.planners.transfers.plan import RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads

_CLASSES = (("nvlink",), ("pcie-p2p", "host-staged"), ("rdma-affine", "rdma-other", "rdma-staged"), ("tcp",))


def plan(ways: Roads, finder: Finder, transfers: Sequence[Transfer], seed: int = 0) -> RoutePlan:
    """Return the plan by TopKV's classes."""
    del ways, seed
    out = RoutePlan("topkv")
    for index, transfer in enumerate(transfers):
        known = finder.between(transfer.source, transfer.target)
        options = next(
            (
                [c for c in known if c.kind in kinds]
                for kinds in _CLASSES
                if any(c.kind in kinds for c in known)
            ),
            [],
        )
        if options:
            put(out, index, transfer, [(max(options, key=lambda c: c.gb_per_s), 1.0)])
        else:
            refuse(out, transfer, "no class joins the two ends")
    return out
