from decimal import Decimal

from divvy.control.state import FleetState
from divvy.fleet.account import AccountSpec, build_tree
from divvy.fleet.budget import Budget, Policy
from divvy.fleet.event import BudgetChanged, NodeChanged, Placed, Started, Stopped, Submitted
from divvy.fleet.job import JobSpec, StopCause
from divvy.fleet.node import Node
from divvy.planners.base import Context
from divvy.planners.jobs.fairshare import FairsharePlanner
from divvy.units import HOUR, MINUTE


def budget(*pairs):
    return Budget(Policy(), build_tree([AccountSpec(path, Decimal(share)) for path, share in pairs]))


def submit(state, name, account, at, gpus=2):
    state.apply(Submitted(at, JobSpec(name, account, f"{account}-user", gpus, HOUR, time_limit=HOUR)))


def ran(state, name, start, end):
    state.apply(Placed(start, name, (("n", 2),), protected=True))
    state.apply(Started(start, name))
    state.apply(Stopped(end, name, StopCause.FINISHED, requeue=False))


def started(plan, state):
    return [state.snapshot.jobs.spec[decision.job].id for decision in plan.decisions]


def test_usage_follows_the_account_through_a_change_of_the_tree():
    state = FleetState(budget(("old", 10), ("a", 45), ("b", 45)))
    state.apply(NodeChanged(0, Node("n", 2)))
    planner = FairsharePlanner()
    submit(state, "past", "old", 0)
    ran(state, "past", 0, HOUR)
    submit(state, "used", "a", HOUR)
    ran(state, "used", HOUR, 3 * HOUR)
    planner.plan(state.snapshot, Context(3 * HOUR))
    # The account "old" goes, and the rows of the others trade places.
    document = budget(("b", 50), ("a", 50)).to_document()
    state.apply(BudgetChanged(3 * HOUR, document, "ada", "reorganised"))
    submit(state, "of-a", "a", 3 * HOUR)
    submit(state, "of-b", "b", 3 * HOUR + 1)
    now = Context(3 * HOUR + 5 * MINUTE)
    plan = planner.plan(state.snapshot, now)
    assert started(plan, state) == ["of-b"]
    assert plan == FairsharePlanner().plan(state.snapshot, now)


def test_priorities_change_at_the_period_and_not_in_between():
    state = FleetState(budget(("a", 50), ("b", 50)))
    state.apply(NodeChanged(0, Node("n", 2)))
    planner = FairsharePlanner()
    submit(state, "first", "a", 0)
    ran(state, "first", 0, 2 * MINUTE)
    submit(state, "of-a", "a", 2 * MINUTE)
    submit(state, "of-b", "b", 2 * MINUTE + 1)
    # Until the period ends nobody has used anything yet, so that the older job goes first.
    assert started(planner.plan(state.snapshot, Context(4 * MINUTE)), state) == ["of-a"]
    assert started(planner.plan(state.snapshot, Context(5 * MINUTE)), state) == ["of-b"]
    assert started(FairsharePlanner().plan(state.snapshot, Context(4 * MINUTE)), state) == ["of-a"]


def test_a_week_of_waiting_and_a_larger_gang_count_too():
    state = FleetState(budget(("a", 100)))
    state.apply(NodeChanged(0, Node("n", 2)))
    for name, at, gpus in (("old", 0, 1), ("young", 8 * 24 * HOUR, 1), ("large", 8 * 24 * HOUR, 2)):
        submit(state, name, "a", at, gpus)
    planner = FairsharePlanner()
    assert started(planner.plan(state.snapshot, Context(9 * 24 * HOUR)), state)[0] == "old"
    state.apply(Placed(9 * 24 * HOUR, "old", (("n", 1),), protected=True))
    state.apply(Started(9 * 24 * HOUR, "old"))
    state.apply(Stopped(9 * 24 * HOUR + 1, "old", StopCause.FINISHED, requeue=False))
    assert started(planner.plan(state.snapshot, Context(9 * 24 * HOUR + 2)), state) == ["large"]
