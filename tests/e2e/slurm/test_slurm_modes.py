"""The three modes against a real Slurm."""

import pytest

pytestmark = pytest.mark.e2e


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
    world.run("scancel", running)
    watcher.until_job(running, "cancelled")
