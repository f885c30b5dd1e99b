"""The rows of ``divvy bench routes``: their shape, and the truths that must hold."""

from __future__ import annotations

from divvy.cli.bench_routes_claims import claim_rows, truth_rows
from divvy.cli.bench_row import row

KEYS = set(row("case", "contender", "measure", 1.0, "unit"))


def test_truths_come_out_of_the_model():
    rows = list(truth_rows())
    assert all(set(r) == KEYS for r in rows)
    judged = [r for r in rows if r["target"] is not None]
    assert len(judged) == 5
    assert len({(r["case"], r["measure"]) for r in rows}) == len(rows)
    assert all(r["met"] for r in judged), judged


def test_claims_stand_beside_figures():
    rows = list(claim_rows())
    assert all(set(r) == KEYS for r in rows)
    speed = {(r["contender"], r["measure"]): r["value"] for r in rows if r["unit"] == "ratio"}
    assert 8.5 < speed["TopKV's rule, NVSwitch, 8 GPUs", "one transfer"] < 9.5
    assert (
        speed["divvy, NVSwitch, 8 GPUs", "one transfer"]
        >= speed["TopKV's rule, NVSwitch, 8 GPUs", "one transfer"]
    )
    hidden = [r["value"] for r in rows if r["case"].startswith("layer-wise") and "divvy" in r["contender"]]
    assert all(0 <= value < 1 for value in hidden)
