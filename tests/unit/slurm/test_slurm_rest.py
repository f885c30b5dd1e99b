import json

import pytest

from divvy.adapters.slurm.rest import v0_0_38
from divvy.adapters.slurm.tres import Gpus
from slurm_samples import sample


def record(**fields):
    return {
        "job_id": 7, "array_job_id": 0, "array_task_id": None, "array_task_string": "", "het_job_id": 0,
        "job_state": "RUNNING", "nodes": "n[1-2]", "node_count": 2, "gres_detail": ["gpu:h100:1(IDX:0)", "gpu:h100:3(IDX:0-2)"],
        "tres_alloc_str": "cpu=2,gres/gpu=4,gres/gpu:h100=4", "tres_per_node": "", "priority": 5, "nice": 0,
        "time_limit": 4294967295, "submit_time": 10, "exit_code": 256, "requeue": True, "batch_flag": True,
    } | fields  # fmt: skip


def test_a_job_and_how_it_lies_on_its_nodes():
    job = v0_0_38.read_jobs({"jobs": [record()], "errors": []})["7"]
    assert job.gpus == Gpus(4, (("h100", 4),)) and job.spread == (("n1", 1), ("n2", 3))
    assert (job.limit, job.submit, job.exit_code, job.priority) == (0, 10_000, 1, 5)


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"array_job_id": 7, "array_task_string": "1-2,5%2", "nodes": ""}, ["7_1", "7_2", "7_5"]),
        ({"array_job_id": 7, "array_task_id": 0, "job_id": 9}, ["7_0"]),
        ({"array_job_id": 7}, ["7"]),
        ({"het_job_id": 3, "job_id": 4}, ["3"]),
    ],
)
def test_what_a_record_is_called(fields, names):
    assert list(v0_0_38.read_jobs({"jobs": [record(**fields)]})) == names


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"jobs": None},
        {"jobs": [], "errors": ["down"]},
        {"jobs": [record(array_job_id=1, array_task_string="1-3,...")]},
    ],
)
def test_an_answer_that_cannot_be_trusted_is_refused(answer):
    with pytest.raises(ValueError, match=r"."):
        v0_0_38.read_jobs(answer)


@pytest.mark.parametrize("name", ["squeue_json_21.08.txt"])
def test_recorded_answers_of_the_version_before_are_read(name):
    text = sample(name)
    jobs = v0_0_38.read_jobs(json.loads(text[text.index("{") :]))
    assert jobs and all(job.state for job in jobs.values())
