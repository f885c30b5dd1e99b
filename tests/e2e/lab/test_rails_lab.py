"""A lab of rails that really stands: its limits hold, rails are cut and joined, nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import divvy as package
import documented
from divvy.adapters.rails import lab
from divvy.adapters.rails.fabric import read_fabric
from divvy.adapters.rails.lab import RailsLab
from divvy.errors import InputError

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(bool(lab.missing()), reason=lab.missing() or "a lab can be built"),
]

SOURCE = str(Path(package.__file__).resolve().parents[1])
SINK = """
import socket, sys, time
server = socket.create_server((sys.argv[1], 9))
print("ready", flush=True)
peer, _ = server.accept()
first, size = None, 0
while data := peer.recv(1 << 20):
    first = first or time.monotonic()
    size += len(data)
print(size / (time.monotonic() - first), flush=True)
"""
REFUSED = """
import socket, sys
peer = socket.socket()
peer.settimeout(0.4)
sys.exit(0 if peer.connect_ex((sys.argv[1], 9)) == 111 else 1)
"""
PUMP = """
import socket, sys
peer = socket.create_connection((sys.argv[1], 9))
for _ in range(int(sys.argv[2])):
    peer.sendall(bytes(1 << 20))
peer.close()
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DIVVY_LAB_STATE", str(tmp_path / "labs"))
    return tmp_path / "labs"


@pytest.fixture
def small(state: Path) -> Iterator[RailsLab]:
    del state
    with RailsLab.up(read_fabric(f"t{os.getpid() % 10_000_000}", 2, 2, "200mbit,50mbit")) as stands:
        yield stands


def test_the_page_is_right(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del state
    if "rails" in lab.standing():
        pytest.skip("a lab of the default name stands on this machine")
    monkeypatch.chdir(tmp_path)
    try:
        for command in documented.commands(documented.DOCS / "howto" / "build-rails.md"):
            documented.run(command, monkeypatch, capsys)
        assert (tmp_path / "rails.json").exists()
    finally:
        lab.remove("rails")


def divvy(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "divvy", "lab", "rails", *words]
    env = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def rate(stands: RailsLab, rail: int, mebibytes: int) -> float:
    """Return bits per second from host 0 to host 1 over a rail."""
    fabric = stands.fabric
    address = fabric.address(1, rail)
    with subprocess.Popen(
        [*fabric.enter(1), sys.executable, "-c", SINK, address], stdout=subprocess.PIPE, text=True
    ) as sink:
        assert sink.stdout is not None
        sink.stdout.readline()
        words = [*fabric.enter(0), sys.executable, "-c", PUMP, address, f"{mebibytes}"]
        subprocess.run(words, check=True, timeout=30)
        return 8 * float(sink.stdout.readline())


def test_limits_hold_and_change_while_it_stands(small: RailsLab) -> None:
    # Headers count against the limit; a busy machine can only be slower.
    assert 100e6 < rate(small, 0, 16) < 205e6
    assert 25e6 < rate(small, 1, 4) < 52e6
    small.set_rate(0, 0, 50_000_000)
    assert 25e6 < rate(small, 0, 4) < 52e6
    assert RailsLab.find(small.fabric.name).fabric.rates[0][0] == 50_000_000


def test_a_cut_rail_carries_nothing_until_it_is_joined(small: RailsLab) -> None:
    ping = [*small.fabric.enter(0), sys.executable, "-c", REFUSED, small.fabric.address(1, 0)]
    assert subprocess.run(ping, check=False).returncode == 0
    small.cut(1, 0)
    assert subprocess.run(ping, check=False).returncode == 1
    small.restore(1, 0)
    for _ in range(20):
        if subprocess.run(ping, check=False).returncode == 0:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the rail carries nothing after it was joined again")


def test_counters_tell_the_rail(small: RailsLab) -> None:
    before = small.counters(0)
    rate(small, 1, 2)
    after = small.counters(0)
    assert after["e1"][0] - before["e1"][0] > 2 << 20
    assert after["e0"][0] - before["e0"][0] < 1 << 16


def test_a_second_lab_of_a_name_is_refused(small: RailsLab) -> None:
    with pytest.raises(InputError, match="stands already"):
        RailsLab.up(small.fabric)
    assert RailsLab.find(small.fabric.name).counters(0)


def test_the_command_line_builds_changes_and_removes(state: Path, tmp_path: Path) -> None:
    del state
    name, graph = f"c{os.getpid() % 10_000_000}", tmp_path / "graph.json"
    built = divvy(
        "--hosts",
        "2",
        "--rails",
        "2",
        "--rates",
        "1gbit,500mbit",
        "--name",
        name,
        "--json",
        "--topology",
        str(graph),
    )
    try:
        assert built.returncode == 0, built.stderr
        document = json.loads(built.stdout)
        assert [r["bits_per_second"] for r in document["hosts"][1]["rails"]] == [10**9, 5 * 10**8]
        assert json.loads(graph.read_text())["schema"] == "divvy.topo/1"
        assert divvy("cut", "h1", "rail0", "--name", name).returncode == 0
        shown = json.loads(divvy("show", "--name", name, "--json").stdout)
        assert not shown["hosts"][1]["rails"][0]["up"]
        assert divvy("set", "h7", "rail0", "1gbit", "--name", name).returncode == 5
    finally:
        down = divvy("down", "--name", name, "--json")
    assert len(json.loads(down.stdout)["namespaces"]) == 3
    again = divvy("down", "--name", name, "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["namespaces"] == []


def test_what_a_killed_build_left_is_removed(state: Path) -> None:
    name = f"k{os.getpid() % 10_000_000}"
    env = {**os.environ, "PYTHONPATH": SOURCE}
    command = [sys.executable, "-m", "divvy", "lab", "rails", "--hosts", "24", "--name", name]
    building = subprocess.Popen(command, env=env)
    try:
        for _ in range(200):
            if name in lab.standing():
                break
            time.sleep(0.02)
        building.send_signal(signal.SIGKILL)
        building.wait()
        assert not (state / f"{name}.json").exists(), "it was not killed half-way"
        assert name in lab.standing()
    finally:
        gone = lab.remove(name)
    assert gone
    assert name not in lab.standing()
