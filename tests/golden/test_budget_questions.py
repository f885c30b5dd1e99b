"""What the budget policy answers where its source leaves a question open, each by hand on one node of 8."""

import pytest

from divvy.sim.measures import Window
from divvy.sim.statement import replay_statement
from divvy.units import HOUR
from replayed import job, play, replayed, runs_of

PATIENCE = 5 / 60


def starts(runs):
    return {name: begin for name, begin, *_ in reversed(runs)}


def taken(runs):
    return [(name, pytest.approx(end), by) for name, _, end, _, by in runs if by]


@pytest.mark.parametrize(("floor", "first", "second"), [(0.7, "a1", "b2"), (0, "b2", "a1")])
def test_who_is_below_the_floor_goes_first_whatever_the_balances_say(floor, first, second):
    runs = play(
        job("a0", "a", 0, 20, 8, 8),
        job("b0", "b", 20, 1, least=8),
        job("b1", "b", 20, 10, least=8),
        job("a1", "a", 20.5, 1),
        job("b2", "b", 20.5, 1),
        policy=f"floor = {floor}",
    )
    assert (starts(runs)[first], starts(runs)[second]) == (21, 22)


TWO = (job("s1", "a", 0, 30), job("s2", "a", 0, 30))


@pytest.mark.parametrize(("option", "at"), [("false", 12), ("true", 10 + PATIENCE)])
def test_an_account_that_is_still_owed_is_no_victim_unless_the_option_says_so(option, at):
    runs = play(*TWO, job("b1", "b", 10, 1), policy=f"reclaim_from_owed = {option}")
    assert starts(runs)["b1"] == pytest.approx(at), "8 devices for 12 hours are half of the first day"


def test_the_victim_is_the_one_with_the_fewest_devices_beyond_the_need_then_the_youngest():
    wide = play(job("six", "a", 0, 40, 6), job("two", "a", 0, 40, 2), job("b1", "b", 25, 1, 2))
    assert taken(wide) == [("two", 25 + PATIENCE, "b1")]
    even = play(job("elder", "a", 0, 40), job("younger", "a", 1, 40), job("b1", "b", 26, 1))
    assert taken(even) == [("younger", 26 + PATIENCE, "b1")]


def test_an_exchange_does_not_repeat():
    runs = play(job("s1", "a", 0, 60), job("s2", "a", 0, 60), job("b1", "b", 25, 20), job("b2", "b", 25, 20))
    assert len(taken(runs)) == 1, "a keeps its floor, and b is behind for a long time: nobody takes back"


@pytest.mark.parametrize(("fields", "runs_of_it"), [({}, 1), ({"restart": True}, 2)])
def test_what_cannot_resume_is_a_victim_like_others_and_ends_or_starts_from_zero(fields, runs_of_it):
    both = (job(name, "a", at, 40, resumable=False, **fields) for name, at in (("s1", 0), ("s2", 1)))
    runs = play(*both, job("b1", "b", 26, 1))
    assert taken(runs) == [("s2", 26 + PATIENCE, "b1")]
    again = [end - begin for name, begin, end, *_ in runs if name == "s2"]
    assert len(again) == runs_of_it
    assert again[1:] == [pytest.approx(40)] * (runs_of_it - 1)


@pytest.mark.parametrize(("hours", "protected"), [(25, False), (10, True)])
def test_a_newcomer_that_swaps_inherits_the_lack_of_protection_where_its_account_is_over_served(
    hours, protected
):
    runs = play(*TWO, job("hi", "a", hours, 2, least=2, priority=5))
    assert [by for *_, by in runs if by] == ["hi"], "an own job that ranks behind gives way"
    assert next(safe for name, _, _, safe, _ in runs if name == "hi") is protected


def test_inside_an_account_priority_then_the_debug_rule_then_fair_authors_then_age():
    runs = play(
        job("first", "a", 0, 2, 8, 2, author="z"),
        job("mine", "a", 0.1, 1, 8, author="z"),
        job("theirs", "a", 0.2, 1, 8, author="v"),
        job("later", "a", 0.3, 1, 8, author="v"),
        job("debug", "a", 0.4, 0.1, 8, 0.25, author="z"),
        job("high", "a", 0.5, 1, 8, author="z", priority=3),
    )
    assert [name for name, *_ in runs] == ["first", "high", "debug", "theirs", "later", "mine"]


def test_unallocated_work_goes_by_unallocated_time_then_age_and_gives_way_at_once():
    runs = play(
        job("block", "b", 0, 1, 8),
        job("a1", "a", 0, 1, 8, 0),
        job("a2", "a", 0.1, 2, 8, 0),
        job("b1", "b", 0.2, 1, 8, 0),
        job("paid", "b", 3.5, 1, 8),
    )
    assert [name for name, *_ in runs][:4] == ["block", "a1", "b1", "a2"]
    assert taken(runs) == [("a2", 3.5, "paid")]


def test_less_work_at_stake_goes_first_and_never_checkpointing_is_no_shield():
    runs = play(job("s1", "a", 0, 40), job("s2", "a", 1, 40, resumable=False), job("b1", "b", 26, 1))
    assert taken(runs) == [("s1", 26 + PATIENCE, "b1")], (
        "a quarter of an hour is less than the minimum of one"
    )
    late = job("s2", "a", 1, 40, least=0.1, resumable=False)
    runs = play(job("s1", "a", 0, 40), late, job("b1", "b", 26, 1))
    assert taken(runs) == [("s2", 26 + PATIENCE, "b1")], "at most one minimum runtime of it counts"


def test_a_gang_gets_a_date_and_only_what_is_unprotected_by_then_starts_before():
    runs = play(
        job("past", "a", 0, 25, 16),
        job("kept", "a", 25, 40, 8, 8),
        job("held", "a", 25, 40, 4, 6),
        job("gang", "b", 26, 2, 8, 2),
        job("long", "a", 27, 8, least=8),
        job("short", "a", 27.5, 8, 2, least=2),
        nodes="2x8",
    )
    begun = starts(runs)
    assert begun["short"] == 27.5, "its protection ends before the date"
    assert begun["gang"] == 31, "the end of the protection of what was there"
    assert sorted(taken(runs)[:2]) == [("held", 31, "gang"), ("short", 31, "gang")]
    assert begun["long"] >= 33


CROWD = (("a1", 0, 4), ("a2", 1, 4), ("c1", 0, 2), ("c2", 1, 2))


@pytest.mark.parametrize(("hours_alone", "victim"), [(8, "c2"), (0, "a2")])
def test_the_more_over_served_account_gives_way_first_even_if_that_evicts_more_than_is_needed(
    hours_alone, victim
):
    # a holds 8 devices and c 4, each with a quarter; a whole fleet for eight hours makes c as over-served as a.
    alone = [job("c0", "c", 0, hours_alone, 12, hours_alone)] if hours_alone else []
    both = (job(name, name[0], hours_alone + at, 60, gpus) for name, at, gpus in CROWD)
    runs = play(
        *alone,
        *both,
        job("b1", "b", hours_alone + 25, 1, 2),
        shares={"a": 25, "c": 25, "b": 50},
        nodes="1x12",
        policy="floor = 0.5",
    )
    assert taken(runs) == [(victim, hours_alone + 25 + PATIENCE, "b1")]


def test_a_fleet_that_shrinks_owes_less_and_one_that_grows_more():
    # Both would hold 4 of 8 devices; while the second node is away, 2 of 4, and nobody is charged for the rest.
    rows = (job(f"{account}{n}", account, 0, 40, 2, 1) for account in "ab" for n in range(2))
    away = [
        {"event": "capacity", "at": 36_000, "node": "node2", "gpus": 4, "state": "down"},
        {"event": "capacity", "at": 72_000, "node": "node2", "gpus": 4},
    ]
    done = replayed(*rows, *away, nodes="2x4")
    owed = {
        row.account: (row.owed // HOUR).tolist()
        for row in replay_statement(done, Window(0, 30 * HOUR))[0].rows
    }
    assert owed["a"] == owed["b"]
    assert owed["a"][:10] + owed["a"][10:20] + owed["a"][20:22] == [4] * 10 + [2] * 10 + [4] * 2
    charged = sum(entry.charge for entry in done.ledger)
    held = sum((end - begin) * 2 for _, begin, end, *_ in runs_of(done, "by"))
    assert charged == pytest.approx(held * HOUR), "what ran, and nothing for the devices that were away"
    for account in "ab":
        down = [
            name for name, begin, end, *_ in runs_of(done, "by") if name[0] == account and begin <= 11 < end
        ]
        assert len(down) == 1, "each keeps its half of what is left"
