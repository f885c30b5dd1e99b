"""What the verbs of `divvy slices` print with --json is what the published schemas say."""

from __future__ import annotations

import json

import jsonschema
import pytest
from typer.testing import CliRunner

from divvy.adapters.oip.measure import Measured
from divvy.cli.slice_profile import profile_document
from divvy.cli.slices import verb
from divvy.service.schemas.published import published

#: By schema: the arguments, with the files of `here`.
WORDS = {
    "slices.layouts.1": "layouts A30",
    "slices.read.1": "read list.txt",
    "slices.plan.1": "plan --profile fitted:bert --queries 200 --seeds 1 --emit k8s --events e.jsonl",
    "slices.compare.1": "compare --profile fitted:bert --gpus 1 --planners random,homogeneous,paris --queries 200 "
    "--dispatchers fifs,divvy:batching=1 --seeds 2 --plot plots --events c.jsonl",
    "slices.pack.1": "pack --profile fitted --scenario s.csv --gpus 3 --seeds 1",
    "slices.check.1": "profile --check p.csv",
    "slices.apply.1": "apply plan.json --emulate machine.json --yes",
    "slices.drift.1": "drift plan.json --seen seen.txt --rate 9 --new plan.json",
}
PLAN = {
    "schema": "divvy.slices.plan/1",
    "sku": "A100-80GB",
    "batches": {"1": 1.0},
    "rate_qps": 5,
    "layout": [{"gpu": 0, "slices": [{"profile": "1g.10gb", "start": 0}]}],
}
UUID = "c7384736-a75d-5afc-978f-d2f1294409fd"


@pytest.fixture
def here(tmp_path, monkeypatch):
    files = {
        "plan.json": json.dumps(PLAN),
        "seen.txt": "1\n2\n",
        "s.csv": "model,rate_qps,slo_ms\nbert,5,500\n",
        "p.csv": "slice,batch,latency_seconds\n1,1,0.004\n1,2,0.002\n7,1,0\n7,2,0.001\n",
        "list.txt": f"GPU 0: NVIDIA H100 (UUID: GPU-{UUID})\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)


def answer(words):
    done = CliRunner().invoke(verb, [*words.split(), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


@pytest.mark.parametrize("name", WORDS)
def test_documents_keep_their_schema(here, name):
    document = answer(WORDS[name])
    schema = published()[f"{name}.json"]
    jsonschema.validate(document, schema)
    assert set(document) <= set(schema["properties"]), "a member that the schema does not tell of"


def test_a_measurement_keeps_its_schema():
    found = (Measured(1, 4.0, 5.0, 9), Measured(2, None, None, 0, "500: out of memory"))
    document = profile_document("http://localhost", "m", "7", 1, found, ()) | {"csv": None}
    jsonschema.validate(document, published()["slices.profile.1.json"])


def test_every_schema_of_slices_is_tried():
    names = {name.removesuffix(".json") for name in published() if name.startswith("slices.")}
    assert names == {*WORDS, "slices.profile.1"}


def test_rules_that_run_queries_together_are_compared_under_their_own_bound(here):
    words = WORDS["slices.compare.1"].replace("random,homogeneous,paris", "homogeneous,exhaustive")
    rows = answer(words)["rows"]
    bounds = {row["dispatcher"]: row["bound_qps"] for row in rows}
    assert bounds["divvy:batching=1"] > bounds["fifs"] > 0
    assert all(0 < row["rate_qps"] <= row["bound_qps"] for row in rows)
    best = {row["planner"]: row["rate_qps"] for row in rows if row["dispatcher"] == "divvy:batching=1"}
    assert best["exhaustive"] >= best["homogeneous"] * 0.9, "the oracle looks beyond the unbatched bound too"
