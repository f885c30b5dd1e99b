"""The commands of the topology tutorial work as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import divvy as package

pytestmark = pytest.mark.e2e

SOURCE = Path(package.__file__).resolve().parents[1]
PAGE = SOURCE.parent / "docs" / "tutorial" / "topology.md"
BLOCK = re.compile(r"^```sh(?: (file|exit)=(\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_tutorial_runs(tmp_path):
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) >= 5
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    for key, value, body in blocks:
        if key == "file":
            (tmp_path / value).write_text(body)
            continue
        for line in body.splitlines():
            command = [sys.executable, "-m", *line.split()]
            done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, check=False)
            assert done.returncode == int(value or 0), line + "\n" + done.stdout + done.stderr
    assert (tmp_path / "machine.svg").exists()
    assert (tmp_path / "rates.jsonl").read_text()
