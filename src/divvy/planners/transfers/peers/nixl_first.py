"""NIXL: the first backend that supports both memories, which is UCX; below it one rail for RMA.

Source: ai-dynamo/nixl, backend selection in order of creation; UCX's RMA uses a single rail.
"""

from __future__ import annotations

from collections.abc import Sequence

from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.peers.ucx import rails
from divvy.planners.transfers.plan import RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads


def plan(ways: Roads, finder: Finder, transfers: Sequence[Transfer], seed: int = 0) -> RoutePlan:
    """Return the plan by NIXL's rule."""
    del seed
    return rails(ways, finder, transfers, "nixl-first", 1)
