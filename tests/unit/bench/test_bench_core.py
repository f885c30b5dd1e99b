from __future__ import annotations

import pytest

from divvy.cli.bench import BENCHMARKS, measure
from divvy.cli.bench_core_pass import pass_rows
from divvy.cli.bench_row import figure, quantile
from divvy.errors import NotFoundError
from divvy.fleet.job import Phase
from divvy.sim.crowd import Crowd, stage

KEYS = ["case", "contender", "measure", "value", "unit", "interval", "n", "target", "met", "note"]
TINY = Crowd(nodes=12, levels=(2, 2), pending=150, later=60, rounds=2)


def test_met_follows_from_the_value():
    assert figure("c", "m", 3.0, "ms", target=5)["met"] is True
    assert figure("c", "m", 3.0, "ms", target=5, at_least=True)["met"] is False
    assert figure("c", "m", None, "ms", target=5)["met"] is None
    assert list(figure("c", "m", 1.0, "", interval=(0, 2))) == KEYS


def test_quantile_is_the_nearest_rank():
    values = [float(n) for n in range(1, 201)]
    assert quantile(values, 0.99) == 198
    assert quantile(values, 0.5) == 100
    assert quantile([7.0], 0.99) == 7


def test_unknown_names_list_the_known_ones():
    with pytest.raises(NotFoundError) as caught:
        measure("cores")
    assert all(name in str(caught.value.to_problem()) for name in BENCHMARKS)
    with pytest.raises(NotFoundError) as caught:
        measure("core", parts=["passes"])
    assert "pass" in str(caught.value.to_problem())


def test_the_crowd_is_a_full_fleet_with_a_queue_and_a_past():
    scene = stage(TINY)
    snapshot = scene.state.snapshot
    jobs = snapshot.jobs
    phases = [jobs.phase[row] for row in jobs.live]
    assert phases.count(Phase.QUEUED) == TINY.pending
    assert set(phases) == {Phase.QUEUED, Phase.RUNNING}
    assert 0 <= sum(snapshot.nodes.free) <= TINY.gpus // 10
    assert snapshot.tree.leaves and len(snapshot.tree.leaves) == TINY.accounts
    assert max(snapshot.tree.depth) == len(TINY.levels)
    used = [snapshot.usage[leaf].total(scene.clock.time) for leaf in snapshot.tree.leaves]
    assert sum(used) > 0
    now = scene.clock.time
    ages = [jobs.protected_until[row] > now for row in jobs.live if jobs.phase[row] is Phase.RUNNING]
    assert True in ages and False in ages


def test_the_crowd_is_the_same_for_the_same_seed():
    one, other = stage(TINY), stage(TINY)
    assert one.state.snapshot.jobs.spec == other.state.snapshot.jobs.spec
    assert one.state.snapshot.jobs.placement == other.state.snapshot.jobs.placement


def test_rows_of_a_pass():
    told: list[str] = []
    rows = list(pass_rows(TINY, passes=8, warm=(2, 2), announce=told.append))
    assert all(list(row) == KEYS for row in rows)
    by_measure = {row["measure"]: row for row in rows}
    late = by_measure["p99"]
    assert late["n"] == 8 and late["target"] == 50 and late["met"] is (late["value"] <= 50)
    assert by_measure["p50"]["value"] <= late["value"] <= by_measure["longest"]["value"]
    assert "150 pending" in late["note"]
    assert told


def test_a_pass_benchmark_that_takes_too_long_says_so():
    rows = list(pass_rows(TINY, passes=8, warm=(2, 2), limit_seconds=0))
    assert "before the crowd had settled" in {row["measure"]: row for row in rows}["p99"]["note"]
    assert rows[0]["n"] == 1
