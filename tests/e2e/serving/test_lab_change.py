"""A change of layouts while queries run: none fails, also when it is broken off half-way and goes on."""

from __future__ import annotations

import pytest

from divvy.cli import bench_serving_change
from divvy.cli.bench_serving_change import change_rows
from divvy.cli.bench_serving_stage import Case, Stage
from divvy.cli.lab_change import Clock, lost_by_clock, lost_by_steps
from divvy.fleet.mig.change import plan_change
from divvy.fleet.mig.layout import place
from divvy.fleet.mig.skus import find_sku


@pytest.mark.e2e
@pytest.mark.enable_socket
def test_layouts_change_under_load_without_a_failed_query(monkeypatch):
    monkeypatch.setattr(bench_serving_change, "_ACT_SECONDS", 0.05)
    monkeypatch.setattr(bench_serving_change, "_LAYOUTS", ("7,7", "4+3,7", "3+3,7"))
    failed, price = change_rows(Stage(Case("bert", 2, 0.2)), quick=False)
    assert failed["value"] == 0 and failed["n"] > 20
    assert price["value"] is not None


def test_the_price_counts_what_leaves_from_the_first_step_on_a_gpu_to_the_last():
    sku = find_sku("A100-80GB")
    change, _ = plan_change(sku, [place(sku, {"7g.80gb": 1})], [place(sku, {"3g.40gb": 2})], "bare")
    assert [step.act for step in change.steps] == ["drain", "destroy", *["create"] * 2, *["serve"] * 2]
    assert lost_by_steps(change, {"drain": 1.0, "destroy": 1.0, "create": 2.0, "serve": 3.0}) == 7 * 12.0
    clock = Clock()
    for step in change.steps:
        clock.note(step, 0.5)
    assert lost_by_clock(change, clock) == 7 * 3.0 and clock.means()["serve"] == 0.5
