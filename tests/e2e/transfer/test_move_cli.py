"""`divvy move` and `divvy move agent` as people call them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import divvy as package
from divvy.cli.move_run import Asked, run
from divvy.errors import DivvyError

pytestmark = pytest.mark.e2e

ENV = {**os.environ, "PYTHONPATH": str(Path(package.__file__).resolve().parents[1])}
COMMAND = [sys.executable, "-m", "divvy", "move"]


def move(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, env=ENV, check=False, timeout=60
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("move")
    key = folder / "key"
    key.write_text("0123456789abcdef0123456789abcdef")
    key.chmod(0o600)
    words = ["agent", "--key", str(key), "--name", "there", "--port", "0", "--rail", "r0=127.0.0.1"]
    words += ["--root", str(folder), "--memory", "kv=8MiB", "--json"]
    agent = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True, env=ENV)
    assert agent.stdout is not None
    said = json.loads(agent.stdout.readline())
    yield folder, key, said["addresses"][0]
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(20) == 0
    agent.stdout.close()


def test_a_file_is_moved_and_the_report_says_how(served):
    folder, key, address = served
    (folder / "in.bin").write_bytes(os.urandom(3_000_001))
    words = [
        str(folder / "in.bin"),
        f"{address}:{folder}/out.bin",
        "--key",
        str(key),
        "--rail",
        "r0=127.0.0.1",
    ]
    done = move(*words, "--account", "team.a", "--descriptors", "7", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (folder / "out.bin").read_bytes() == (folder / "in.bin").read_bytes()
    assert report["schema"] == "divvy.move/1"
    assert (report["verdict"], report["peer_verdict"], report["account"]) == ("done", "done", "team.a")
    assert report["bytes"] == report["accounted_bytes"] == 3_000_001
    assert report["descriptors"] == 7
    assert report["path_proof"]["agrees"]
    assert report["prediction"]["seconds"] > 0


def test_memory_is_a_target_and_people_get_words(served):
    _, key, address = served
    words = ["random:4MiB", f"{address}:mem:kv", "--key", str(key), "--rail", "r0=127.0.0.1"]
    done = move(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("done: 4194304 bytes")
    assert "predicted" in done.stdout


def test_two_files_of_this_host_are_copied(tmp_path):
    (tmp_path / "a").write_bytes(os.urandom(200_000))
    done = move(str(tmp_path / "a"), str(tmp_path / "b"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["backend"] == "local"
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["random:1MiB", "{a}:/etc/passwd2", "--key", "{k}"], "outside what this agent shares"),
        (["random:1MiB", "{a}:mem:nothing", "--key", "{k}"], "no buffer"),
        (["random:1MiB", "{a}:mem:kv"], "share a key"),
        (["random:1MiB", "127.0.0.1:1:mem:kv", "--key", "{k}"], "does not answer"),
    ],
)
def test_what_cannot_be_is_refused_without_a_traceback(served, words, text):
    folder, key, address = served
    done = move(*(w.format(f=folder, a=address, k=key) for w in words), "--rail", "r0=127.0.0.1")
    assert done.returncode not in (0, 1), done.stdout
    assert text in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"source": "random:lots"}, "size"),
        ({"source": "random:0B"}, "test memory"),
        ({"source": "/nowhere/none"}, "no file"),
        ({"backend": "smoke"}, "no back end"),
        ({"target": "127.0.0.1:x:mem:kv"}, "no target"),
        ({"target": "127.0.0.1:1:mem:kv"}, "share a key"),
        ({"descriptors": 99}, "99 pieces of 5 bytes"),
    ],
)
def test_what_is_not_understood_is_named(change, text):
    given = Asked("random:5B", "127.0.0.1:1:mem:kv", None, (), "tcp", 1, 0, None, None, "", None)
    with pytest.raises(DivvyError, match=text):
        run(replace(given, **change))
