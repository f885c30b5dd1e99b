from decimal import Decimal
from fractions import Fraction

import pytest

from divvy.errors import InputError
from divvy.fleet.account import AccountSpec, build_tree
from divvy.fleet.budget import parse_budget, read_budget
from divvy.units import DAY, HOUR

LAB = """
[policy]
lookback = "7d"
floor = 0.7
[accounts.lab]
share = 100
[accounts.lab.vision]
share = 60
owners = ["ada"]
slurm = ["vis", "vis-*"]
[accounts.lab.language]
share = 40
"""


def test_effective_share_is_the_product_down_the_tree():
    tree = build_tree([AccountSpec("a", Decimal(50)), AccountSpec("a.b", Decimal("33.3"))])
    assert tree.share[tree.row["a.b"]] == Fraction(1665, 10000)


def test_a_budget_file_reads_back_from_its_own_document():
    budget = parse_budget(LAB)
    assert read_budget(budget.to_document()) == budget
    assert budget.tree.owners_over("lab.vision") == {"ada"}


@pytest.mark.parametrize(
    ("window", "taper"),
    [
        ("", DAY),
        ('lookback = "1h"', HOUR),
        ('lookback = "2d"', DAY),
        ('lookback = "1h"\ntaper = "10m"', HOUR // 6),
    ],
)
def test_a_shorter_window_alone_shortens_its_taper(window, taper):
    budget = parse_budget(f"[policy]\n{window}\n[accounts.lab]\nshare = 100\n")
    assert budget.policy.taper == taper
    assert read_budget(budget.to_document()) == budget


def test_a_taper_longer_than_the_window_is_a_fault():
    with pytest.raises(InputError, match="taper: longer than the lookback"):
        parse_budget('[policy]\nlookback = "1h"\ntaper = "2h"\n[accounts.lab]\nshare = 100\n')


def test_all_faults_are_reported_at_once_with_their_paths():
    text = """
[policy]
floor = 1.5
lookback = 7
colour = "red"
[accounts.lab]
share = 100
[accounts.lab.vision]
share = 120
[accounts.lab.language]
share = -3
owners = "ada"
"""
    with pytest.raises(InputError) as caught:
        parse_budget(text)
    found = {(fault.path, fault.code) for fault in caught.value.faults}
    assert found == {
        ("budget.policy.floor", "policy-value"),
        ("budget.policy.lookback", "policy-value"),
        ("budget.policy.colour", "policy-key"),
        ("budget.lab.vision.share", "share-range"),
        ("budget.lab.language.share", "share-range"),
        ("budget.lab.language.owners", "budget-type"),
        ("budget.lab", "share-sum"),
    }
    assert "budget.lab.vision.share: 120 > 100" in str(caught.value)


def test_unknown_parents_and_duplicates_are_faults():
    with pytest.raises(InputError) as caught:
        build_tree(
            [AccountSpec("a.b", Decimal(1)), AccountSpec("c", Decimal(1)), AccountSpec("c", Decimal(2))]
        )
    assert [fault.code for fault in caught.value.faults] == ["account-parent", "account-duplicate"]


def test_paths_part_below_the_lowest_common_ancestor():
    names = ["a", "a.x", "a.y", "b", "b.z"]
    tree = build_tree([AccountSpec(name, Decimal(10)) for name in names])
    row = tree.row
    assert tree.parting(row["a.x"], row["a.y"]) == (row["a.x"], row["a.y"])
    assert tree.parting(row["a.x"], row["b.z"]) == (row["a"], row["b"])
