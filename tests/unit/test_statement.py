import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from divvy.control.facts import Adjustment, Capacity, Demand, Epoch, Occupancy
from divvy.control.hourly import HourSums
from divvy.control.statement import make_statement
from divvy.fleet.budget import parse_budget
from divvy.units import HOUR, MINUTE

TREE = parse_budget(
    """
[accounts.lab]
share = 100
[accounts.lab.a]
share = 60
[accounts.lab.b]
share = 40
"""
).tree
T0 = 100 * HOUR


def statement(demands=(), runs=(), hours=2, capacity=((0, 10),), epochs=None, adjustments=()):
    epochs = epochs or [Epoch(0, TREE)]
    made = make_statement(
        T0, T0 + hours * HOUR, epochs, [Capacity(*step) for step in capacity], demands, runs, adjustments
    )
    return {row.account: row for row in made.rows}


def run(account, start, end, gpus, *, allocated=True, lost=False, declared=HOUR):
    return Occupancy(
        account, start, end, gpus, gpus, allocated, (end - start) * lost, declared, protected=declared
    )


def test_owed_is_the_share_or_the_demand_whichever_is_less_hour_by_hour():
    rows = statement([Demand("lab.a", T0, T0 + HOUR, 100), Demand("lab.a", T0 + HOUR, T0 + 2 * HOUR, 2)])
    assert rows["lab.a"].entitled.tolist() == [6 * HOUR, 6 * HOUR]
    assert rows["lab.a"].owed.tolist() == [6 * HOUR, 2 * HOUR]
    assert rows["lab.b"].owed.sum() == 0, "no demand, nothing owed"


def test_demand_is_averaged_over_the_hour():
    rows = statement([Demand("lab.a", T0 + 30 * MINUTE, T0 + 45 * MINUTE, 8)], hours=1)
    assert rows["lab.a"].demand.tolist() == [2 * HOUR]


def test_an_hour_cannot_make_up_for_another_in_the_hourly_figure():
    demand = [Demand("lab.a", T0, T0 + 2 * HOUR, 100)]
    rows = statement(demand, [run("lab.a", T0, T0 + HOUR, 10)])
    assert rows["lab.a"].delivered.sum() == 10 * HOUR
    assert rows["lab.a"].capped_by_hour == 6 * HOUR
    assert rows["lab.a"].capped == 10 * HOUR


def test_lost_and_unallocated_time_is_not_delivered():
    runs = [
        run("lab.a", T0, T0 + HOUR, 3, lost=True),
        run("lab.a", T0, T0 + HOUR, 2, allocated=False),
        run("lab.a", T0 + HOUR, T0 + 2 * HOUR, 1, declared=3 * HOUR),
    ]
    row = statement(runs=runs)["lab.a"]
    assert (row.delivered.sum(), row.lost.sum(), row.unallocated.sum()) == (HOUR, 3 * HOUR, 2 * HOUR)
    assert row.charged == 4 * HOUR, "lost time stays charged, free time is not"
    assert (row.declared, row.used) == (3 * HOUR + 3 * HOUR, 3 * HOUR + HOUR)


def test_parents_are_the_sums_of_their_children():
    demand = [Demand("lab.a", T0, T0 + HOUR, 9), Demand("lab.b", T0, T0 + HOUR, 1)]
    runs = [run("lab.a", T0, T0 + HOUR, 7), run("lab.b", T0, T0 + HOUR, 1)]
    rows = statement(demand, runs, adjustments=[Adjustment("lab.b", T0, -5, "refund")])
    assert rows["lab"].delivered.sum() == 8 * HOUR
    assert rows["lab"].charged == rows["lab.a"].charged + rows["lab.b"].charged
    assert rows["lab"].owed.sum() == rows["lab.a"].owed.sum() + rows["lab.b"].owed.sum() == 7 * HOUR
    assert rows["lab"].as_one.sum() == 10 * HOUR, "what b leaves unused a may have first"
    assert [each.cause for each in rows["lab"].adjustments] == ["refund"]


def test_shares_and_capacity_change_inside_an_hour():
    halved = parse_budget("[accounts.lab]\nshare = 100\n[accounts.lab.a]\nshare = 30\n").tree
    epochs = [Epoch(0, TREE), Epoch(T0 + 30 * MINUTE, halved)]
    rows = statement(hours=1, epochs=epochs, capacity=((0, 10), (T0 + 45 * MINUTE, 2)))
    quarter = 15 * MINUTE
    assert rows["lab.a"].entitled.tolist() == [2 * quarter * 6 + quarter * 3 + int(quarter * 0.6)]
    assert set(rows) == {"lab", "lab.a"}, "the tree in force at the end"


def test_nothing_is_assumed_before_the_first_node():
    rows = statement(capacity=((T0 + HOUR, 10),))
    assert rows["lab"].capacity.tolist() == [0, 10 * HOUR]


def test_runs_and_demand_outside_the_period_or_the_tree_count_for_nothing():
    rows = statement(
        [Demand("lab.a", 0, T0, 5), Demand("lab.gone", T0, T0 + HOUR, 5)],
        [run("lab.a", T0 - HOUR, T0, 5), run("lab.gone", T0, T0 + HOUR, 5), run("lab.a", T0, T0, 5)],
    )
    assert rows["lab"].delivered.sum() == rows["lab"].demand.sum() == rows["lab"].charged == 0


def test_a_run_across_the_edge_is_charged_by_its_part():
    row = statement(runs=[run("lab.a", T0 - HOUR, T0 + 90 * MINUTE, 4)])["lab.a"]
    assert row.charged == 4 * 90 * MINUTE
    assert row.delivered.tolist() == [4 * HOUR, 2 * HOUR]


@given(
    st.integers(0, 5 * HOUR),
    st.integers(1, 5 * HOUR),
    st.lists(
        st.tuples(st.integers(0, 12 * HOUR), st.integers(0, 12 * HOUR), st.integers(-9, 99)), max_size=6
    ),
)
def test_hour_sums_agree_with_the_plain_integral(start, length, steps):
    end = start + length
    sums = HourSums(start, end)
    inside = [sums.add(begin, until, rate) for begin, until, rate in steps]
    edges = range(start // HOUR, -(-end // HOUR))
    expected = [
        sum(
            rate * max(0, min(until, (h + 1) * HOUR, end) - max(begin, h * HOUR, start))
            for begin, until, rate in steps
        )
        for h in edges
    ]
    assert sums.hours().tolist() == expected
    assert int(np.sum(sums.hours())) == sum(inside)


def test_sums_over_many_long_jobs_are_exact():
    months = [Demand("lab.a", T0 + i, T0 + i + 700 * HOUR, 1) for i in range(10_000)]
    rows = statement(months, hours=720)
    assert rows["lab"].demand.sum() == 7_000_000 * HOUR
