"""The reclaim scenario: does an account that was idle get its time back, and at whose cost?"""

from __future__ import annotations

import numpy as np

from divvy.fleet.budget import Policy
from divvy.fleet.node import Node
from divvy.sim.accounts import equal_shares
from divvy.sim.replay import Replay
from divvy.sim.scenario import Scenario
from divvy.sim.steps import Steps, cells, ints
from divvy.sim.synthetic import RECLAIM_WINDOW, SLEEPER, reclaim_trace
from divvy.units import HOUR


def reclaim_scenario(nodes: tuple[Node, ...], policy: Policy | None = None, seed: int = 0) -> Scenario:
    """Return ten equal saturated accounts, one idle for the first 48 h, stopped after 7 days."""
    trace = reclaim_trace(sum(node.gpus for node in nodes), seed)
    budget, claims = equal_shares(trace, policy)
    return Scenario(trace, nodes, budget, claims, until=RECLAIM_WINDOW)


def reclaimed(replay: Replay) -> dict[str, float]:
    """Return what the idle account got back, and the least that any other held of its share.

    ``delivered_over_entitlement``: useful allocated time of the idle account over its share of the whole
    window. ``others_minimum``: least devices held by another account, averaged over one hour, over its
    share of the fleet; the first hour, in which the fleet fills, is left out.
    """
    record, spec, tree = replay.record, replay.workload.spec, replay.budget.tree
    sizes = {capacity.gpus for capacity in record.capacity}
    fleet = sizes.pop()
    grid = cells(0, RECLAIM_WINDOW, HOUR)
    job = ints(record.job)
    gpus = ints([one.gpus for one in spec])[job]
    paid = np.array([one.account for one in spec])[job]
    charged = np.array([one.allocated for one in spec])[job]
    start, end = ints(record.start), ints(record.end)
    restore, lost = ints(record.restore), ints(record.lost)
    result = {"delivered_over_entitlement": 0.0, "others_minimum": np.inf}
    for leaf in tree.leaves:
        share = float(tree.share[leaf]) * fleet
        mine = (paid == tree.paths[leaf]) & charged
        if tree.paths[leaf] == SLEEPER:
            useful = Steps.of_intervals((start + restore)[mine], (end - lost)[mine], gpus[mine])
            got = float(useful.between(ints([0, RECLAIM_WINDOW]))[0])
            result["delivered_over_entitlement"] = got / (share * RECLAIM_WINDOW)
        else:
            held = Steps.of_intervals(start[mine], end[mine], gpus[mine]).between(grid)[1:]
            result["others_minimum"] = min(result["others_minimum"], float(held.min()) / (share * HOUR))
    return result
