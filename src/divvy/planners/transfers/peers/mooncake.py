"""Mooncake transfer engine: 64 KB slices, each to a random NIC of the preferred list of its memory location.

Source: kvcache-ai/Mooncake, transfer engine's topology (preferred: same NUMA node and least PCI distance;
the others are tried on failure only). There is no GPU-to-GPU graph: NVLink is never used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from divvy.planners.transfers.candidates import Finder, affine
from divvy.planners.transfers.peers.parts import by_nics, put, refuse
from divvy.planners.transfers.plan import RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads

SLICE_BYTES = 65536


def plan(ways: Roads, finder: Finder, transfers: Sequence[Transfer], seed: int = 0) -> RoutePlan:
    """Return the plan by Mooncake's rule; random choices come from the seed."""
    out = RoutePlan("mooncake")
    rng = np.random.default_rng(seed)
    for index, transfer in enumerate(transfers):
        pairs = [(a, b) for a in affine(ways, transfer.source) for b in affine(ways, transfer.target)]
        routes = [c for a, b in pairs if (c := by_nics(finder, transfer, a, b)) is not None]
        if not routes:
            refuse(out, transfer, "no pair of preferred NICs is joined by the network")
            continue
        slices = max(1, transfer.size_bytes // SLICE_BYTES)
        counts = rng.multinomial(slices, [1 / len(routes)] * len(routes))
        put(out, index, transfer, [(c, float(n)) for c, n in zip(routes, counts, strict=True) if n])
    return out
