"""A few seconds of every fault at random; `divvy bench soak` does the same for an hour."""

import pytest

from divvy.cli.bench_soak import rows

pytestmark = pytest.mark.e2e


def test_nothing_is_lost_or_doubled_under_faults():
    found = {row["measure"]: row for row in rows(minutes=0.25, seed=3)}
    assert found["jobs submitted"]["value"] >= 3
    assert (
        sum(found[fault]["value"] for fault in ("API killed", "loop and engine killed", "clock stepped")) >= 1
    )
    assert found["bad requests"]["value"] > 50
    wrong = {measure: row["note"] for measure, row in found.items() if row["met"] is False}
    assert wrong == {}
