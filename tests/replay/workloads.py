"""Small random workloads for the replay tests."""

from __future__ import annotations

import random

from divvy.fleet.node import Node, NodeState
from divvy.sim.accounts import equal_shares
from divvy.sim.engine import Pace
from divvy.sim.scenario import Scenario
from divvy.sim.traces.trace import CapacityChange, Trace, TraceJob
from divvy.units import DAY, HOUR, MINUTE, SECOND

NODES = tuple(Node(f"n{row}", 8) for row in range(3))


def busy_week(seed, jobs=400, days=6):
    """Return a contended week on three nodes, one of which drains, dies and comes back."""
    rng = random.Random(seed)
    made = [
        TraceJob(
            f"j{number:04d}",
            int(at * DAY),
            max(SECOND, int(rng.lognormvariate(0, 1.3) * 40 * MINUTE)),
            rng.choice([1, 1, 1, 2, 4, 8, 16]),
            rng.choice(["red", "red", "red", "green", "green", "blue"]),
        )
        for number, at in enumerate(sorted(rng.uniform(0, days) for _ in range(jobs)))
    ]
    made[0] = made[0]._replace(submit=0)
    changes = (
        CapacityChange(int(2.2 * DAY), Node("n2", 8, state=NodeState.DRAINING, cause="maintenance")),
        CapacityChange(int(2.6 * DAY), Node("n2", 8, state=NodeState.DOWN, cause="maintenance")),
        CapacityChange(int(3.1 * DAY), Node("n2", 8)),
        CapacityChange(int(4.3 * DAY), Node("n1", 4)),
    )
    return Trace(tuple(made), changes)


def scenario(seed, **options):
    """Return the week with honest contracts and equal shares."""
    trace = busy_week(seed)
    budget, claims = equal_shares(trace)
    pace = Pace(30 * MINUTE, 3 * MINUTE)
    return Scenario(trace, NODES, budget, claims, pace=pace, **options)


__all__ = ["HOUR", "NODES", "busy_week", "scenario"]
