"""`divvy move` between namespaces with unequal rails: both are used, one is slowed, one is cut, the peer is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import divvy as package
from divvy.adapters.rails import lab
from divvy.adapters.rails.fabric import read_fabric
from divvy.adapters.rails.lab import RailsLab

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(bool(lab.missing()), reason=lab.missing() or "a lab can be built"),
]

ENV = {**os.environ, "PYTHONPATH": str(Path(package.__file__).resolve().parents[1])}
COMMAND = [sys.executable, "-m", "divvy", "move"]
SIZE = 48 << 20


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rails")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIVVY_LAB_STATE", str(folder / "state"))
        with RailsLab.up(read_fabric(f"m{os.getpid() % 10_000_000}", 2, 2, "400mbit,100mbit")) as stands:
            key = folder / "key"
            key.write_text("0123456789abcdef0123456789abcdef")
            key.chmod(0o600)
            yield stands, key


@pytest.fixture
def agent(net):
    stands, key = net
    words = [
        "agent",
        "--key",
        str(key),
        "--name",
        "h1",
        "--port",
        "7600",
        "--memory",
        f"kv={SIZE}B",
        "--json",
    ]
    with subprocess.Popen(
        [*stands.fabric.enter(1), *COMMAND, *words], stdout=subprocess.PIPE, text=True, env=ENV
    ) as served:
        assert json.loads(served.stdout.readline())["agent"] == "h1"
        yield served
        served.send_signal(signal.SIGTERM)
        served.wait(20)


def start(net, *words):
    stands, key = net
    to = f"{stands.fabric.address(1, 0).split('/')[0]}:7600:mem:kv"
    command = [*stands.fabric.enter(0), *COMMAND, f"random:{SIZE}B", to, "--key", str(key), "--json", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV)


def until_under_way(stands, rail=0):
    device = list(stands.counters(0))[rail]
    before = stands.counters(0)[device][0]
    limit = time.monotonic() + 60
    while stands.counters(0)[device][0] < before + (3 << 20):
        assert time.monotonic() < limit
        time.sleep(0.02)


def told(process):
    out, err = process.communicate(timeout=120)
    assert out, err
    return json.loads(out)


def whole(report):
    assert (report["verdict"], report["peer_verdict"]) == ("done", "done"), report["reason"]
    assert report["accounted_bytes"] == report["peer_accounted_bytes"] == SIZE
    assert report["lost_bytes"] == 0
    return {row["route"]: row["bytes"] for row in report["rails"]}


def test_both_rails_carry_what_they_can_and_the_counters_prove_it(net, agent):
    report = told(start(net))
    fast, slow = whole(report).values()
    assert fast > 2 * slow > 0
    assert report["path_proof"]["agrees"], report["path_proof"]


def test_a_rail_that_is_cut_in_flight_loses_and_doubles_nothing(net, agent):
    stands, _ = net
    moving = start(net, "--limit", "60s")
    until_under_way(stands)
    stands.cut(1, 0)
    try:
        report = told(moving)
    finally:
        stands.restore(1, 0)
    moved = whole(report)
    assert list(moved.values())[1] > 0
    assert report["retries"] > 0
    assert report["rerouted_chunks"] > 0


def test_a_rail_that_is_slowed_in_flight_is_left_to_the_other(net, agent):
    stands, _ = net
    moving = start(net, "--limit", "60s")
    until_under_way(stands)
    stands.set_rate(1, 0, 40_000_000)
    try:
        report = told(moving)
    finally:
        stands.set_rate(1, 0, 400_000_000)
    assert list(whole(report).values())[1] > 0


def test_a_peer_that_is_killed_gives_a_verdict(net, agent):
    stands, _ = net
    moving = start(net, "--limit", "60s")
    until_under_way(stands)
    agent.kill()
    report = told(moving)
    assert (report["verdict"], report["peer_verdict"]) == ("failed", "unknown")
    assert report["seconds"] < 30
