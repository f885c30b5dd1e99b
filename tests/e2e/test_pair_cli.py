"""`divvy pair` and `POST /v1/pair` as people call them: a topology file in, a pair with its reasons out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

import divvy as package
from divvy.adapters.rails.fabric import read_fabric, topology_of, with_rate

pytestmark = pytest.mark.e2e

ROOT = Path(package.__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "reference" / "schemas" / "pair.1.json").read_text())
FABRIC = read_fabric("r", 4, 2, "400mbit,100mbit/400mbit,100mbit/200mbit,100mbit/400mbit,100mbit")
WORDS = ("pair", "--prefill", "h0,h1", "--decode", "h2,h3", "--kv-bytes", "8MiB")


def divvy(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "divvy", *words]
    full = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **env}
    return subprocess.run(command, capture_output=True, text=True, env=full, check=False)


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "rails.json"
    path.write_text(json.dumps(topology_of(FABRIC).to_json()))
    return path


def test_a_file_is_enough(graph: Path) -> None:
    done = divvy(*WORDS, "--topo", str(graph), "--deadline", "200ms", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    assert document["pair"] == {"prefill": "h0", "decode": "h3"}
    text = divvy(*WORDS, "--topo", str(graph)).stdout
    assert "h0 -> h3" in text
    assert "UCX_NET_DEVICES=e0" in text


def test_measured_costs_are_given_beside_the_topology(graph: Path, tmp_path: Path) -> None:
    costs = tmp_path / "costs.json"
    costs.write_text(json.dumps({"kinds": {"rdma-affine": {"startup_s": 0.5}}}))
    done = divvy(*WORDS, "--topo", str(graph), "--topo", str(costs), "--json")
    assert json.loads(done.stdout)["predicted_seconds"] > 0.5


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--kv-bytes", "0"), 2),
        (("--kv-bytes", "8 parsecs"), 2),
        (("--prefill", ","), 2),
        (("--decode", "h9"), 2),
        (("--cached", "h2"), 2),
        (("--deadline", "-1s"), 2),
    ],
)
def test_what_cannot_be_asked_is_refused_without_a_traceback(
    graph: Path, words: tuple[str, ...], code: int
) -> None:
    done = divvy(*WORDS, *words, "--topo", str(graph))
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_a_damaged_topology_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"schema": "divvy.topo/1", "vertices": [')
    done = divvy(*WORDS, "--topo", str(path))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_the_control_plane_pairs_and_reads_a_changed_file(graph: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = [sys.executable, "-m", "divvy", "up", "--home", str(home), "--port", "0", "--slots", "2",
               "--topology", str(graph), "--no-browser"]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    server = f"unix:{home / 'socket'}"
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
        try:
            for _ in range(150):
                done = divvy(*WORDS, "--server", server, "--json")
                if done.returncode == 0:
                    break
                time.sleep(0.2)
            document = json.loads(done.stdout)
            jsonschema.validate(document, SCHEMA)
            assert document["pair"]["decode"] == "h3"
            again = json.loads(divvy(*WORDS, "--server", server, "--json").stdout)
            assert again["predicted_seconds"] >= document["predicted_seconds"]
            graph.write_text(json.dumps(topology_of(with_rate(FABRIC, 3, 0, 10**6)).to_json()))
            changed = json.loads(divvy(*WORDS, "--server", server, "--json").stdout)
            assert changed["pair"]["decode"] == "h2"
        finally:
            up.terminate()


def test_a_topology_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    done = divvy("up", "--home", str(tmp_path / "home"), "--topology", str(tmp_path / "none.json"))
    assert done.returncode == 2
    assert "none.json" in done.stderr
