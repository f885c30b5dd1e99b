from __future__ import annotations

import pytest

from divvy.cli import bench_core_replay
from divvy.cli.bench import BENCHMARKS, measure
from divvy.cli.bench_core_live import _slope, live_rows
from divvy.cli.bench_core_pass import pass_rows
from divvy.cli.bench_core_replay import replay_rows
from divvy.cli.bench_row import figure, quantile
from divvy.errors import NotFoundError
from divvy.fleet.job import Phase
from divvy.sim.crowd import Crowd, stage
from divvy.sim.traces.trace import Trace, TraceJob

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


def _trace():
    jobs = [
        TraceJob(f"t{n}", n * 600_000, 3_600_000 * (1 + n % 5), 1 + n % 4, "ab"[n % 2]) for n in range(300)
    ]
    return Trace(tuple(jobs))


def test_rows_of_replays():
    rows = list(replay_rows(seeds=(0, 1), trace=_trace(), shapes={"4 GPUs": "1x4"}, warmup=0))
    assert all(list(row) == KEYS for row in rows)
    mine = {row["measure"]: row for row in rows if row["contender"] == "divvy"}
    assert {row["case"] for row in mine.values()} == {"Philly, 4 GPUs"}
    assert 0 < mine["delivered/owed, hour"]["value"] <= mine["delivered/owed, period"]["value"] <= 1
    assert mine["GPU time lost"]["value"] >= mine["GPU time lost, of resumable jobs"]["value"] >= 0
    low, high = mine["delivered/owed, period"]["interval"]
    assert low <= mine["delivered/owed, period"]["value"] <= high
    assert mine["replay, wall clock"]["met"] is (mine["replay, wall clock"]["value"] <= 10)
    published = [row for row in rows if row["contender"] == "published (Ai2)"]
    assert published and all(row["target"] is None and row["met"] is None for row in published)


def test_a_part_of_the_trace_says_nothing_about_the_time_of_the_whole():
    rows = list(replay_rows(seeds=(0,), trace=_trace(), shapes={"4 GPUs": "1x4"}, warmup=0, days=(0, 1)))
    wall = next(row for row in rows if row["measure"] == "replay, wall clock")
    assert wall["met"] is None and wall["target"] == 10 and "only days 0 to 1" in wall["note"]


def test_replays_without_the_trace_are_skipped_with_the_reason(monkeypatch):
    monkeypatch.setattr(bench_core_replay, "find_data", lambda _part: None)
    rows = [row for row in replay_rows(seeds=(0,)) if row["contender"] == "divvy"]
    assert len(rows) == 26
    assert all(row["value"] is None and row["met"] is None and "skipped" in row["note"] for row in rows)


def test_the_slope_of_a_line_is_exact_and_of_noise_is_uncertain():
    assert _slope([0, 10, 20, 30], [5, 25, 45, 65]) == (pytest.approx(2), pytest.approx(0, abs=1e-9))
    slope, half = _slope([0, 10, 20, 30], [0, 30, 0, 30])
    assert slope - half < 0 < slope + half


@pytest.mark.e2e
def test_rows_of_a_real_control_plane():
    rows = list(live_rows(launches=2, jobs=10, limit_seconds=60))
    assert all(list(row) == KEYS for row in rows)
    measures = [(row["contender"], row["measure"]) for row in rows]
    assert ("HTTP API", "p50") in measures and ("divvy submit", "p99") in measures
    growth = next(row for row in rows if row["measure"] == "growth per finished job, loop + API")
    assert growth["target"] == 2048 and growth["interval"][0] <= growth["value"] <= growth["interval"][1]
    assert 20 < rows[-1]["value"] < 2_000
