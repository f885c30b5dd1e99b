"""The numbers of KAI's documentation."""

from decimal import Decimal

import pytest

from divvy.fleet.account import AccountSpec, build_tree
from divvy.planners.jobs.kai import divide, min_runtime

TREE = build_tree(
    [
        AccountSpec(path, Decimal(50))
        for path in ("A", "A.B", "A.B.C", "A.B.D", "A.B.C.leaf1", "A.B.C.leaf2", "A.B.D.leaf3")
    ]
)
VALUES = {"A.B": 600, "A.B.D": 60, "A.B.C.leaf1": 0, "A.B.C.leaf2": 180}


@pytest.mark.parametrize(
    ("mine", "theirs", "seconds"),
    [
        ("leaf1", "leaf2", 180),
        ("leaf2", "leaf1", 0),
        ("leaf3", "leaf1", 600),
        ("leaf3", "leaf2", 600),
        ("leaf1", "leaf3", 60),
        ("leaf2", "leaf3", 60),
    ],
)
def test_the_lowest_common_ancestor_decides_as_in_the_documentation(mine, theirs, seconds):
    rows = {path.rpartition(".")[2]: row for path, row in TREE.row.items()}
    assert min_runtime(TREE, rows[mine], rows[theirs], VALUES, 7) == seconds


def test_without_any_value_the_default_holds():
    rows = {path.rpartition(".")[2]: row for path, row in TREE.row.items()}
    assert min_runtime(TREE, rows["leaf1"], rows["leaf3"], {}, 7) == 7


def test_quota_comes_first_and_the_rest_goes_by_weight():
    assert divide(10, [2, 2], [10, 10], [1, 3], [0, 0]) == pytest.approx([2 + 1.5, 2 + 4.5])


def test_nobody_gets_more_than_it_asks_for_and_the_rest_goes_round_again():
    assert divide(10, [0, 0, 0], [1, 10, 10], [1, 1, 1], [0, 0, 0]) == pytest.approx([1, 4.5, 4.5])
    assert sum(divide(10, [3, 3], [1, 2], [1, 1], [0, 0])) == 3


def test_past_use_lowers_the_part_by_k():
    # P = w + k (w - u): 0.5 + 0.5 (0.5 - 0.9) = 0.3 and 0.5 + 0.5 (0.5 - 0.1) = 0.7.
    assert divide(10, [0, 0], [10, 10], [1, 1], [0.9, 0.1], k=0.5) == pytest.approx([3, 7])
    # A large k takes everything from the one that has used most; a quota stays.
    assert divide(10, [2, 0], [10, 10], [1, 1], [0.9, 0.1], k=10) == pytest.approx([2, 8])


def test_without_past_use_it_is_the_plain_division():
    assert divide(9, [1, 1], [9, 9], [2, 1], [0, 0], k=5) == pytest.approx(
        divide(9, [1, 1], [9, 9], [2, 1], [0, 0], k=0)
    )
