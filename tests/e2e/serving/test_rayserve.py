"""The router inside a real Ray Serve, on a real cluster whose nodes only pretend to have GPUs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install divvy-gpu[ray]"),
    pytest.mark.skipif(
        not shutil.which("unshare") or os.geteuid() != 0,
        reason="Ray needs a network namespace of its own here, and only root can make one",
    ),
]

HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "src"


@pytest.fixture(scope="module")
def emitted():
    command = [
        sys.executable,
        "-m",
        "divvy",
        "slices",
        "plan",
        "--profile",
        "fitted:resnet50",
        "--seeds",
        "1",
    ]
    command += [
        "--planner",
        "homogeneous:2",
        "--dispatcher",
        "fifs",
        "--queries",
        "500",
        "--emit",
        "rayserve",
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return yaml.safe_load(text)


def test_a_real_cluster_sends_each_query_to_the_smallest_slice_in_time(emitted):
    commands = f"ip link set lo up && exec {sys.executable} {HERE / 'ray_cluster.py'}"
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", commands],
        input=json.dumps(emitted),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(HERE)])},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["small_alone"] == ["1g.10gb"]
    assert report["large_alone"] == ["4g.40gb"], "60 ms are in time, and smaller than 7g"
    assert report["large_together"] == ["4g.40gb", "7g.80gb", "7g.80gb"]
    assert report["small_together"][0] == "1g.10gb" and set(report["small_together"][1:]) == {"4g.40gb"}
