"""A gang that the floors of others leave no room for is told so, and starts when they have less to do."""

from divvy.control.state import FleetState
from divvy.fleet.budget import parse_budget
from divvy.fleet.event import NodeChanged, Placed, Started, Stopped, Submitted
from divvy.fleet.job import JobSpec, StopCause
from divvy.fleet.node import Node
from divvy.fleet.reason import Reason
from divvy.planners.base import Context
from divvy.planners.jobs.budget import BudgetPlanner
from divvy.units import DAY, HOUR

SHARES = "[accounts.a]\nshare = 50\n[accounts.b]\nshare = 50\n"


def fleet(*running):
    """Return a state with two nodes of 8 and runs of account b that are long past their minimum."""
    state = FleetState(parse_budget(SHARES))
    for name in ("n0", "n1"):
        state.apply(NodeChanged(0, Node(name, 8)))
    for name, node, gpus in running:
        state.apply(Submitted(0, JobSpec(name, "b", "u", gpus, HOUR)))
        state.apply(Placed(0, name, ((node, gpus),), protected=True))
        state.apply(Started(0, name))
    return state


def reason_of_the_gang(state, gpus, at=2 * DAY):
    if "gang" not in state.snapshot.jobs.row:
        state.apply(Submitted(at - HOUR, JobSpec("gang", "a", "u", gpus, HOUR)))
    plan = BudgetPlanner().plan(state.snapshot, Context(at))
    waits = dict(plan.waits)
    row = state.snapshot.jobs.row["gang"]
    return waits[row].reason if row in waits else None


def test_a_gang_as_large_as_the_fleet_waits_for_the_floors_of_others():
    state = fleet(("b0", "n0", 8), ("b1", "n1", 8))
    assert reason_of_the_gang(state, 16) is Reason.WAIT_FLOORS, "b keeps 5.6 devices while it has work"
    state.apply(Stopped(2 * DAY, "b0", StopCause.FINISHED, requeue=False))
    assert reason_of_the_gang(state, 16, 2 * DAY + 1) is Reason.WAIT_FLOORS
    state.apply(Stopped(2 * DAY + 1, "b1", StopCause.FINISHED, requeue=False))
    assert reason_of_the_gang(state, 16, 2 * DAY + 2) is None, "it starts"


def test_a_gang_that_the_floors_leave_room_for_is_not_told_of_them():
    state = fleet(("b0", "n0", 8), ("b1", "n1", 8))
    assert reason_of_the_gang(state, 8) is None, "one node of b is above its floor of 5.6"
