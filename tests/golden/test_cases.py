"""Recorded passes that must be decided again as they were: incidents, one file each.

A file comes from `divvy replay SEQ --export FILE`. When a change of a planner is meant to change one,
`divvy replay FILE --accept` makes the new plan the expected one, and the diff shows what changed.
"""

import json
from pathlib import Path

import pytest

from divvy.control.journal import run_case
from divvy.planners.jobs import registry

CASES = sorted(Path(__file__).with_name("cases").glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_case(path):
    verdict = run_case(json.loads(path.read_text(encoding="utf-8")), registry.create)
    assert verdict.differences() == []
    assert verdict.same


def test_there_are_cases():
    assert CASES
