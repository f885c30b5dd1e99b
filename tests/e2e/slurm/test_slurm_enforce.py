"""Mode enforce against a real Slurm: protection, reclaim, requeue, filler, drains, gangs."""

import pytest

pytestmark = pytest.mark.e2e

WHOLE = ("-N1", "--gres=gpu:h100:4", "-p", "h100")


def test_over_served_work_gives_way_after_its_minimum_and_comes_back(world, plane):
    # Language fills the four nodes; three of its runs are interruptible at once, one is protected.
    protected = world.sbatch("lang", *WHOLE, contract="min_runtime=2h resumable")
    others = [world.sbatch("lang", *WHOLE, contract="min_runtime=1s resumable") for _ in range(3)]
    control = plane("enforce")
    control.over_serve("lab.language")
    for job in others:
        control.until_job(job, "interruptible")
    owed = world.sbatch("vis", *WHOLE, "-H", contract="min_runtime=10m resumable", seconds=6)
    world.run("scontrol", "update", f"JobId={owed}", "AdminComment=divvy", "Priority=0")
    world.until_state(owed, "COMPLETED", 60)
    gone = [job for job in others if world.jobs()[job].restarts]
    assert len(gone) == 1, "one victim and no more"
    assert "warned restart=0" in world.output(gone[0])
    assert world.state(protected) == "RUNNING"
    world.until_state(gone[0], "RUNNING", 60)
    assert "began restart=1" in world.until(
        lambda: "restart=1" in world.output(gone[0]) and world.output(gone[0])
    )
    reasons = [line["code"] for line in control.client.get(f"jobs/{gone[0]}/explain").get("preemptions", [])]
    assert reasons in ([], ["preempted-reclaim"])
