"""One real Slurm for all tests of this directory."""

import itertools
import os
import tempfile
from pathlib import Path

import pytest
from slurm_world import Plane, World

from divvy.adapters.slurm import sandbox
from divvy.adapters.slurm.lua import job_submit_lua
from divvy.adapters.slurm.sandbox_files import Layout, NodeGroup
from divvy.adapters.slurm.settings import SlurmSettings

#: All control planes of these tests beat here, one at a time.
HEARTBEAT = Path(tempfile.gettempdir()) / f"divvy-heartbeat-{os.getpid()}"
LAYOUT = Layout(
    (NodeGroup(4, {"h100": 4}), NodeGroup(1, {"a100": 2, "v100": 2}, shards=8)),
    {"h100": (1, 2, 3, 4), "mixed": (5,)},
    cred_expire_seconds=5,
    lua=job_submit_lua(SlurmSettings(heartbeat=str(HEARTBEAT), fail_open_after=5_000)),
)


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    reason = sandbox.missing()
    if reason:
        pytest.skip(reason)
    with sandbox.Sandbox(LAYOUT) as running:
        for account in ("vis", "lang", "stray"):
            running.run("sacctmgr", "-i", "add", "account", account, "description=x", "organization=x")
            running.run("sacctmgr", "-i", "add", "user", "root", f"account={account}")
        yield World(running, tmp_path_factory.mktemp("slurm-jobs"), HEARTBEAT)
    HEARTBEAT.unlink(missing_ok=True)


@pytest.fixture
def world(slurm):
    HEARTBEAT.unlink(missing_ok=True)
    slurm.clear()
    return slurm


@pytest.fixture
def plane(world, tmp_path):
    made = []
    numbers = itertools.count()

    def make(mode, **options):
        plane = Plane(world, tmp_path / f"home{next(numbers)}", mode, **options)
        made.append(plane)
        return plane.start()

    yield make
    for each in made:
        each.stop()
