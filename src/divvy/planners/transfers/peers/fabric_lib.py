"""fabric-lib: a switch's NICs fall to its GPUs by integer division; a GPU stripes over its own.

Source: perplexityai/pplx-garden, fabric-lib: topology groups of GPUs and NICs behind one PCIe switch.
"""

from __future__ import annotations

from collections.abc import Sequence

from divvy.fleet.topology.graph import Kind
from divvy.planners.transfers.candidates import Finder, affine
from divvy.planners.transfers.peers.parts import by_nics, put, refuse
from divvy.planners.transfers.plan import RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads


def own_nics(ways: Roads, device: str) -> list[str]:
    """Return the NICs that fall to a device."""
    group = affine(ways, device)
    place = ways.topo.vertices[device]
    if place.kind is not Kind.GPU or not group:
        return group
    gpus = [
        v.id
        for v in ways.topo.of_kind(Kind.GPU)
        if v.machine == place.machine and affine(ways, v.id) == group
    ]
    each = len(group) // len(gpus)
    position = gpus.index(device)
    return (
        group[position * each : (position + 1) * each]
        if each
        else [group[position * len(group) // len(gpus)]]
    )


def plan(ways: Roads, finder: Finder, transfers: Sequence[Transfer], seed: int = 0) -> RoutePlan:
    """Return the plan by fabric-lib's rule."""
    del seed
    out = RoutePlan("fabric-lib")
    for index, transfer in enumerate(transfers):
        near, far = own_nics(ways, transfer.source), own_nics(ways, transfer.target)
        count = max(len(near), len(far)) if near and far else 0
        pairs = [(near[i % len(near)], far[i % len(far)]) for i in range(count)]
        routes = [c for a, b in pairs if (c := by_nics(finder, transfer, a, b)) is not None]
        if routes:
            put(out, index, transfer, [(c, 1.0) for c in routes])
        else:
            refuse(out, transfer, "no NIC falls to one of the ends, or they are not joined")
    return out
