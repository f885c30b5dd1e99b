"""What is owed per model is a feasible flow, nobody gets more than its share, and nobody could get more fairly."""

from __future__ import annotations

from decimal import Decimal
from itertools import combinations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog

from divvy.fleet.account import AccountSpec, build_tree
from divvy.planners.jobs.feasible import feasible, feasible_shares

MODELS = ("a", "b", "c", "d")
WANT = st.sets(st.sampled_from(MODELS), min_size=1).map(frozenset)
CASE = st.tuples(
    st.lists(st.tuples(WANT, st.integers(0, 50)), min_size=1, max_size=6),
    st.lists(st.integers(1, 60), min_size=4, max_size=4),
)


def largest_share(supply, wants, capacity, fixed):
    """Return, by linear programming, the largest ratio that all accounts not fixed can have together."""
    accounts = list(supply)
    edges = [(a, m) for a in accounts for m in sorted(wants[a])]
    objective = np.zeros(len(edges) + 1)
    objective[-1] = -1
    equal, right = [], []
    for account in accounts:
        row = [1.0 if a == account else 0.0 for a, _ in edges]
        equal.append([*row, 0.0 if account in fixed else -supply[account]])
        right.append(fixed.get(account, 0.0))
    upper = [[1.0 if m == model else 0.0 for _, m in edges] + [0.0] for model in capacity]
    bounds = [(0, None)] * len(edges) + [(0, 1)]
    found = linprog(objective, upper, list(capacity.values()), equal, right, bounds)
    return found.x[-1] if found.status == 0 else None


@given(CASE)
@settings(max_examples=120, deadline=None)
def test_it_is_the_fairest_flow_there_is(case):
    listed, sizes = case
    supply = {n: float(amount) for n, (_, amount) in enumerate(listed)}
    wants = {n: wanted for n, (wanted, _) in enumerate(listed)}
    capacity = dict(zip(MODELS, sizes, strict=True))
    got = feasible(supply, wants, capacity)
    assert set(got) == set(supply)
    for account, weight in got.items():
        assert -1e-9 <= weight <= supply[account] + 1e-9
    for count in range(1, len(MODELS) + 1):
        for models in map(frozenset, combinations(MODELS, count)):
            inside = sum(got[a] for a in got if wants[a] <= models)
            assert inside <= sum(capacity[m] for m in models) + 1e-6, "more than there is"
    # Max-min: raise the least ratio as far as it goes, fix whom that binds, and go on: the textbook's way.
    ratios = sorted({round(got[a] / supply[a], 9) for a in got if supply[a]})
    fixed = {a: 0.0 for a in supply if not supply[a]}
    for ratio in ratios:
        assert largest_share(supply, wants, capacity, fixed) == pytest.approx(min(ratio, 1), abs=1e-6)
        fixed |= {a: got[a] for a in got if supply[a] and round(got[a] / supply[a], 9) == ratio}


def test_two_accounts_that_want_the_scarce_model_share_it_and_the_third_keeps_its_own():
    tree = build_tree(
        [
            AccountSpec("lab", Decimal(100)),
            AccountSpec("lab.x", Decimal(40)),
            AccountSpec("lab.y", Decimal(20)),
            AccountSpec("lab.z", Decimal(40)),
        ]
    )
    nominal = [float(share) for share in tree.share]
    wants = {2: frozenset({"h100"}), 3: frozenset({"h100"}), 4: frozenset({""})}
    shares = feasible_shares(tree, nominal, wants, {"h100": 30, "a100": 70})
    assert shares == pytest.approx([1.0, 0.7, 0.2, 0.1, 0.4])


@pytest.mark.parametrize(
    ("wants", "capacity"),
    [
        ({2: frozenset({"h100"})}, {"h100": 100}),
        ({2: frozenset({""}), 3: frozenset({""})}, {"h100": 1, "a100": 99}),
        ({2: frozenset({"h100"})}, {"h100": 50, "a100": 50}),
        ({}, {"h100": 1, "a100": 1}),
    ],
)
def test_where_there_is_enough_of_everything_shares_are_what_was_written(wants, capacity):
    tree = build_tree(
        [AccountSpec(name, Decimal(share)) for name, share in (("a", 30), ("b", 50), ("c", 20))]
    )
    assert feasible_shares(tree, [float(share) for share in tree.share], wants, capacity) is None


def test_a_model_that_is_not_there_is_owed_to_nobody():
    assert feasible({1: 5.0, 2: 5.0}, {1: frozenset({"gone"}), 2: frozenset({"a"})}, {"a": 9}) == {
        1: 0.0,
        2: 5.0,
    }
