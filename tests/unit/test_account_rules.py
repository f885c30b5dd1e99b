"""Rules of accounts in the budget file: members, limits, dated shares, order."""

import json
from decimal import Decimal

import pytest

from divvy.control.agenda import Agenda
from divvy.control.changes import budget_changes
from divvy.control.state import FleetState
from divvy.errors import InputError
from divvy.fleet.account_file import read_date
from divvy.fleet.budget import parse_budget, read_budget
from divvy.fleet.job import JobSpec
from divvy.planners.jobs.admission import check
from divvy.units import DAY, HOUR

LAB = """
[accounts.lab]
share = 100
owners = ["eve"]
members = ["*not a wildcard*", "ada", "bob"]
[accounts.lab.vision]
share = 60
members = ["ada"]
max_gpus = 16
author_max_gpus = 8
shares = [{ from = 2027-02-01, share = 30 }, { from = "2027-01-01T02:00:00+02:00", share = 50 }]
[accounts.lab.language]
share = 40
shares = [{ from = 2027-02-01, share = 70 }]
"""
JANUARY, FEBRUARY = 1_798_761_600_000, 1_801_440_000_000


def test_rules_are_read_and_written_back_unchanged_through_a_store_that_sorts_keys():
    budget = parse_budget(LAB)
    vision = budget.tree.specs[1]
    assert (vision.max_gpus, vision.author_max_gpus, vision.members) == (16, 8, ("ada",))
    assert vision.later == ((JANUARY, Decimal(50)), (FEBRUARY, Decimal(30)))
    stored = json.loads(json.dumps(budget.to_document(), sort_keys=True))
    assert read_budget(stored) == budget
    assert [spec.path for spec in read_budget(stored).tree.specs] == ["lab", "lab.vision", "lab.language"]


def test_the_order_is_left_out_where_sorting_keeps_it():
    assert "order" not in parse_budget("[accounts.a]\nshare = 1\n[accounts.b]\nshare = 1\n").to_document()


def test_a_new_order_alone_changes_nothing():
    budget = parse_budget(LAB).to_document()
    assert budget_changes(budget, budget | {"order": ["lab"]}) == []


def test_every_fault_of_the_rules_is_told_at_once():
    text = """
[accounts.a]
share = 50
max_gpus = -1
author_max_gpus = "many"
members = "ada"
shares = [{ from = 2027-01-01, share = 60 }, { from = 2027-01-01, share = 1 }, { share = 2 }]
[accounts.b]
share = 50
shares = [{ from = "soon", share = 1 }, { from = 1, share = 101 }]
[accounts.c]
share = 0
shares = "later"
"""
    with pytest.raises(InputError) as caught:
        parse_budget(text)
    assert [(fault.code, fault.path) for fault in caught.value.faults] == [
        ("budget-type", "budget.a.members"),
        ("account-limit", "budget.a.max_gpus"),
        ("account-limit", "budget.a.author_max_gpus"),
        ("share-dated", "budget.a.shares[1]"),
        ("share-dated", "budget.a.shares[2]"),
        ("share-dated", "budget.b.shares[0]"),
        ("share-range", "budget.b.shares[1]"),
        ("share-dated", "budget.c.shares"),
        ("share-sum", "budget"),
    ]
    assert "sum to 110 from 2027-01-01 00:00 UTC on" in str(caught.value)


@pytest.mark.parametrize(
    "value", [True, "2027-13-01", -1, float("nan"), float("inf"), "1969-01-01", None, []]
)
def test_what_is_no_date_is_refused(value):
    with pytest.raises(ValueError, match=r"1970|date"):
        read_date(value)


def test_dates_are_utc_where_they_do_not_say():
    assert read_date("2027-01-01") == read_date("2027-01-01T00:00:00Z") == read_date(1_798_761_600) == JANUARY


@pytest.mark.parametrize(
    ("author", "account", "codes"),
    [
        ("ada", "lab.vision", []),
        ("bob", "lab.vision", ["account-member"]),
        ("bob", "lab.language", []),
        ("eve", "lab.vision", []),
        ("mallory", "lab.language", ["account-member"]),
    ],
)
def test_the_nearest_list_of_members_says_who_may_submit(author, account, codes):
    spec = JobSpec("j1", account, author, 1, HOUR)
    assert [fault.code for fault in check(spec, parse_budget(LAB), [])] == codes


def test_a_job_that_no_limit_will_ever_allow_is_refused_unless_it_is_unallocated():
    budget = parse_budget(LAB)
    found = check(JobSpec("j1", "lab.vision", "ada", 9, HOUR), budget, [])
    assert [(fault.code, fault.allowed) for fault in found] == [("gpus-limit", "at most 8 devices at once")]
    assert check(JobSpec("j1", "lab.vision", "ada", 9, 0), budget, []) == []


def test_dated_shares_come_into_force_one_by_one_each_as_a_version():
    state = FleetState(parse_budget(LAB), epoch=JANUARY - DAY)
    agenda = Agenda()
    assert list(agenda.due(state.snapshot, JANUARY - 1)) == []
    assert agenda.next() == JANUARY
    seen = []
    for event in agenda.due(state.snapshot, FEBRUARY + DAY):
        state.apply(event)
        seen.append((event.at, event.author, event.reason, float(state.snapshot.tree.specs[1].share)))
    assert seen == [
        (JANUARY, "divvy", "dated share of lab.vision", 50.0),
        (FEBRUARY, "divvy", "dated share of lab.vision, lab.language", 30.0),
    ]
    assert agenda.next() == 0
    assert [epoch.since for epoch in state.snapshot.epochs] == [JANUARY - DAY, JANUARY, FEBRUARY]
