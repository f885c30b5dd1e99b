"""Half-life and forgiveness: what past usage still counts."""

from decimal import Decimal

import pytest

from divvy.control.state import FleetState
from divvy.errors import InputError
from divvy.fleet.account import AccountSpec, build_tree
from divvy.fleet.budget import Budget, Policy, parse_budget
from divvy.fleet.event import NodeChanged, Placed, Started, Stopped, Submitted
from divvy.fleet.job import JobSpec, StopCause
from divvy.fleet.node import Node
from divvy.fleet.usage import ChargeHistory
from divvy.planners.jobs.balance import balances_at
from divvy.planners.jobs.window import UsageWindow
from divvy.units import DAY, HOUR


def balances(policy, *spans, at):
    """Return the balances of a and b (half each of 2 devices) after runs of (account, devices, from, to)."""
    tree = build_tree([AccountSpec("a", Decimal(50)), AccountSpec("b", Decimal(50))])
    state = FleetState(Budget(policy, tree))
    state.apply(NodeChanged(0, Node("n", 2)))
    for number, (account, gpus, start, end) in enumerate(spans):
        job = f"j{number}"
        state.apply(Submitted(start, JobSpec(job, account, "u", gpus, HOUR)))
        state.apply(Placed(start, job, (("n", gpus),), protected=True))
        state.apply(Started(start, job))
        state.apply(Stopped(end, job, StopCause.FINISHED, requeue=False))
    found = balances_at(state.snapshot, at, 2, [1.0, 0.5, 0.5])
    return found.of[1], found.of[2]


def test_usage_counts_half_after_a_half_life():
    window = UsageWindow(Policy(usage_half_life=DAY))
    charges = []
    for age in (0, DAY, 2 * DAY, 3 * DAY):
        history = ChargeHistory()
        history.add(10 * DAY - age - HOUR, 1)
        history.add(10 * DAY - age, -1)
        charges.append(window.of(history, 10 * DAY))
    assert charges == pytest.approx([charges[0] / 2**n for n in range(4)], rel=0.005)
    assert charges[0] == pytest.approx(HOUR, rel=0.02)


def test_steady_usage_of_the_share_is_a_balance_of_one_under_any_half_life():
    for half_life in (0, 6 * HOUR, DAY, 3 * DAY):
        policy = Policy(usage_half_life=half_life)
        ran = (("a", 1, 0, 8 * DAY), ("b", 1, 0, 8 * DAY))
        assert balances(policy, *ran, at=8 * DAY) == pytest.approx((1, 1))


def test_a_half_life_forgets_an_old_burst_sooner():
    burst = ("a", 2, 0, 2 * DAY)
    (kept, _), (faded, _) = (
        balances(Policy(usage_half_life=half_life), burst, at=6 * DAY) for half_life in (0, DAY)
    )
    assert kept == pytest.approx(2 / 3)
    assert faded < 0.15


def test_over_use_before_the_horizon_is_forgiven_and_what_is_owed_from_then_stays_owed():
    burst = ("a", 2, 0, 3 * DAY)
    at = 6 * DAY
    assert balances(Policy(), burst, at=at) == pytest.approx((1.0, 0.0))
    steady = ("a", 1, 3 * DAY, 6 * DAY)
    assert balances(Policy(), burst, steady, at=at)[0] == pytest.approx(1.5)
    forgiving = Policy(forgiveness=2 * DAY)
    assert balances(forgiving, burst, steady, at=at) == pytest.approx((1.0, 0.0))


def test_without_them_the_window_is_the_tapered_one():
    history = ChargeHistory()
    history.add(0, 3)
    policy = Policy()
    assert UsageWindow(policy).of(history, 9 * DAY) == history.windowed(
        9 * DAY, policy.lookback, policy.taper
    )
    assert UsageWindow(policy).first_day() == DAY


def test_a_horizon_beyond_the_window_is_refused():
    with pytest.raises(InputError) as caught:
        parse_budget('[policy]\nforgiveness = "7d"\nusage_half_life = 3\n[accounts.a]\nshare = 1\n')
    assert [fault.path for fault in caught.value.faults] == [
        "budget.policy.usage_half_life",
        "budget.policy.forgiveness",
    ]
