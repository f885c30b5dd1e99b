"""Trouble on either side: kills at random points, a controller that is gone, nobody at home."""

import random
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.e2e

HALF = ("-N1", "--gres=gpu:h100:2", "-p", "h100")


def test_no_job_is_lost_doubled_or_wrongly_requeued_by_kills(world, plane):
    control = plane("enforce")
    chance = random.Random(20261130)
    jobs = [
        world.sbatch(chance.choice(("vis", "lang")), *HALF, contract="min_runtime=30s resumable", seconds=4)
        for _ in range(24)
    ]
    kills = 0
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        states = world.jobs()
        if all(states[job].state == "COMPLETED" for job in jobs):
            break
        if kills == 2:
            world.sandbox.stop_controller()
            time.sleep(1)
            world.sandbox.start_controller()
        elif kills < 6:
            time.sleep(chance.uniform(0.2, 4.0))  # also while it is starting
            control.kill()
            control.start(wait=False)
        kills += 1
        time.sleep(0.3)
    assert kills >= 4, control.log()
    world.until(control.answers, 60)
    states = world.jobs()
    assert {states[job].state for job in jobs} == {"COMPLETED"}, control.log()
    assert {states[job].restarts for job in jobs} == {0}
    assert all(world.output(job).count("began") == 1 for job in jobs)
    control.until_ledger_equals_accounting(24)


def test_without_a_heartbeat_held_jobs_are_freed(world, plane):
    control = plane("enforce")
    world.until(world.heartbeat.exists, 20, "a heartbeat")
    fillers = [
        world.sbatch("lang", "-N1", "--gres=gpu:h100:4", "-p", "h100", contract="min_runtime=1h")
        for _ in range(4)
    ]
    for job in fillers:
        world.until_state(job, "RUNNING")
    waiting = world.sbatch("vis", *HALF, contract="min_runtime=1h")
    control.until_job(waiting, "queued")
    assert world.jobs()[waiting].held
    command = [
        sys.executable,
        "-m",
        "divvy",
        "slurm",
        "fail-open",
        "--slurm-config",
        str(control.settings),
        "--json",
    ]

    def fail_open():
        return subprocess.run(
            command, env=world.sandbox.environment, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    assert '"released": []' in fail_open()
    control.stop()
    time.sleep(6)
    assert f'"released": ["{waiting}"]' in fail_open()
    assert not world.jobs()[waiting].held
    free = world.sbatch("vis", *HALF)
    assert not world.jobs()[free].held, "job_submit.lua holds nothing while nobody is at home"
    assert {world.state(job) for job in fillers} == {"RUNNING"}
    control.start()
    world.until(lambda: world.jobs()[waiting].held and world.jobs()[free].held, 30, "held again")
