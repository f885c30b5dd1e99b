"""Reports that come late: an engine that tells whole seconds speaks of a past that a pass has looked at."""

from divvy.control.codec import plan_bytes
from divvy.control.state import FleetState
from divvy.fleet.budget import read_budget
from divvy.fleet.event import NodeChanged, Placed, Started, Submitted
from divvy.fleet.job import JobSpec
from divvy.fleet.node import Node
from divvy.planners.base import Context
from divvy.planners.jobs import registry
from divvy.planners.jobs.balance import tick_of
from divvy.units import HOUR, MINUTE


def test_a_start_from_before_the_tick_moves_balances_at_once():
    budget = read_budget({"accounts": {"a": {"share": 50}, "b": {"share": 50}}})
    now = tick_of(100 * HOUR, budget.policy.lookback) + MINUTE
    tick = tick_of(now, budget.policy.lookback)
    state = FleetState(budget)
    state.apply(NodeChanged(0, Node("n", 4)))
    for number, account in enumerate("abab"):
        state.apply(Submitted(tick - HOUR, JobSpec(f"j{number}", account, "ada", 2, HOUR)))
    kept = registry.create("budget")

    def decided_alike():
        plan = kept.plan(state.snapshot, Context(now, 0, explain=True))
        anew = registry.create("budget").plan(state.snapshot, Context(now, 0, explain=True))
        return plan_bytes(plan, state.snapshot) == plan_bytes(anew, state.snapshot)

    for number in (0, 1):
        state.apply(Placed(tick - 2 * MINUTE, f"j{number}", (("n", 2),), protected=True))
    assert decided_alike()
    state.apply(Started(tick - MINUTE, "j0"))
    assert decided_alike()
