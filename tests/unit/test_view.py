import json

import pytest

from divvy.control.state import FleetState
from divvy.control.view import View, describe
from divvy.fleet.budget import parse_budget
from divvy.fleet.decision import Plan, Standing, Wait
from divvy.fleet.event import NodeChanged, Placed, SlotHeld, Started, Submitted
from divvy.fleet.job import JobSpec
from divvy.fleet.node import Node
from divvy.fleet.reason import Reason
from divvy.units import DAY, HOUR

LAB = """
[accounts.lab]
share = 100
[accounts.lab.vision]
share = 60
[accounts.lab.language]
share = 40
"""
T0 = 1_699_999_200_000  # a full hour


def a_state():
    state = FleetState(parse_budget(LAB), epoch=T0)
    state.apply(NodeChanged(T0, Node("n1", 8)))
    state.apply(Submitted(T0, JobSpec("j1", "lab.vision", "ada", 6, HOUR)))
    state.apply(Placed(T0, "j1", (("n1", 6),), True))
    state.apply(Started(T0, "j1"))
    state.apply(Submitted(T0, JobSpec("j2", "lab.vision", "ada", 4, HOUR)))
    state.apply(SlotHeld(T0, "j2", (("n1", 4),), T0 + HOUR))
    return state


def a_view():
    state = a_state()
    row = state.snapshot.tree.row["lab.vision"]
    plan = Plan(
        state.snapshot.version,
        T0 + HOUR,
        (),
        (Standing(row, 0, 0.4, 3, 6, 0, 1, 4),),
        ((1, Wait(Reason.WAIT_CAPACITY, 4, 2, 0, 0, row)),),
    )
    return describe(state.snapshot, plan, T0 + HOUR, "budget")


def test_a_view_survives_json():
    view = a_view()
    assert View.from_document(json.loads(json.dumps(view.to_document()))) == view


def test_parents_hold_what_their_children_hold():
    accounts = {account.path: account for account in a_view().accounts}
    assert [*accounts] == ["lab", "lab.vision", "lab.language"]
    assert (accounts["lab"].held, accounts["lab"].waiting_gpus) == (6, 4)
    assert accounts["lab"].usage == accounts["lab.vision"].usage == 6 * HOUR
    assert accounts["lab.vision"].balance == 0.4, "the plan's number, not one computed again"


def test_waits_and_authors_are_named_not_numbered():
    view = a_view()
    assert view.waits["j2"].owed_by == "lab.vision"
    assert view.slots == {"j2": (T0 + HOUR, (("n1", 4),))}
    assert view.authors == {"lab.vision": {"ada": 12 * HOUR}}, "six hours had, and an hour for what runs"


def described(now):
    snapshot = a_state().snapshot
    return {
        account.path: account
        for account in describe(snapshot, Plan(snapshot.version, now), now, "budget").accounts
    }


def test_a_new_account_is_owed_a_day_of_its_share_at_least():
    assert described(T0 + HOUR)["lab.language"].entitlement == pytest.approx(0.4 * 8 * DAY)


def test_entitlement_grows_with_the_capacity_of_the_window():
    assert described(T0 + 3 * DAY)["lab.language"].entitlement == pytest.approx(0.4 * 8 * 3 * DAY)


def test_without_a_standing_the_balance_is_usage_over_entitlement():
    account = described(T0 + 3 * DAY)["lab.vision"]
    assert (account.rank, account.floor) == (-1, -1)
    assert (
        account.balance == pytest.approx(account.usage / account.entitlement) == pytest.approx(6 / (0.6 * 8))
    )
