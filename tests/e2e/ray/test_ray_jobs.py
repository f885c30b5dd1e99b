"""Budgets on a real Ray cluster: the contract is kept, gangs are whole, a crash loses and doubles nothing."""

import random
import time
from collections import Counter

import pytest

pytestmark = pytest.mark.e2e

#: Notes its run, says when it is warned and leaves; ends by itself once there is a file "go".
WORK = """
echo "$DIVVY_JOB_ID $DIVVY_ATTEMPT" >> {marks}
echo "gpus=$CUDA_VISIBLE_DEVICES rank=$DIVVY_RANK attempt=$DIVVY_ATTEMPT head=$DIVVY_HEAD_ADDRESS"
trap 'echo warned; exit 3' USR1
until [ -e {marks}.go ]; do sleep 0.1; done
"""


@pytest.fixture
def marks(tmp_path):
    return tmp_path / "marks"


def runs(marks):
    return Counter(marks.read_text().splitlines()) if marks.exists() else Counter()


def test_an_account_that_is_owed_gets_its_share_when_a_minimum_runtime_is_over(control, cluster, marks):
    work = WORK.format(marks=marks)
    for job in ("v0", "v1"):
        control.submit(job, "lab.vision", work, "--gpus", "2", "--min-runtime", "12s", "--resumable")
    control.until(lambda: len(runs(marks)) == 2, 90)

    control.submit("gang", "lab.language", work, "--gpus", "2", "--min-runtime", "1m", "--warn", "1s")
    control.until(lambda: runs(marks)["gang 1"], 120)

    seen = {job: control.job(job) for job in ("v0", "v1")}
    (victim,) = [job for job in seen if seen[job]["attempt"] != 1 or "preempted" in seen[job]["state"]]
    first = cluster.jobs()[victim][0]
    assert first["status"] == "STOPPED"
    assert first["end_time"] - cluster.began()[first["submission_id"]] >= 12_000
    assert "warned" in control.log(victim, 1)

    (marks.parent / "marks.go").touch()
    for job in ("v0", "v1", "gang"):
        assert control.until_state(job, "finished", "failed")["state"] == "finished"
    assert runs(marks) == Counter(["v0 1", "v1 1", "gang 1", f"{victim} 2"])
    assert "attempt=2" in control.log(victim, 2)
    control.until_ledger_is_rays(4)


def test_a_gang_runs_whole_on_several_nodes_and_one_failed_member_ends_it(control, cluster, marks):
    work = WORK.format(marks=marks) + '[ "$DIVVY_RANK" = 0 ] || exit 7; sleep 60'
    options = ("--gpus", "4", "--per-node", "2", "--min-runtime", "1m")
    control.submit("pair", "lab.vision", work, *options)
    control.until(lambda: runs(marks)["pair 1"] == 2, 90)
    (marks.parent / "marks.go").touch()

    ended = control.until_state("pair", "failed")
    assert ended["exit_code"] == 7
    said = control.log("pair", 1)
    assert "gpus=0,1 rank=0 attempt=1" in said
    assert "gpus=0,1 rank=1 attempt=1" in said
    control.until_ledger_is_rays(1)


def test_a_control_plane_that_dies_at_any_moment_loses_and_doubles_no_job(control, cluster, marks):
    chance = random.Random(6)
    jobs = [f"k{number}" for number in range(4)]
    (marks.parent / "marks.go").touch()
    for job in jobs:
        work = WORK.format(marks=marks) + "sleep 1"
        control.submit(job, "lab.vision", work, "--gpus", "2", "--min-runtime", "1m")
    for _ in range(3):
        time.sleep(chance.uniform(0, 4))
        control.kill()
        control.start()
    for job in jobs:
        assert control.until_state(job, "finished", "failed")["state"] == "finished"

    assert runs(marks) == Counter(f"{job} 1" for job in jobs)
    assert {name: len(found) for name, found in cluster.jobs().items() if name in jobs} == dict.fromkeys(
        jobs, 1
    )
    control.until_ledger_is_rays(4)


def test_a_cancelled_job_leaves_ray_and_a_missing_command_is_the_jobs_fault(control, cluster, marks):
    control.submit("gone", "lab.vision", WORK.format(marks=marks), "--gpus", "1", "--warn", "0s")
    control.submit("typo", "lab.vision", "no-such-command", "--gpus", "1")
    control.until(lambda: runs(marks)["gone 1"], 90)
    control.cancel("gone")
    assert control.until_state("gone", "cancelled")
    assert control.until_state("typo", "failed")["exit_code"] == 127
    assert cluster.jobs()["gone"][0]["status"] == "STOPPED"
