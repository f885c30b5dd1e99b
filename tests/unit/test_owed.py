"""What accounts are owed of fleets with several device models, by hand and as properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divvy.control.facts import Capacity, Demand, Epoch
from divvy.control.owed import owed_in_cells
from divvy.control.statement import make_statement
from divvy.fleet.budget import parse_budget
from divvy.units import HOUR

TREE = parse_budget("[accounts.a]\nshare = 50\n[accounts.b]\nshare = 30\n[accounts.c]\nshare = 20\n").tree


def owed(demand, capacity, entitled=(50, 30, 20)):
    cells = owed_in_cells(
        [np.array([due]) for due in entitled],
        [{model: np.array([amount]) for model, amount in each.items()} for each in demand],
        {model: np.array([amount]) for model, amount in capacity.items()},
    )
    return [float(each[0]) for each in cells]


def test_nobody_is_owed_more_of_a_model_than_there_is():
    # a and b both ask for the 16 H100 alone, 50:30; c asks for the other 84 devices and has its share.
    found = owed([{"H100": 99}, {"H100": 99}, {"A100": 99}], {"H100": 16, "A100": 84})
    assert found == pytest.approx([10, 6, 20])


def test_what_an_account_does_not_ask_for_goes_to_the_others_who_want_that_model():
    found = owed([{"H100": 4}, {"H100": 99}, {"A100": 99}], {"H100": 16, "A100": 84})
    assert found == pytest.approx([4, 12, 20])


def test_an_account_that_takes_any_model_is_owed_its_whole_share():
    found = owed([{"H100": 99}, {"H100": 99, "": 99}, {"": 99}], {"H100": 16, "A100": 84})
    assert found == pytest.approx([16, 30, 20])


def test_what_is_asked_of_a_model_beyond_all_of_it_is_no_demand():
    found = owed([{"H100": 99, "A100": 5}, {}, {}], {"H100": 16, "A100": 84})
    assert found == pytest.approx([21, 0, 0])


def test_a_model_that_is_gone_is_owed_to_nobody():
    assert owed([{"H100": 9}, {"A100": 9}, {}], {"H100": 0, "A100": 84}) == pytest.approx([0, 9, 0])


def test_one_model_is_the_smaller_of_share_and_demand():
    assert owed([{"": 99}, {"H100": 10}, {}], {"H100": 100}) == pytest.approx([50, 10, 0])


def test_the_statement_owes_what_is_feasible_in_every_hour():
    # The H100 come back in the second hour.
    made = make_statement(
        0,
        2 * HOUR,
        [Epoch(0, TREE)],
        [Capacity(0, 84, (("A100", 84),)), Capacity(HOUR, 100, (("A100", 84), ("H100", 16)))],
        [Demand("a", 0, 2 * HOUR, 99, "j1", "H100"), Demand("b", 0, 2 * HOUR, 99, "j2", "H100")],
        [],
    )
    rows = {row.account: row.owed.tolist() for row in made.rows}
    assert rows == {"a": [0, 10 * HOUR], "b": [0, 6 * HOUR], "c": [0, 0]}


MODELS = st.sampled_from(["", "A100", "H100", "L40S"])


@given(
    st.lists(st.dictionaries(MODELS, st.integers(0, 200), max_size=4), min_size=3, max_size=3),
    st.dictionaries(st.sampled_from(["A100", "H100", "L40S"]), st.integers(1, 60), min_size=2),
)
def test_owed_is_within_share_demand_and_every_set_of_models(demand, capacity):
    total = sum(capacity.values())
    entitled = [share * total / 100 for share in (50, 30, 20)]
    found = owed(demand, capacity, entitled)
    for due, share, asked in zip(found, entitled, demand, strict=True):
        assert 0 <= due <= min(share, sum(asked.values())) + 1e-6
    for mask in range(1, 1 << len(capacity)):
        chosen = {model for bit, model in enumerate(sorted(capacity)) if mask >> bit & 1}
        bound_to = sum(
            due
            for due, asked in zip(found, demand, strict=True)
            if {model for model, amount in asked.items() if amount and (model in capacity or not model)}
            <= chosen
        )
        assert bound_to <= sum(capacity[model] for model in chosen) + 1e-6
