import json

import pytest

from divvy.cli import bench_budgets, bench_gaming
from divvy.cli.bench import measure
from divvy.cli.bench_runs import Runs
from divvy.errors import InputError
from divvy.planners.jobs.registry import PLANNERS
from divvy.sim.experiment import Experiment, perform
from divvy.sim.gaming import Game, play
from divvy.sim.traces import read_trace
from divvy.sim.tricks import HONEST, TRICKS
from divvy.units import HOUR

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Return a contended day of two accounts on sixteen devices."""
    rows = [HEADER]
    for number in range(120):
        hour, minute = divmod(number * 12, 60)
        gpus = (1, 1, 2, 4, 8)[number % 5]
        seconds = 1800 + 600 * (number % 7)
        rows.append(
            f"2017-09-10 {hour:02d}:{minute:02d}:00,{seconds},{gpus},{seconds * gpus},{'ab'[number % 2]}\n"
        )
    path = tmp_path_factory.mktemp("trace") / "small.csv"
    path.write_text("".join(rows))
    return path


def experiment(**changes):
    return Experiment(**{"policy": "budget", "seed": 0, "nodes": "2x8", "warmup": HOUR} | changes)


def test_a_description_survives_as_plain_values():
    one = experiment(settings=(("floor", 0.5), ("max_min_runtime", HOUR)), days=(0, 1), gangs=True)
    assert Experiment.from_document(json.loads(json.dumps(one.to_document()))) == one
    game = Game(
        "kai", 1, "2x8", "all HIGH", "heavy", alone=True, days=(0, 1), warmup=HOUR, settings=(("floor", 0.5),)
    )
    assert Game.from_document(json.loads(json.dumps(game.to_document()))) == game


def test_a_process_of_its_own_gives_the_same_figures_and_they_are_kept(file, tmp_path):
    trace = read_trace(file.read_bytes(), "philly", file.name)
    here = perform(experiment(), trace, lambda: 0.0)
    runs = Runs(file, cache=tmp_path / "cache")
    apart = dict(runs.one(experiment()))
    apart["wall_seconds"] = 0.0
    assert apart == here
    assert len(list((tmp_path / "cache").iterdir())) == 1
    # Another run finds it, even when there is no time to run anything; a damaged one is as good as none.
    late = Runs(file, cache=tmp_path / "cache", minutes=0)
    assert late.one(experiment())["occupancy"] == here["occupancy"]
    assert late.one(experiment(seed=1)) is None
    next((tmp_path / "cache").iterdir()).write_text('{"occu')
    assert Runs(file, cache=tmp_path / "cache", minutes=0).one(experiment()) is None


def test_settings_pools_and_the_reclaim_scenario_reach_the_replay(file):
    trace = read_trace(file.read_bytes(), "philly", file.name)
    plain = perform(experiment(), trace, lambda: 0.0)
    for changes in ({"settings": (("max_min_runtime", HOUR // 4),)}, {"pooled": True}, {"spread": 0.0}):
        assert perform(experiment(**changes), trace, lambda: 0.0) != plain
    reclaim = perform(experiment(reclaim=True, policy="static", nodes="5x2"), trace, lambda: 0.0)
    assert set(reclaim) == {"reclaim.delivered_over_entitlement", "reclaim.others_minimum"}
    # Own devices stand idle for 48 of 168 hours and cannot be had back.
    assert reclaim["reclaim.delivered_over_entitlement"] < 120 / 168


def test_the_table_has_every_case_and_the_rows_tell_what_was_not_run(file, monkeypatch):
    monkeypatch.setattr(bench_budgets, "find_data", lambda _: file)
    rows = list(bench_budgets.rows(minutes=0, seeds=2, parts=["table"]))
    assert {row["contender"] for row in rows} == set(PLANNERS)
    assert len({row["case"] for row in rows}) == 16
    assert all(row["value"] is None and "not run" in row["note"] for row in rows)
    assert all(row["target"] is None for row in rows if row["contender"] != "budget")
    parts = {
        name: len(list(bench_budgets.rows(minutes=0, seeds=2, parts=[name]))) for name in bench_budgets.PARTS
    }
    assert all(parts.values())


def test_without_the_file_every_row_says_so(monkeypatch):
    monkeypatch.setattr(bench_budgets, "find_data", lambda _: None)
    monkeypatch.setattr(bench_gaming, "find_data", lambda _: None)
    for module in (bench_budgets, bench_gaming):
        part = next(iter(module.PARTS))
        rows = list(module.rows(parts=[part]))
        assert rows and all("skipped" in row["note"] for row in rows)


def test_a_mean_an_interval_and_the_paired_difference():
    own = tuple(experiment(seed=seed) for seed in (0, 1))
    other = tuple(experiment(seed=seed, policy="fifo") for seed in (0, 1))
    figures = {
        one: {"delivered_over_owed.hour": value}
        for one, value in zip(own + other, (0.9, 0.8, 0.7, 0.5), strict=True)
    }
    aims = (bench_budgets.Aim("hour", "delivered_over_owed.hour", target=0.93),)
    line = bench_budgets.Line("case", "fifo", other, aims, "", own)
    mean, gap = bench_budgets._rows(line, figures.get, "not run")
    assert mean["value"] == pytest.approx(0.6) and mean["n"] == 2 and mean["met"] is False
    assert gap["value"] == pytest.approx(-0.25)
    assert gap["interval"][0] < -0.25 < gap["interval"][1]


def test_limits_are_refused_where_nothing_takes_them():
    with pytest.raises(InputError, match="takes no --minutes"):
        measure("slices", limits={"minutes": 1.0})


@pytest.mark.parametrize("trick", [HONEST, *TRICKS])
def test_a_trick_changes_what_the_tricker_submits_and_nothing_of_others(file, trick):
    trace = read_trace(file.read_bytes(), "philly", file.name)
    game = Game("budget", 0, "2x8", trick, "heavy", warmup=HOUR)
    figures = play(game, trace, lambda: 0.0)
    assert figures["account.jobs"] > 0
    assert figures["account.slowdown"] >= 1
    if trick == "zero-minimum harvesting":
        assert figures["account.allocated"] == 0 < figures["account.unallocated"]
    if trick in ("all 8 h", "sleepers"):
        assert figures["account.unallocated"] == 0
    assert figures == play(game, trace, lambda: 0.0)


def test_gains_are_taken_against_the_twin():
    twin = {"account.allocated": 80.0, "account.unallocated": 20.0, "account.slowdown": 4.0}
    one = {"account.allocated": 90.0, "account.unallocated": 5.0, "account.slowdown": 2.0}
    game = Game("budget", 0, "2x8", "all HIGH", "heavy")
    match = bench_gaming.Match("all HIGH", "heavy", False, bench_gaming.PLAYERS[0], ((game, game),))
    rows = list(bench_gaming._gains(match, [(one, twin)], "", quick=False))
    gains = {row["measure"]: (row["value"], row["met"]) for row in rows}
    assert gains["useful charged GPU-hours, gain"] == (0.1, False)
    assert gains["useful unallocated GPU-hours, gain"] == (-0.15, None)
    assert gains["GPU-hours in all, gain"] == (-0.05, None)
    assert gains["slowdown, gain"] == (0.5, False)
