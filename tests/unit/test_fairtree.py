import math
import random
from decimal import Decimal

import numpy as np
import pytest

from divvy.fleet.account import AccountSpec, build_tree
from divvy.planners.jobs.fairtree import DecayedUsage, FairTree
from divvy.units import DAY, MINUTE

HALF_LIFE = 7 * DAY


def documented(tree, leaves, usage):
    """Fair Tree as the documentation tells it: a recursive walk, ties merged. Slow and literal."""
    used = [0.0] * len(tree)
    for leaf, amount in zip(leaves, usage, strict=True):
        for row in (*tree.lineage[leaf], 0):
            used[row] += amount
    users = {}
    for number, leaf in enumerate(leaves):
        users.setdefault(leaf, []).append(number)
    factor, rank = [0.0] * len(leaves), len(leaves)

    def level_fs(kind, subject):
        if kind == "user":
            shares = 1 / len(users[leaves[subject]])
            part, whole = usage[subject], used[leaves[subject]]
        else:
            siblings = tree.children[tree.parent[subject]]
            total = float(sum(tree.specs[row - 1].share for row in siblings))
            shares = float(tree.specs[subject - 1].share) / total if total else 0.0
            part, whole = used[subject], used[tree.parent[subject]]
        part = part / whole if whole else 0.0
        if not shares:
            return -math.inf
        return -(part / shares)

    def below(kind, row):
        if kind == "user":
            return []
        if tree.children[row]:
            return [("account", child) for child in tree.children[row] if used_by_anyone(child)]
        return [("user", number) for number in users.get(row, [])]

    def used_by_anyone(row):
        return any(row in tree.lineage[leaf] for leaf in leaves)

    def walk(group):
        nonlocal rank
        ordered = sorted(group, key=lambda one: -level_fs(*one))
        while ordered:
            best = level_fs(*ordered[0])
            tied = [one for one in ordered if level_fs(*one) == best]
            ordered = ordered[len(tied) :]
            for number in [subject for kind, subject in tied if kind == "user"]:
                factor[number] = rank / len(leaves)
            rank -= sum(1 for kind, _ in tied if kind == "user")
            walk_children = [child for one in tied for child in below(*one)]
            if walk_children:
                walk(walk_children)

    walk(below("account", 0))
    return factor


def tree_of(*pairs):
    return build_tree([AccountSpec(path, Decimal(share)) for path, share in pairs])


def test_all_users_of_a_better_served_account_come_after_those_of_a_worse_served_one():
    tree = tree_of(("a", 50), ("b", 50))
    leaves = [tree.row["a"], tree.row["a"], tree.row["b"]]
    factors = FairTree(tree).factors(leaves, np.array([5.0, 0.0, 4.0]))
    assert list(factors) == [1 / 3, 2 / 3, 1.0]


def test_usage_is_held_against_the_share():
    tree = tree_of(("a", 80), ("b", 20))
    factors = FairTree(tree).factors([tree.row["a"], tree.row["b"]], np.array([40.0, 11.0]))
    assert list(factors) == [1.0, 0.5]


def test_an_account_without_share_comes_last():
    tree = tree_of(("a", 100), ("b", 0))
    factors = FairTree(tree).factors([tree.row["b"], tree.row["a"]], np.array([0.0, 40.0]))
    assert list(factors) == [0.5, 1.0]


def test_users_who_tie_get_the_same_rank_and_the_next_one_a_rank_per_user_less():
    tree = tree_of(("a", 100))
    factors = FairTree(tree).factors([1, 1, 1, 1], np.array([0.0, 3.0, 0.0, 9.0]))
    assert list(factors) == [1.0, 0.5, 1.0, 0.25]


def test_children_of_accounts_that_tie_are_sorted_together():
    tree = tree_of(("a", 50), ("b", 50))
    leaves = [tree.row["a"], tree.row["a"], tree.row["b"], tree.row["b"]]
    # a and b have used the same; their users interleave by their own usage.
    factors = FairTree(tree).factors(leaves, np.array([1.0, 9.0, 4.0, 6.0]))
    assert list(factors) == [1.0, 0.25, 0.75, 0.5]


@pytest.mark.parametrize("seed", range(30))
def test_the_arrays_agree_with_the_documented_walk(seed):
    rng = random.Random(seed)
    specs = [
        ("a", 40),
        ("b", 30),
        ("c", 0),
        ("a.x", 50),
        ("a.y", 25),
        ("b.x", 100),
        ("a.x.p", 60),
        ("a.x.q", 40),
    ]
    tree = tree_of(*specs)
    leaves = [rng.choice(tree.leaves) for _ in range(rng.randint(1, 12))]
    usage = [float(rng.choice([0, 0, 1, 2, 4, 8])) for _ in leaves]
    assert list(FairTree(tree).factors(leaves, np.array(usage))) == pytest.approx(
        documented(tree, leaves, usage)
    )


def test_usage_halves_every_half_life():
    usage = DecayedUsage(HALF_LIFE)
    for who in range(2):
        assert usage.grow() == who
    usage.change(0, 0, 8)
    usage.change(0, MINUTE, -8)
    usage.change(1, HALF_LIFE, 8)
    usage.change(1, HALF_LIFE + MINUTE, -8)
    early, late = usage.at(HALF_LIFE + MINUTE)
    assert late / early == pytest.approx(2)


def test_usage_that_runs_on_approaches_its_steady_state():
    usage = DecayedUsage(HALF_LIFE)
    usage.grow()
    usage.grow()
    usage.change(0, 0, 1)
    usage.change(1, 0, 2)
    for weeks in (1, 10, 100):
        one, two = usage.at(weeks * HALF_LIFE)
        assert two / one == pytest.approx(2)


def test_years_do_not_overflow_and_change_no_ratio():
    epoch = 1_700_000_000_000  # ms, as live
    usage = DecayedUsage(HALF_LIFE)
    usage.grow()
    usage.grow()
    usage.change(0, epoch, 1)
    for week in range(2000):
        usage.change(1, epoch + week * HALF_LIFE, 1)
        usage.change(1, epoch + week * HALF_LIFE + DAY, -1)
    steady, weekly = usage.at(epoch + 2000 * HALF_LIFE)
    assert np.isfinite([steady, weekly]).all()
    # A day at the beginning of every week, against every day: the oldest day of a week counts least.
    assert weekly / steady == pytest.approx(2 ** (1 / 7) - 1, rel=1e-6)
