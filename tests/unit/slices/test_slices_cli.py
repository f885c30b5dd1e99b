"""The commands of `divvy slices`: names, JSON keys, events that somebody else can check, refusals."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from divvy.cli.bench_row import row
from divvy.cli.bench_slices import layout_rows, theory_rows
from divvy.cli.slices import verb
from divvy.errors import DivvyError
from divvy.fleet.mig.layout import faults
from divvy.fleet.mig.skus import find_sku
from divvy.perf.fitted import fitted_profile

A100 = find_sku("A100-80GB")
FAST = ["--seeds", "2", "--queries", "3000"]


def run(*arguments):
    done = CliRunner().invoke(verb, list(arguments))
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def refused(*arguments):
    done = CliRunner().invoke(verb, list(arguments))
    assert isinstance(done.exception, DivvyError), done.output
    return done.exception


@pytest.mark.parametrize(
    ("sku", "counts"),
    [("A100-80GB", (19, 14)), ("A30", (5, 4)), ("RTX PRO 6000", (5, 4)), ("B200", (19, 14))],
)
def test_layouts(sku, counts):
    document = json.loads(run("layouts", sku, "--json"))
    assert (document["maximal"], document["multisets"]) == counts
    assert len(document["layouts"]) == counts[0]
    assert set(document["layouts"][0][0]) == {"profile", "start", "size"}
    assert json.loads(run("layouts", sku, "--all-profiles", "--json"))["maximal"] > counts[0]
    assert sku[:3] in run("layouts", sku)


def test_plan_document_and_events_agree(tmp_path):
    path = tmp_path / "events.jsonl"
    document = json.loads(
        run(
            *["plan", "--profile", "fitted:resnet50", "--gpus", "2", "--per-bucket", "--slo-factor", "1.5"],
            *[*FAST, "--events", str(path), "--emit", "nvidia-smi", "--json"],
        )
    )
    assert document["schema"] == "divvy.slices.plan/1"
    assert {
        "layout", "rate_qps", "p95_ms", "p99_ms", "buckets", "bound_qps", "of_bound", "baseline", "paris_qps",
        "seeds", "intervals", "explanation",
    } <= set(document)  # fmt: skip
    assert set(document["baseline"]) == {"best_homogeneous", "qps"}
    slo = 1.5 * fitted_profile("resnet50").latency_us(7, 32) / 1e3
    assert document["slo_ms"] == pytest.approx(slo, abs=0.001)
    for gpu in document["layout"]:
        assert faults(A100, [A100.at(s["profile"], s["start"]) for s in gpu["slices"]]) == []
    assert 0 < document["rate_qps"] <= document["bound_qps"]
    assert document["rate_qps"] >= document["baseline"]["qps"] * 0.98
    assert all(bucket["met"] for bucket in document["buckets"])
    check_events(path, document, slo)


def check_events(path, document, slo_ms):
    """What a stranger would do: recompute percentiles and see that no slice ran two queries at once."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == document["events"]["lines"] == document["queries_per_seed"]
    spans, buckets = defaultdict(list), defaultdict(list)
    profile = fitted_profile("resnet50")
    for one in rows:
        place = one["slice"]
        spans[place["gpu"], place["start"]].append((one["start"], one["finish"]))
        gpcs = A100.profile(place["profile"]).gpcs
        assert one["finish"] - one["start"] == pytest.approx(
            profile.latency_us(gpcs, one["batch"]) / 1e6, abs=2e-6
        )
        assert one["start"] >= one["arrival"]
        edge = next(
            i for i, b in enumerate(document["buckets"]) if b["batches"][0] <= one["batch"] <= b["batches"][1]
        )
        buckets[edge].append((one["finish"] - one["arrival"]) * 1e3)
    for busy in spans.values():
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(sorted(busy)))
    for latencies in buckets.values():
        late = sum(latency > slo_ms + 1e-6 for latency in latencies)
        assert late <= 0.05 * len(latencies)
    rate = len(rows) / rows[-1]["arrival"]
    assert rate == pytest.approx(document["rate_qps"], rel=0.06)


@pytest.mark.parametrize("form", ["mig-parted", "nvidia-smi", "k8s"])
def test_emitted_forms(form):
    text = run(
        *["plan", "--profile", "fitted:bert", "--gpus", "1", "--planner", "homogeneous:3", *FAST],
        *["--dispatcher", "fifs", "--emit", form],
    )
    assert "3g.40gb" in text


def test_planning_is_repeatable():
    arguments = ["plan", "--profile", "fitted:bert", "--gpus", "1", *FAST, "--json"]
    assert run(*arguments) == run(*arguments)


def test_own_sku_arrivals_and_distribution_from_files(tmp_path):
    trace = tmp_path / "t.csv"
    stamps = "".join(f"2023-11-16 18:15:{i % 60:02d}.{i * 37 % 100:02d}00000,1,1\n" for i in range(60))
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + stamps)
    lines = tmp_path / "t.jsonl"
    lines.write_text("".join(f'{{"timestamp": {i * i}, "input_length": 1}}\n' for i in range(1, 50)))
    sizes = tmp_path / "b.csv"
    sizes.write_text("batch,weight\n1,3\n4,1\n")
    for arrivals in (str(trace), str(lines), "bursts"):
        document = json.loads(
            run(
                *[
                    "plan",
                    "--profile",
                    "fitted:vgg16",
                    "--gpus",
                    "1",
                    "--batch",
                    str(sizes),
                    *FAST,
                    "--slo-ms",
                    "60",
                ],
                *["--planner", "homogeneous", "--dispatcher", "jsq", "--arrivals", arrivals, "--json"],
            )
        )
        assert document["rate_qps"] > 0
        assert [b["batches"] for b in document["buckets"]] == [[1, 4]]
    broken = tmp_path / "broken.csv"
    broken.write_text("TIMESTAMP\nyesterday\n")
    assert (
        refused("plan", "--profile", "fitted:vgg16", "--arrivals", str(broken)).faults[0].path.endswith(":2")
    )


def test_compare_pack_and_read(tmp_path):
    document = json.loads(
        run(
            *[
                "compare",
                "--profile",
                "fitted:vgg16",
                "--gpus",
                "1,2",
                "--planners",
                "paris:knee=marginal,homogeneous",
            ],
            *["--dispatchers", "elsa,fifs", *FAST, "--json", "--plot", str(tmp_path / "plots")],
            *["--events", str(tmp_path / "e.jsonl")],
        )
    )
    assert document["schema"] == "divvy.slices.compare/1"
    assert len(document["rows"]) == 8
    assert len(document["summary"]) == 4
    assert all(path.endswith(".svg") for path in document["plots"])
    first = json.loads((tmp_path / "e.jsonl").read_text().splitlines()[0])
    assert {
        "model",
        "gpus",
        "planner",
        "dispatcher",
        "q",
        "arrival",
        "batch",
        "slice",
        "start",
        "finish",
    } == set(first)
    scenario = tmp_path / "s.csv"
    scenario.write_text("model,rate_qps,slo_ms\nresnet50,1000,100\nvgg16,300,200\n")
    packed = json.loads(
        run("pack", "--profile", "fitted", "--scenario", str(scenario), "--seeds", "1", "--json")
    )
    assert packed["schema"] == "divvy.slices.pack/1"
    assert packed["gpus"] == len(packed["layout"]) >= packed["lower_bound_gpus"]
    assert set(packed["layout"][0]["slices"][0]) == {"profile", "start", "model", "batch", "processes"}
    assert {"model", "rate_qps", "slo_ms", "achieved_ms", "met"} <= set(packed["models"][0])
    assert all(one["met"] and one["achieved_ms"] <= one["slo_ms"] for one in packed["models"])
    listing = tmp_path / "lgipp.txt"
    listing.write_text("GPU  0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1\n")
    assert json.loads(run("read", str(listing), "--json"))["kind"] == "lgipp"


def test_refusals_name_what_is_allowed(tmp_path):
    for arguments, code in (
        (["layouts", "Z9"], "mig-unknown-sku"),
        (["plan", "--profile", "nowhere.csv"], "no-file"),
        (["plan", "--profile", "fitted:nope"], "fitted-model"),
        (["plan", "--profile", "fitted:bert", "--planner", "nope"], "unknown-planner"),
        (["plan", "--profile", "fitted:bert", "--dispatcher", "nope"], "unknown-dispatcher"),
        (["plan", "--profile", "fitted:bert", "--batch", "nope"], "batch-text"),
        (["plan", "--profile", "fitted:bert", "--emit", "xml"], "unknown-form"),
        (["plan", "--profile", "fitted:bert", "--percentile", "100"], "percentile"),
        (["plan", "--profile", "fitted:bert", "--slo-ms", "5", "--slo-factor", "2"], "slo"),
        (["plan", "--profile", "fitted:bert", "--knee", "marginal"], "paris-option"),
        (["plan", "--profile", "fitted:bert", "--sku", "A30", "--batch", "fixed:512"], "slo"),
        (["compare", "--profile", str(tmp_path)], "no-profiles"),
        (["compare", "--profile", "fitted:bert", "--gpus", "x"], "gpus"),
        (["apply", str(tmp_path / "none.json")], "no-file"),
    ):
        assert refused(*arguments).code == code, arguments


def test_bench_rows_have_the_schema():
    made = [*layout_rows(None), *theory_rows(quick=True)]
    assert all(one["met"] in {True, None} for one in made)
    assert set(row("a", "b", "c", 1.0, "s")) == {
        "case", "contender", "measure", "value", "unit", "interval", "n", "target", "met", "note",
    }  # fmt: skip


def test_drift_and_the_price_of_a_change(tmp_path):
    plans = {}
    for name, planner in (("old", "homogeneous:7"), ("new", "homogeneous:3")):
        plans[name] = tmp_path / f"{name}.json"
        text = run(
            "plan", "--profile", "fitted:bert", "--planner", planner, "--dispatcher", "fifs", *FAST, "--json"
        )
        plans[name].write_text(text)
    same = tmp_path / "same.txt"
    weights = json.loads(plans["old"].read_text())["batches"]
    same.write_text("".join(f"{batch},{max(1, round(weight * 5000))}\n" for batch, weight in weights.items()))
    rate = str(json.loads(plans["old"].read_text())["rate_qps"])
    steady = json.loads(run("drift", str(plans["old"]), "--seen", str(same), "--rate", rate, "--json"))
    assert not steady["significant"]
    other = tmp_path / "other.txt"
    other.write_text("1\n" * 500)
    arguments = ["drift", str(plans["old"]), "--seen", str(other), "--rate", "60", "--new", str(plans["new"])]
    moved = json.loads(run(*arguments, "--json"))
    assert moved["significant"]
    assert set(moved["decision"]) == {"change", "text"}
    assert moved["lost_gpc_seconds"] == 7 * 70
    assert not json.loads(run(*arguments, "--since", "5", "--json"))["decision"]["change"]
    assert "drift" in run(*arguments)
    other.write_text("x\n0,1\n")
    assert len(refused("drift", str(plans["old"]), "--seen", str(other), "--rate", "1").faults) == 2
