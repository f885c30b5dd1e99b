"""Which build runs is said, and a build that cannot be made fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from divvy.cli.compiled import compiled

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / ".compiled" / "divvy"
FEW = (
    "simulate",
    "synthetic",
    "--nodes",
    "4x8",
    "--warmup",
    "0",
    "--seeds",
    "1",
    "--policy",
    "budget",
    "--json",
)


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def test_the_source_tree_runs_as_plain_python_and_says_so():
    assert not compiled()
    told = run(
        sys.executable, "-m", "divvy", "--version", env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
    )
    assert told.stdout.strip().endswith("(plain Python)"), told.stderr


def test_without_a_compiler_nothing_is_built_and_the_reason_is_said(tmp_path):
    made = run(
        sys.executable,
        str(ROOT / ".ci" / "compile.py"),
        str(tmp_path / "out"),
        env={**os.environ, "CC": "no-such-cc"},
    )
    assert made.returncode == 1
    assert "no C compiler" in made.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not BUILT.exists(), reason="no compiled build; make compiled makes one")
def test_the_compiled_planner_decides_byte_for_byte_as_the_plain_one(tmp_path):
    answers, events = [], []
    for name, command in (("plain", (sys.executable, "-m", "divvy")), ("compiled", (str(BUILT),))):
        path = tmp_path / name
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src")} if name == "plain" else None
        done = run(*command, *FEW, "--events", str(path), env=env, timeout=250)
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout)["compiled"])
        events.append(path.read_bytes())
    assert answers == [False, True]
    assert events[0] == events[1]
    assert events[0].count(b"\n") > 100
