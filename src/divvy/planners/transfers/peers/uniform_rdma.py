"""Uniform RDMA: every transfer goes over the network, GPU i by NIC i modulo their number, wherever they are.

Source: the baseline of TopKV (arXiv 2607.28633), which knows no topology.
"""

from __future__ import annotations

from collections.abc import Sequence

from divvy.fleet.topology.graph import Kind
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.peers.parts import by_nics, put, refuse
from divvy.planners.transfers.plan import RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads


def _nic(ways: Roads, device: str) -> str | None:
    """Return the NIC by number."""
    place = ways.topo.vertices[device]
    nics = [
        v.id
        for v in ways.topo.of_kind(Kind.NIC)
        if v.machine == place.machine and dict(v.facts).get("transport") != "tcp"
    ]
    same = [v.id for v in ways.topo.of_kind(place.kind) if v.machine == place.machine]
    return nics[same.index(device) % len(nics)] if nics else None


def plan(ways: Roads, finder: Finder, transfers: Sequence[Transfer], seed: int = 0) -> RoutePlan:
    """Return the plan without topology."""
    del seed
    out = RoutePlan("uniform-rdma")
    for index, transfer in enumerate(transfers):
        near, far = _nic(ways, transfer.source), _nic(ways, transfer.target)
        route = by_nics(finder, transfer, near, far) if near and far else None
        if route is None:
            refuse(out, transfer, "the NICs are not joined" if near and far else "there is no NIC")
        else:
            put(out, index, transfer, [(route, 1.0)])
    return out
