"""`divvy topo` and `divvy route` as people call them: names, options, keys and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import divvy as package

pytestmark = pytest.mark.e2e

MATRIX = """\
        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    CPU Affinity    NUMA Affinity
GPU0     X      NV18    NV18    NV18    PIX     SYS     0-7     0
GPU1    NV18     X      NV18    NV18    NODE    SYS     0-7     0
GPU2    NV18    NV18     X      NV18    SYS     PIX     8-15    1
GPU3    NV18    NV18    NV18     X      SYS     NODE    8-15    1
NIC0    PIX     NODE    SYS     SYS      X      SYS
NIC1    SYS     SYS     PIX     NODE    SYS      X
"""


SOURCE = str(Path(package.__file__).resolve().parents[1])


def divvy(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "divvy", *words]
    env = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, check=False)


def answer(*words: str, cwd: Path) -> dict:
    done = divvy(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "m.txt").write_text(MATRIX)
    batch = [
        {"id": "a", "from": "GPU0", "to": "GPU2", "bytes": "1.3GB"},
        {"id": "b", "from": "GPU1", "to": "GPU2", "bytes": 700_000_000},
    ]
    (tmp_path / "t.json").write_text(json.dumps({"transfers": batch}))
    return tmp_path


def test_topo_show_and_check(here):
    document = answer("topo", "show", "m.txt", "--json", "--svg", "out.svg", cwd=here)
    assert document["schema"] == "divvy.topo/1"
    assert {"id": "GPU0", "kind": "gpu"}.items() <= document["vertices"][0].items()
    assert {"a", "b", "kind", "gb_per_s", "source"} <= document["links"][0].keys()
    assert {"a": "GPU0", "b": "GPU1", "label": "NV18"} in document["pairs"]
    assert (here / "out.svg").read_text().startswith("<svg")
    assert "NV18" in divvy("topo", "show", "m.txt", cwd=here).stdout
    assert divvy("topo", "check", "m.txt", cwd=here).returncode == 1  # two GPUs share each NIC
    wide = MATRIX.replace("NODE", "PIX ")
    (here / "cut.txt").write_text("\n".join(MATRIX.splitlines()[:4]))
    done = divvy("topo", "check", "cut.txt", "--json", cwd=here)
    assert done.returncode == 1
    assert {"code", "where", "text", "fix"} == json.loads(done.stdout)["warnings"][0].keys()
    assert wide
    (here / "bad.txt").write_text("nothing")
    assert divvy("topo", "check", "bad.txt", cwd=here).returncode == 2
    assert divvy("topo", "check", "missing.txt", cwd=here).returncode == 2
    assert json.loads(divvy("topo", "show", "--live", "--json", cwd=here).stdout)["schema"] == "divvy.topo/1"


def test_route_explain(here):
    document = answer(
        "route",
        "explain",
        "--topo",
        "m.txt",
        "--from",
        "GPU0",
        "--to",
        "GPU2",
        "--bytes",
        "1.3GB",
        "--json",
        cwd=here,
    )
    assert document["schema"] == "divvy.route.explain/1"
    assert document["routes"][0]["kind"] == "nvlink"
    text = divvy(
        "route", "explain", "--topo", "m.txt", "--from", "GPU0", "--to", "GPU2", "--bytes", "1.3GB", cwd=here
    )
    assert "nvlink" in text.stdout
    wrong = divvy("route", "explain", "--topo", "m.txt", "--from", "GPU9", "--to", "GPU2", cwd=here)
    assert wrong.returncode == 2
    assert "GPU3" in wrong.stderr


def test_route_plan_can_be_checked_by_somebody_else(here):
    document = answer(
        "route", "plan", "--topo", "m.txt", "--transfers", "t.json", "--rates", "r.jsonl", "--json", cwd=here
    )
    assert document["schema"] == "divvy.route.plan/1"
    assert {"makespan_s", "bound_s", "of_bound"} <= document.keys()
    row = document["transfers"][0]
    assert {"id", "routes", "start", "finish", "bottleneck", "rejected"} <= row.keys()
    assert {"kind", "edges", "share"} <= row["routes"][0].keys()
    assert {"a", "b", "times"} == row["routes"][0]["edges"][0].keys()
    links = {
        frozenset((k["a"], k["b"])): k["gb_per_s"]
        for k in answer("topo", "show", "m.txt", "--json", cwd=here)["links"]
    }
    load: dict = defaultdict(float)
    into: dict = defaultdict(float)
    for line in (here / "r.jsonl").read_text().splitlines():
        piece = json.loads(line)
        load[piece["t0"], piece["a"], piece["b"]] += piece["gb_per_s"]
        sign = (piece["b"] == "GPU2") - (piece["a"] == "GPU2")
        into[piece["transfer"]] += sign * piece["gb_per_s"] * 1e9 * (piece["t1"] - piece["t0"])
    for (_, a, b), rate in load.items():
        assert rate <= links[frozenset((a, b))] * (1 + 1e-6)
    assert into["a"] == pytest.approx(1.3e9, rel=1e-6)
    assert into["b"] == pytest.approx(7e8, rel=1e-6)
    assert answer(
        "route",
        "plan",
        "--topo",
        "m.txt",
        "--transfers",
        "random:n=5",
        "--planner",
        "mooncake",
        "--json",
        cwd=here,
    )


def test_route_compare_and_config(here):
    words = (
        "route",
        "compare",
        "--topo",
        ".",
        "--transfers",
        "random:n=6,seed=1",
        "--planners",
        "all",
        "--json",
        "--plot",
        "plots",
    )
    document = answer(*words, cwd=here)
    assert document["schema"] == "divvy.route.compare/1"
    assert {"topology", "planner", "transfers", "makespan_s", "p99_s", "bound_s", "of_bound"} <= document[
        "results"
    ][0].keys()
    assert document["geomean"]["divvy"] <= 1.1
    assert sorted(p.name for p in (here / "plots").iterdir()) == [
        "compare-geomean.svg",
        "compare-topologies.svg",
    ]
    for stack in ("vllm-nixl", "mooncake", "nccl", "dynamo"):
        assert (
            answer("route", "config", "--topo", "m.txt", "--for", stack, "--json", cwd=here)["for"] == stack
        )


def test_route_serving(here):
    (here / "a.jsonl").write_text("\n".join(json.dumps({"hash_ids": [i % 7, i % 3]}) for i in range(50)))
    cases = (
        ("experts", "--topo", "m.txt", "--model", "mixtral-8x7b"),
        ("tiers", "--topo", "m.txt", "--working-set", "400GB", "--access", "a.jsonl"),
        ("overlap", "--topo", "m.txt", "--model", "llama-3-70b", "--prompt", "8192", "--prefill-ms", "900"),
        ("layout", "--model", "llama-3-70b", "--from", "tp=4", "--to", "tp=8", "--descriptor-budget", "100"),
    )
    for words in cases:
        document = answer("route", *words, "--json", cwd=here)
        assert document["schema"] == f"divvy.route.{words[0]}/1"
        assert {"plan", "figure", "bound", "baseline", "topkv_claim"} <= document.keys()
        assert divvy("route", *words, cwd=here).returncode == 0
