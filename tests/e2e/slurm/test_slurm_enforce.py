"""Mode enforce against a real Slurm: protection, reclaim, requeue, filler, drains, gangs."""

import time

import pytest
from slurm_world import BUDGET

pytestmark = pytest.mark.e2e

WHOLE = ("-N1", "--gres=gpu:h100:4", "-p", "h100")
GANG = ("-N4", "--gres=gpu:h100:4", "-p", "h100")


def test_over_served_work_gives_way_after_its_minimum_and_comes_back(world, plane):
    # Language fills the four nodes before Divvy is there; three of its runs are interruptible at once.
    protected = world.sbatch("lang", *WHOLE, contract="min_runtime=2h resumable")
    others = [world.sbatch("lang", *WHOLE, contract="min_runtime=1s resumable") for _ in range(3)]
    control = plane("enforce")
    control.over_serve("lab.language")
    for job in others:
        control.until_job(job, "interruptible")
    owed = world.sbatch("vis", *WHOLE, contract="min_runtime=10m resumable", seconds=4)
    assert world.jobs()[owed].held, "job_submit.lua holds what Divvy is to start"
    world.until_state(owed, "COMPLETED", 60)
    gone = [job for job in others if world.jobs()[job].restarts]
    assert len(gone) == 1, "one victim and no more"
    assert world.state(protected) == "RUNNING"
    world.until_state(gone[0], "RUNNING", 60)
    output = world.until(lambda: (text := world.output(gone[0])).count("began") == 2 and text)
    before, after = output.split("began restart=1")
    assert "warned restart=0" in before and before.index("warned") < before.index("terminated")
    assert "warned" not in after
    explained = control.client.get(f"jobs/{gone[0]}/explain")
    assert any("told to leave for" in line["text"] for line in explained["history"])
    time.sleep(2)
    for job in (protected, *others):
        world.run("scancel", job)
    control.until_ledger_equals_accounting(4 + 1 + 1)
    control.stop()
    assert control.replay() == ""


def test_filler_leaves_at_once_a_gang_gets_a_dated_slot_and_a_drain_is_slurms(world, plane):
    # Without a floor: the gang needs every H100, and language would keep its floor.
    control = plane("enforce", budget=BUDGET.replace("floor = 0.5", "floor = 0"))
    filler = world.sbatch("lang", *GANG, contract="free resumable")
    world.until_state(filler, "RUNNING")
    control.until_job(filler, "unallocated")
    short = world.sbatch("lang", *WHOLE, contract="min_runtime=25s resumable")
    world.until_state(short, "RUNNING")
    assert world.jobs()[filler].restarts == 1, "unallocated work makes room for allocated work"
    world.until_state(filler, "PENDING")
    world.run("scancel", filler)
    control.over_serve("lab.language")

    gang = world.sbatch("vis", *GANG, contract="min_runtime=1s resumable")
    show = ("scontrol", "-o", "show", "reservation", f"divvy_{gang}")
    slot = world.until(
        lambda: (text := world.run(*show, check=False)).startswith("Res") and "Start" in text and text,
        20,
        "a slot",
    )
    assert "Nodes=node[01-04]" in slot and "FLEX" in slot
    assert world.state(short) == "RUNNING", "protected until its minimum is over"
    world.until_state(gang, "RUNNING", 60)
    ran = next(use for (job, _), use in world.used().items() if job == short)
    assert ran >= 25 * 4
    world.until_state(short, "PENDING")
    world.run("scancel", short)

    control.client.post("nodes/node02/drain", body={"reason": "a fan"})
    world.until(
        lambda: world.run("sinfo", "-h", "-n", "node02", "-o", "%E").startswith("divvy: "), 20, "a drain"
    )
    world.until(lambda: world.jobs()[gang].waits, 30, "the gang leaves the node")
    control.client.delete("nodes/node02/drain")
    try:
        world.until_state(gang, "RUNNING", 60)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{control.job(gang)}\n{control.log()}") from None


def test_what_the_user_or_an_administrator_holds_is_not_started(world, plane):
    mine = world.sbatch("vis", *WHOLE, "--hold", contract="min_runtime=1m")
    admins = world.sbatch("vis", *WHOLE, "--hold", contract="min_runtime=1m")
    world.run("scontrol", "update", f"JobId={admins}", "Priority=0")
    control = plane("enforce")
    later = world.sbatch("vis", *WHOLE, f"--dependency=afterok:{mine}", contract="min_runtime=1m")
    shards = world.sbatch("vis", "--gres=shard:2", "-p", "mixed")
    mixed = world.sbatch("vis", "--gres=gpu:v100:2", "-p", "mixed", contract="min_runtime=1m")
    tasks = world.sbatch("lang", "--array=1-3%1", "--gpus=1", "-p", "h100", contract="min_runtime=1m")
    pair = ("--gres=gpu:h100:1", "-p", "h100", ":", "--gres=gpu:a100:1", "-p", "mixed")
    both = world.sbatch("lang", *pair, contract="min_runtime=1m")
    world.until_state(mixed, "RUNNING")
    world.until_state(shards, "RUNNING")
    placement = control.until_job(mixed, "protected")["placement"]
    assert placement == [{"node": "node05:v100", "gpus": 2}]
    assert {world.jobs()[job].state for job in (mine, admins, later)} == {"PENDING"}
    assert control.job(mine) is None and control.job(later) is None and control.job(shards) is None
    world.until_state(f"{tasks}_1", "RUNNING")
    assert control.until_job(f"{tasks}_1", "protected")["gpus"] == 1
    world.until_state(both, "RUNNING")
    assert len(control.until_job(both, "protected")["placement"]) == 2, "a heterogeneous job is one gang"
    world.run("scontrol", "release", mine)
    world.until_state(mine, "RUNNING")
    control.client.delete("jobs", both)
    world.until_state(both, "CANCELLED")
