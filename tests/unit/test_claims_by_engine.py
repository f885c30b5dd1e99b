"""Who pays for a name of Slurm."""

from __future__ import annotations

import pytest

from divvy.errors import InputError
from divvy.fleet.budget import parse_budget
from divvy.fleet.claims import claimant_in

TREE = parse_budget("""
[accounts.lab]
share = 100
[accounts.lab.vision]
share = 60
slurm = ["vis", "vis-*"]
[accounts.lab.vision.maps]
share = 50
slurm = ["vis-maps", "vis-m*"]
[accounts.lab.language]
share = 40
[accounts.lab.speech]
share = 0
slurm = ["vis-maps-2"]
ray = ["ears"]
""").tree


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("vis", "lab.vision"),
        ("vis-3d", "lab.vision"),
        ("vis-maps", "lab.vision.maps"),
        ("vis-mono", "lab.vision.maps"),  # two patterns on one path: the account below wins
        ("vis-maps-2", "lab.speech"),  # the very name goes before a pattern
        ("language", "lab.language"),
        ("lab.language", "lab.language"),
        ("vision", None),  # it says which names it has
        ("ears", None),  # a name of another engine
        ("", None),
    ],
)
def test_a_name_of_slurm_is_claimed(name, path):
    assert claimant_in("slurm", name, TREE) == path


def test_two_claims_on_one_name_are_refused():
    tree = parse_budget(
        '[accounts.a]\nshare = 50\nslurm = ["x*"]\n[accounts.b]\nshare = 50\nslurm = ["*y"]\n'
    ).tree
    with pytest.raises(InputError, match="'xy' is claimed by a, b"):
        claimant_in("slurm", "xy", tree)
