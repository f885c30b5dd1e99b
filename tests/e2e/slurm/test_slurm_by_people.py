"""What people do on a Slurm beside Divvy: they reserve nodes, and they submit with Divvy's own command."""

import json
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.e2e

WHOLE = ("-N1", "--gres=gpu:h100:4", "-p", "h100")


def test_an_active_reservation_of_somebody_else_is_respected(world, plane):
    control = plane("enforce")
    stays = world.sbatch("lang", *WHOLE, "-w", "node01", contract="min_runtime=1h")
    world.until_state(stays, "RUNNING")
    theirs = ("StartTime=now", "Duration=30", "Nodes=node[01-03]", "Accounts=stray", "Flags=IGNORE_JOBS")
    world.run("scontrol", "create", "reservation", "ReservationName=theirs", *theirs)

    def capacity():
        return {node["name"]: node["gpus"] for node in control.client.get("status")["nodes"]}

    there = {"node01": 4, "node02": 0, "node03": 0, "node04": 4}
    world.until(lambda: there.items() <= capacity().items(), 20, "free reserved devices are not there")
    waiting = [world.sbatch("vis", *WHOLE, contract="min_runtime=1h") for _ in range(2)]
    gang = world.sbatch("vis", "-N3", *WHOLE[1:], contract="min_runtime=1h resumable")
    for job in (*waiting, gang):
        control.until_job(job, "queued", "protected")
    running = world.until(lambda: [job for job in waiting if world.state(job) == "RUNNING"])
    time.sleep(4)  # several looks
    seen = world.jobs()
    assert [job for job in waiting if seen[job].state == "RUNNING"] == running
    assert seen[running[0]].nodes == ("node04",)
    (left,) = set(waiting) - set(running)
    assert seen[left].held and seen[gang].held, "nobody is released for devices that are reserved"
    assert seen[stays].state == "RUNNING" and seen[stays].restarts == 0
    assert {seen[job].restarts for job in (stays, *waiting, gang)} == {0}, "nobody was requeued for it"
    show = world.run("scontrol", "-o", "show", "reservation", "theirs")
    assert "Nodes=node[01-03]" in show and "Accounts=stray" in show

    world.run("scontrol", "delete", "ReservationName=theirs")
    world.until_state(left, "RUNNING")
    assert capacity()["node02"] == 4


def test_divvy_submit_runs_a_job_through_slurm_under_its_contract(world, plane):
    control = plane("enforce")
    before = sum(use > 0 for use in world.used().values())

    def submit(account, *options, command):
        words = ("--engine", "slurm", "--account", account, "--json", "--cwd", str(world.directory))
        return subprocess.run(
            [sys.executable, "-m", "divvy", "submit", *words, *options, "--", "sh", "-c", command],
            env=world.sandbox.environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    shape = ("--gpus", "4", "--per-node", "2", "--model", "h100", "--min-runtime", "2h", "--name", "train")
    done = submit(
        "vis", *shape, "--resumable", "--wait", command="echo devices $CUDA_VISIBLE_DEVICES; sleep 2; exit 3"
    )
    assert done.returncode == 3, done.stderr
    job = json.loads(done.stdout)["id"]
    assert "devices 0,1" in (world.directory / f"slurm-{job}.out").read_text()
    ended = control.until_job(job, "failed")
    assert (ended["account"], ended["gpus"], ended["name"]) == ("lab.vision", 4, "train")
    assert ended["min_runtime_seconds"] == 7200 and ended["resumable"] and ended["exit_code"] == 3

    brief = submit("vis", "--gpus", "1", "--wait", command="exit 4")
    assert brief.returncode == 4, brief.stderr
    assert control.until_job(json.loads(brief.stdout)["id"], "failed")["exit_code"] == 4

    named = submit("lab.language", "--gpus", "1", "--min-runtime", "15m", command="sleep 600")
    assert named.returncode == 0, named.stderr
    other = json.loads(named.stdout)["id"]
    world.until_state(other, "RUNNING")
    assert control.until_job(other, "protected")["account"] == "lab.language"
    control.client.delete("jobs", other)
    world.until_state(other, "CANCELLED")
    world.until(lambda: any(name == other for name, _ in world.used()), 20, "Slurm's accounting of all runs")
    control.until_ledger_equals_accounting(sum(use > 0 for use in world.used().values()) - before)
