"""The three modes against a real Slurm."""

import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from divvy.adapters.slurm.rest.client import RestReader
from divvy.adapters.slurm.settings import SlurmSettings
from divvy.adapters.slurm.shell import CommandLine

pytestmark = pytest.mark.e2e


def refused(plane, *words):
    """Run a verb of the command line that this mode refuses; return the command of Slurm that it names."""
    environment = os.environ | {"DIVVY_HOME": str(plane.home)}
    command = [sys.executable, "-m", "divvy", *words, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode and not done.stdout
    (fault,) = json.loads(done.stderr)["faults"]
    assert fault["code"] == "mode-looks-on" and f"--mode {plane.mode} " in fault["message"]
    return shlex.split(fault["fix"].removeprefix("run: "))


def test_observe_follows_slurm_and_changes_nothing(world, plane):
    running = world.sbatch(
        "vis", "--gres=gpu:h100:2", "-N1", "-p", "h100", contract="min_runtime=2h resumable"
    )
    watcher = plane("observe")
    stray = world.sbatch("stray", "--gpus=1", "-p", "h100")
    found = watcher.until_job(running, "protected")
    assert found["account"] == "lab.vision" and found["min_runtime_seconds"] == 7200 and found["resumable"]
    assert watcher.until_job(stray, "protected")["account"] == "unfunded"
    held = [job for job in world.jobs().values() if not job.over and (job.held or job.mark or job.nice)]
    assert held == []
    world.run(*refused(watcher, "drain", "node02", "--reason", "a fan"))
    assert world.run("sinfo", "-h", "-n", "node02", "-o", "%E") == "a fan"
    command = refused(watcher, "cancel", running)
    assert world.state(running) == "RUNNING" and watcher.job(running)["state"] == "protected"
    world.run(*command)
    watcher.until_job(running, "cancelled")
    watcher.stop()
    assert watcher.replay() == ""


def test_advise_orders_the_queue_and_letting_go_takes_it_back(world, plane):
    for _ in range(4):
        world.sbatch("lang", "-N1", "--gres=gpu:h100:4", "-p", "h100", contract="min_runtime=2h")
    late = world.sbatch("lang", "-N1", "--gres=gpu:h100:4", "-p", "h100", contract="min_runtime=1h")
    owed = world.sbatch("vis", "-N1", "--gres=gpu:h100:4", "-p", "h100", contract="min_runtime=1h")
    control = plane("advise")
    control.until_job(owed, "queued")
    world.until(lambda: world.jobs()[owed].nice < world.jobs()[late].nice < 0, 30, "nice values in order")
    assert not any(job.held or job.mark for job in world.jobs().values() if not job.over)
    assert refused(control, "cancel", late) == ["scancel", late]
    resume = ["scontrol", "update", "NodeName=node01", "State=RESUME"]
    assert refused(control, "drain", "node01", "--undo") == resume
    assert world.state(late) == "PENDING"
    control.stop()
    command = [sys.executable, "-m", "divvy", "slurm", "let-go", "--slurm-config", str(control.settings)]
    done = subprocess.run(
        command, env=world.sandbox.environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert "2 nice values set to 0" in done.stdout
    assert {job.nice for job in world.jobs().values() if not job.over} == {0}


def test_slurmrestd_says_the_same_as_the_commands(world):
    world.sbatch("vis", "-N2", "--gres=gpu:h100:2", "-p", "h100", contract="min_runtime=1h resumable")
    world.sbatch("lang", "--gpus=5", "-p", "h100", "-n", "5")
    world.sbatch("lang", "--array=1-4%1", "--gpus=1", "-p", "h100")
    world.sbatch("vis", "--hold", "--gres=gpu:v100:2", "-p", "mixed")
    world.sbatch("vis", "--gres=shard:2", "-p", "mixed")
    world.sbatch("vis", "--hold", "-p", "h100", "--gpus=2", ":", "-p", "mixed", "--gres=gpu:a100:1")
    world.run(
        "scontrol",
        "create",
        "reservation",
        "ReservationName=other",
        "StartTime=now+3600",
        "Duration=10",
        "Nodes=node04",
        "Users=root",
        "Flags=IGNORE_JOBS",
    )
    world.until(lambda: sum(job.state == "RUNNING" for job in world.jobs().values()) >= 4)
    settings = SlurmSettings(
        conf=str(world.sandbox.root / "etc/slurm.conf"), rest_socket=str(world.sandbox.start_rest())
    )
    now = time.time_ns() // 1_000_000
    reader = RestReader(settings)
    told, shown = reader.read(now, frozenset()), CommandLine(settings).read(now, frozenset())
    reader.close()
    assert told.nodes == shown.nodes and told.reservations == shown.reservations
    assert told.jobs.keys() == shown.jobs.keys()
    for name, job in shown.jobs.items():
        if not job.over:
            plain = replace(
                told.jobs[name], spread=job.spread, reason=job.reason, limit=job.limit, end=job.end
            )
            assert plain == job
    lain = {name: dict(job.spread) for name, job in told.jobs.items() if len(job.nodes) > 1 and not job.over}
    assert all(sum(spread.values()) == told.jobs[name].gpus.total for name, spread in lain.items())
