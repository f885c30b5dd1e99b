"""Claims stand beside figures that were measured, and every claim finds its rows."""

import pytest

from divvy.cli.bench import measure
from divvy.cli.bench_row import figure
from divvy.service import schemas
from divvy.service.claims import CLAIMS, claims, recorded


@pytest.mark.parametrize("told", claims(), ids=lambda told: told["claim"])
def test_every_claim_finds_its_rows_and_says_how_to_repeat_them(told):
    assert told["measured"], "a claim without figures of ours"
    assert told["machine"]
    assert told["conditions"]
    assert not [row for row in told["measured"] if row in told["published"]]


def test_every_published_row_that_is_named_exists():
    for claim, told in zip(CLAIMS, claims(), strict=True):
        assert bool(claim.published) == bool(told["published"]), claim.title


def test_recorded_files_are_what_the_named_commands_print():
    for claim in CLAIMS:
        document = recorded(claim.record)
        assert document["schema"] == "divvy.bench/1"
        assert claim.command.startswith(f"divvy bench {document['name']} ")


def test_bench_claims_prints_rows_of_the_ordinary_shape_with_what_repeats_them():
    found = measure("claims")
    assert [set(row) for row in found["rows"]] == [set(figure("a", "b", 1.0, "c"))] * len(found["rows"])
    assert all("divvy bench " in row["note"] for row in found["rows"])
    assert len(found["rows"]) == sum(len(told["published"]) + len(told["measured"]) for told in claims())


def test_the_answer_has_its_shape():
    schemas.Claims.model_validate({"schema": "divvy.claims/1", "claims": claims()})
