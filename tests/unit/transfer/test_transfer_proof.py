"""The proof of path on counters made by hand: it agrees with the truth and with nothing else."""

from __future__ import annotations

import pytest

from divvy.transfer.interfaces import Passed
from divvy.transfer.proof import prove

DEVICES = {"r0>r0": "e0", "r1>r1": "e1"}
MB = 1_000_000


def proof(e0, e1, given0=80 * MB, given1=20 * MB, planned=("r0>r0", "r1>r1"), repeated=0):
    before = {"e0": Passed(5, 0), "e1": Passed(7, 0)}
    after = {"e0": Passed(5 + e0, 0), "e1": Passed(7 + e1, 0)}
    payload = {"r0>r0": given0, "r1>r1": given1}
    return prove(DEVICES, payload, before, after, planned, repeated_bytes=repeated)


def test_headers_on_top_of_the_bytes_agree():
    assert proof(81 * MB, int(20.3 * MB))["agrees"]


@pytest.mark.parametrize(
    ("case", "word"),
    [
        ({"e0": 0, "e1": 101 * MB}, "r0>r0: 80000000 bytes were given to it, but e0 counted only 0"),
        ({"e0": 101 * MB, "e1": 0}, "e1 counted only 0"),
        ({"e0": 140 * MB, "e1": 21 * MB}, "e0 counted 140000000 bytes out, 80000000 were given"),
        ({"e0": 81 * MB, "e1": 21 * MB, "planned": ("r0>r0",)}, "not in the plan"),
    ],
)
def test_bytes_on_another_interface_than_the_planned_one_are_an_error(case, word):
    found = proof(**case)
    assert not found["agrees"]
    assert any(word in text for text in found["mismatches"])


def test_what_a_broken_rail_sent_in_part_is_allowed_for_and_no_more():
    assert proof(70 * MB, 42 * MB, given1=40 * MB, repeated=12 * MB)["agrees"]
    assert not proof(50 * MB, 42 * MB, given1=40 * MB, repeated=12 * MB)["agrees"]
