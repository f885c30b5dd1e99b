"""UCX: cuda_ipc where a direct path exists, else the NICs with the best assumed rate, two of them.

Source: openucx/ucx, sys_device distances: same NUMA node 17,000 MB/s, across nodes 220, a shared PCIe root at
most 3,500, unknown without limit. Ties go to the first NIC: many users saw the same NIC always (ucx 11259).
"""

from __future__ import annotations

from collections.abc import Sequence

from divvy.planners.transfers.candidates import Finder, distance, nics_of
from divvy.planners.transfers.peers.parts import by_kind, by_nics, put, refuse
from divvy.planners.transfers.plan import RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads

_ASSUMED_GB_PER_S = {1: 3.5, 2: 3.5, 3: 17.0, 4: 17.0, 5: 0.22}


def assumed_rate(ways: Roads, device: str, nic: str) -> float:
    """Return the rate that UCX assumes between a device and a NIC."""
    same_numa = ways.topo.vertices[device].numa == ways.topo.vertices[nic].numa
    rank = distance(ways, device, nic)
    return _ASSUMED_GB_PER_S.get(rank, 17.0 if same_numa else float("inf"))


def rails(ways: Roads, finder: Finder, transfers: Sequence[Transfer], name: str, most: int) -> RoutePlan:
    """Return the plan with at most so many rails."""
    out = RoutePlan(name)
    order = {v.id: i for i, v in enumerate(ways.topo.vertices.values())}
    for index, transfer in enumerate(transfers):
        direct = by_kind(finder, transfer, "nvlink", "pcie-p2p")
        if direct is not None:
            put(out, index, transfer, [(direct, 1.0)])
            continue

        def ranked(end: str) -> list[str]:
            return sorted(nics_of(ways, end), key=lambda nic: (-assumed_rate(ways, end, nic), order[nic]))[
                :most
            ]

        pairs = zip(ranked(transfer.source), ranked(transfer.target), strict=False)
        routes = [c for a, b in pairs if (c := by_nics(finder, transfer, a, b)) is not None]
        slow = by_kind(finder, transfer, "host-staged", "tcp")
        if routes:
            put(out, index, transfer, [(c, 1.0) for c in routes])
        elif slow is not None:
            put(out, index, transfer, [(slow, 1.0)])
        else:
            refuse(out, transfer, "no transport joins the two ends")
    return out


def plan(ways: Roads, finder: Finder, transfers: Sequence[Transfer], seed: int = 0) -> RoutePlan:
    """Return the plan by UCX's rule for rendezvous."""
    del seed
    return rails(ways, finder, transfers, "ucx", 2)
