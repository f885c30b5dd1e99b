"""What the verbs print with --json is what the published schemas say."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from divvy.cli import app
from divvy.errors import DivvyError
from divvy.service.schemas.published import published

MATRIX = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPIX\tSYS\tSYS\tPIX\tSYS\t0-7\t0
GPU1\tPIX\t X \tSYS\tSYS\tPIX\tSYS\t0-7\t0
GPU2\tSYS\tSYS\t X \tPIX\tSYS\tPIX\t8-15\t1
GPU3\tSYS\tSYS\tPIX\t X \tSYS\tPIX\t8-15\t1
NIC0\tPIX\tPIX\tSYS\tSYS\t X \tSYS\t\t
NIC1\tSYS\tSYS\tPIX\tPIX\tSYS\t X \t\t

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""
FILES = {
    "m.txt": MATRIX,
    "one.txt": "\tGPU0\tNIC0\nGPU0\tX\tPIX\nNIC0\tPIX\tX\n",
    "t.json": '{"transfers": [{"from": "GPU0", "to": "GPU2", "bytes": "1GB"}]}',
    "a.json": '[{"id": "x", "reads": 3}, {"id": "y", "reads": 1}]',
    "r.json": '{"requests": [{"from": "GPU0", "hash_ids": [1, 2]}], "targets": ["GPU2"], "block_bytes": 1000}',
    "c.json": '{"kinds": {"host-staged": {"startup_s": 5e-5}}}',
    "n.txt": "\tGPU0\tGPU1\tGPU2\tGPU3\n"
    + "".join(f"GPU{a}\t" + "\t".join("X" if a == b else "NS" for b in range(4)) + "\n" for a in range(4)),
}
WORDS = {
    "topo.1": "topo show m.txt",
    "topo.check.1": "topo check m.txt",
    "route.plan.1": "route plan --topo m.txt --transfers t.json --costs c.json",
    "route.explain.1": "route explain --topo m.txt --from GPU0 --to GPU2 --bytes 1.3GB --costs c.json",
    "route.compare.1": "route compare --topo m.txt --transfers t.json --planners all",
    "route.replan.1": "route replan --topo m.txt --transfers t.json --link GPU0,sw0=dead --at 1ms",
    "route.config.1": "route config --topo m.txt --for nccl",
    "route.experts.1": "route experts --topo m.txt --model mixtral-8x7b",
    "route.tiers.1": "route tiers --topo m.txt --working-set 1GB --access a.json",
    "route.overlap.1": "route overlap --topo m.txt --model llama-3-8b --prompt 100 --prefill-ms 9",
    "route.layout.1": "route layout --model llama-3-8b --from tp=1 --to tp=2",
    "route.pair.1": "route pair --topo m.txt --requests r.json",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(words: str) -> dict:
    done = CliRunner().invoke(app, [*words.split(), "--json"])
    assert done.exit_code in (0, 1), done.output
    return json.loads(done.output)


@pytest.mark.parametrize("name", WORDS)
def test_documents_keep_their_schema(here, name):
    document = answer(WORDS[name])
    jsonschema.validate(document, published()[f"{name}.json"])


def test_every_schema_of_topologies_and_routes_is_tried():
    assert set(WORDS) == {n.removesuffix(".json") for n in published() if n.startswith(("topo.", "route."))}


def test_explain_shows_that_a_pix_pair_without_peer_to_peer_is_slower_than_a_sys_pair(here):
    """NCCL issue 1309, as it was measured: both directions at once, staged in memory below one uplink."""
    files = "--topo m.txt --topo n.txt"
    pix, sys = (answer(f"route explain {files} --from GPU0 --to {to} --bytes 1GB") for to in ("GPU1", "GPU2"))
    assert (pix["label"], sys["label"]) == ("PIX", "SYS")
    assert pix["both_ways_s"] > sys["both_ways_s"]
    staged = next(c for c in pix["candidates"] if c["kind"] == "host-staged")
    assert max(e["times"] for e in staged["edges"]) == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("topo show m.txt --svg m.txt/x.svg", "unwritable"),
        ("route plan --topo m.txt --transfers t.json --rates m.txt/x", "unwritable"),
        ("route compare --topo m.txt --transfers t.json --planners topkv --plot m.txt/x", "unwritable"),
        ("route plan --topo m.txt --transfers random:n=2,seed=-1", "random-batch"),
        ("route plan --topo m.txt --transfers random:n=2,spread=inf", "random-batch"),
        ("route plan --topo m.txt --transfers random:n=2.5", "random-batch"),
        ("route explain --topo m.txt --from GPU0 --to GPU1 --bytes 0", "bytes"),
        ("route explain --topo m.txt --from GPU0 --to GPU1 --bytes -1", "bytes"),
        ("route explain --topo m.txt --from GPU0 --to GPU1 --bytes 99999999TB", "bytes"),
        ("route explain --topo m.txt --from GPU0 --to GPU0", "transfer"),
        ("route explain --topo m.txt --from GPU0 --to GPU9", "place-unknown"),
        ("route explain --topo one.txt --from GPU0 --to NIC0", "no-link"),
        (
            "route overlap --topo m.txt --model llama-3-8b --prompt 8 --prefill-ms 9 --from GPU9",
            "place-unknown",
        ),
        ("route compare --topo empty --transfers random:n=2", "inputs-missing"),
        ("route replan --topo m.txt --transfers t.json --link GPU0,GPU9=1 --at 1ms", "link-unknown"),
        ("route replan --topo m.txt --transfers t.json --link GPU0 --at 1ms", "link"),
        ("route replan --topo m.txt --transfers t.json --link GPU0,sw0=1 --at soon", "moment"),
        ("route explain --topo m.txt --from GPU0 --to GPU1 --costs t.json", "costs"),
    ],
)
def test_what_cannot_be_done_is_said_with_a_code(here, words, code):
    (here / "empty").mkdir()
    done = CliRunner().invoke(app, words.split())
    assert isinstance(done.exception, DivvyError), done.output
    assert done.exception.code == code


def test_a_directory_is_compared_on_what_each_topology_has(here):
    (here / "all").mkdir()
    (here / "all" / "m.txt").write_text(MATRIX)
    (here / "all" / "two.txt").write_text("\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n")
    (here / "all" / "cut.txt").write_text("\tGPU0\tGPU1\n")
    rows = [{"id": i, "from": "GPU0", "to": to, "bytes": 10**9} for i, to in (("a", "GPU1"), ("b", "GPU3"))]
    (here / "t2.json").write_text(json.dumps({"transfers": rows}))
    document = answer("route compare --topo all --transfers t2.json --planners divvy")
    assert {(r["topology"], r["transfers"]) for r in document["results"]} == {("m.txt", 2), ("two.txt", 1)}
    assert {(u["topology"], u["transfer"], u["code"]) for u in document["unplanned"]} == {
        ("two.txt", "b", "place-unknown"),
        ("cut.txt", "", "unreadable"),
    }
    (here / "t3.json").write_text("{")
    done = CliRunner().invoke(app, ["route", "compare", "--topo", "all", "--transfers", "t3.json"])
    assert isinstance(done.exception, DivvyError)
