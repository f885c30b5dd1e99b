"""The replay of the whole fleet: leases follow the demand, fixed parts stay, queries and caches are counted."""

import json
import sys
from itertools import pairwise

import numpy as np
import pytest

from divvy.cli import main
from divvy.cli.one_means import roads_of
from divvy.fleet.job import JobSpec
from divvy.fleet.mig.skus import find_sku
from divvy.fleet.node import Node
from divvy.fleet.tenant import Pairing
from divvy.perf.fitted import fitted_profile
from divvy.perf.traffic import from_weights
from divvy.planners.slices.base import Request
from divvy.planners.slices.capacity import Block, Curve
from divvy.planners.slices.packing import lay_out
from divvy.planners.transfers.candidates import Finder
from divvy.service.schemas.one_plan import ScenarioView
from divvy.sim.whole.arrange import divided, is_lease
from divvy.sim.whole.moving import moved, places_at
from divvy.sim.whole.serving import attained
from divvy.sim.whole.timeline import START, Piece, Stay, pieces
from divvy.sim.whole.traffic import Traffic, rates, seen_rates, shape_of, spans
from divvy.units import DAY, HOUR, MINUTE

SKU = find_sku("A100-80GB")
WHOLE, SEVENTHS = lay_out(SKU, (0, 0, 0, 0, 1)), lay_out(SKU, (7, 0, 0, 0, 0))
REQUEST = Request(SKU, 1, fitted_profile("resnet50"), from_weights({4: 1.0}), 60_000)
CURVE = Curve(REQUEST, (Block((SEVENTHS,), "fifs", 300.0),))


def test_rates_have_their_mean_and_their_hours():
    traffic = Traffic(15 * MINUTE, swing=0.5, noise=0.1)
    found = rates(traffic, 100.0, 20 * DAY, 1, 0)
    assert len(found) == 20 * 96
    assert found.mean() == pytest.approx(100, rel=0.02)
    days = found.reshape(20, 96).mean(axis=0)
    assert days[44:52].mean() > 2.5 * days[:4].mean()
    assert (found == rates(traffic, 100.0, 20 * DAY, 1, 0)).all()
    assert (found != rates(traffic, 100.0, 20 * DAY, 2, 0)).any()


def test_a_recorded_shape_replaces_the_sine():
    shape = shape_of(np.concatenate([np.full(2_000, 0.5), np.full(1_000, 1.0)]), 4)
    assert shape == pytest.approx((1_000, 1_000, 500, 500), abs=2)
    found = rates(Traffic(15 * MINUTE, noise=0.0, shape=shape), 90.0, DAY, 1, 0)
    assert found[0] == pytest.approx(2 * found[-1], rel=0.01)


def test_a_service_plans_for_what_it_has_seen():
    assert seen_rates(np.array([1.0, 5.0, 2.0, 3.0])).tolist() == [1.0, 1.0, 5.0, 5.0]


def test_leases_follow_the_demand_and_the_youngest_ends_first():
    assert spans([1, 3, 2, 0, 1], 10, 50) == [(0, 0, 30), (1, 10, 30), (2, 10, 20), (0, 40, 50)]
    demand = [2, 5, 3, 3, 0, 4]
    for place, count in enumerate(demand):
        now = place * 10
        assert sum(begin <= now < end for _, begin, end in spans(demand, 10, 60)) == count


def test_a_fleet_in_two_parts_keeps_its_gpus():
    nodes = tuple(Node(f"n{n}", 8, "A100-80GB", 312) for n in range(3))
    parts = divided(nodes, 11)
    assert sum(node.gpus for node in parts) == 24
    assert {(node.name, node.gpus, node.model) for node in parts if node.model == "serve"} == {
        ("n2:serve", 8, "serve"),
        ("n1:serve", 3, "serve"),
    }
    assert {(node.name, node.gpus) for node in parts if node.model == "train"} == {("n0", 8), ("n1", 5)}


def keep(held, by_epoch, curve=CURVE):
    return pieces(
        held, curve, lambda slices: 40.0 * sum(slices), np.array(by_epoch), HOUR, len(by_epoch) * HOUR
    )


def test_a_gpu_serves_once_its_server_has_started():
    some, cuts = keep([Stay("a", 10 * MINUTE, HOUR, "n", allocated=True)], [50.0, 70.0])
    assert cuts == 0
    assert [(one.begin, one.end) for one in some if one.slices] == [(10 * MINUTE + START, HOUR)]
    assert {one.rate_qps for one in some if one.begin >= HOUR} == {70.0}
    assert (some[0].begin, some[-1].end) == (0, 2 * HOUR)
    assert all(one.end == other.begin for one, other in pairwise(some))


def test_fixed_layouts_serve_from_the_beginning():
    some, cuts = pieces([], CURVE, lambda _: 0.0, np.array([5.0, 6.0]), HOUR, 2 * HOUR, {"a": WHOLE}, "fifs")
    assert (cuts, [one.slices for one in some]) == (0, [(7,), (7,)])


def test_queries_are_in_time_where_there_is_room_and_late_where_there_is_none():
    def result(rate, slices):
        return attained(REQUEST, [Piece(0, HOUR, rate, slices, "fifs")], 0, 1)

    calm = result(20.0, (1,) * 7)
    assert calm.in_time > 0.99
    assert (calm.kept, calm.dark, calm.queries) == (1.0, 0.0, 72_000.0)
    flood = result(5_000.0, (1,) * 7)
    assert flood.in_time < 0.2
    assert flood.kept == 0
    nothing = result(20.0, ())
    assert (nothing.in_time, nothing.kept, nothing.dark) == (0.0, 0.0, 1.0)
    half = attained(
        REQUEST, [Piece(0, HOUR, 20.0, (1,) * 7, "fifs"), Piece(HOUR, 2 * HOUR, 20.0, (), "")], 0, 1
    )
    assert half.in_time == pytest.approx(0.5, abs=0.01)
    late = attained(
        REQUEST, [Piece(0, HOUR, 20.0, (), ""), Piece(HOUR, 2 * HOUR, 20.0, (7,), "fifs")], HOUR, 1
    )
    assert late.queries == 72_000


def test_caches_are_moved_between_the_places_that_are_held():
    nodes = tuple(Node(f"n{n}", 8, "A100-80GB", 312) for n in (1, 2))
    ways = roads_of(nodes, ())
    held = {
        "service:p": [
            Stay("p.1", 0, HOUR, "n1", allocated=True),
            Stay("p.2", 0, HOUR, "n2:serve", allocated=True),
        ],
        "service:d": [Stay("d.1", 0, HOUR, "n1", allocated=True), Stay("d.2", 0, HOUR, "n2", allocated=True)],
    }
    assert places_at(held["service:p"], held["service:d"], 0) == (
        ["n1/GPU0", "n2/GPU0"],
        ["n1/GPU1", "n2/GPU1"],
    )
    pairing = Pairing("p", "d", 512 << 20)
    own = moved(ways, Finder(ways), pairing, held, [0, HOUR], 1, own=True)
    label = moved(ways, Finder(ways), pairing, held, [0, HOUR], 1, own=False)
    assert (own.caches, own.blind, label.caches) == (8, 1, 8)
    # Four caches of half a GiB on average over one NVLink of 450 GB/s: between one alone and all in a row.
    assert 0.0005 < own.mean_s < 0.01
    assert own.last_s <= label.last_s * 1.1


SCENARIO = """
[fleet]
nodes = "2x4@A100-80GB"
slices = "homogeneous:7"
dispatcher = "fifs"
[accounts.labs]
share = 60
slurm = ["*"]
[accounts.serving]
share = 40
[[services]]
name = "p"
account = "serving"
sku = "A100-80GB"
profile = "fitted:bert"
batch = "fixed:4"
rate_qps = 60
slo = 400
most = 3
[[services]]
name = "d"
account = "serving"
sku = "A100-80GB"
profile = "fitted:bert"
batch = "fixed:4"
rate_qps = 60
slo = 400
most = 3
[[pairings]]
prefill = "p"
decode = "d"
kv_bytes = "100MB"
[training]
every = 3
[replay]
days = 0.5
warmup = "3h"
seeds = 2
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def act(text, *words):
        path = tmp_path / "s.toml"
        path.write_text(text, encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["divvy", "scenario", str(path), *words])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        return code, *capsys.readouterr()

    return act


def test_a_scenario_is_the_same_twice_and_pairs_seeds(run):
    code, out, _ = run(SCENARIO, "--json")
    assert code == 0
    document = json.loads(out)
    ScenarioView.model_validate(document)
    first, *others = document["arrangements"]
    assert first["name"] == "one plan"
    for one in document["arrangements"]:
        assert one["figures"]["refused"]["value"] == 0
        assert one["figures"]["transfers.p-d.mean_ms"]["value"] > 0
        assert 0 < one["figures"]["services.in_time"]["value"] <= 1
    for other in others:
        gap = next(
            row
            for row in document["paired"]
            if (row["against"], row["measure"]) == (other["name"], "training.useful_gpu_hours")
        )
        mine = [run_["training.useful_gpu_hours"] for run_ in first["runs"]]
        theirs = [run_["training.useful_gpu_hours"] for run_ in other["runs"]]
        assert gap["difference"] == pytest.approx(sum(mine) / 2 - sum(theirs) / 2, abs=1e-4)
        held = sum(other["fixed_gpus"].values()) * 12
        assert other["figures"]["services.held_gpu_hours"]["value"] == pytest.approx(held)
    assert run(SCENARIO, "--json")[1] == out


@pytest.mark.parametrize(
    ("old", "new", "codes"),
    [
        ("every = 3", "every = 0", {"scenario-value"}),
        ("every = 3", 'trace = "none.csv"', {"no-file"}),
        ('warmup = "3h"', "warmup = 3", {"scenario-value"}),
        ("seeds = 2", "seeds = true\nother = 1", {"scenario-value", "fleet-key"}),
        ("[replay]", "[[jobs]]\nid = 'a'\naccount = 'labs'\ngpus = 1\n[replay]", {"scenario-jobs"}),
    ],
)
def test_faults_of_a_scenario_are_told(run, old, new, codes):
    code, _, err = run(SCENARIO.replace(old, new), "--json")
    assert code in (2, 5) or codes == {"no-file"}
    assert {fault["code"] for fault in json.loads(err)["faults"]} == codes


def test_a_spec_of_a_lease_is_told_from_a_job():
    assert is_lease(JobSpec("x", "a", "b", 1, 1, name="service:p"))
    assert not is_lease(JobSpec("x", "a", "b", 1, 1, name="training"))
