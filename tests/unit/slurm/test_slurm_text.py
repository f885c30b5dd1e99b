import pytest

from divvy.adapters.slurm import text
from divvy.adapters.slurm.text import RECORD, UNIT


def line(**fields):
    values = {
        "State": "PENDING", "Reason": "None", "UserName": "ada", "Account": "vis", "Partition": "gpu",
        "tres-alloc": "cpu=1,gres/gpu=2,gres/gpu:h100=2", "NumNodes": "1", "PriorityLong": "5", "Nice": "0",
        "SubmitTime": "100", "EligibleTime": "N/A", "StartTime": "N/A", "EndTime": "N/A", "TimeLimit": "UNLIMITED",
        "Requeue": "1", "RestartCnt": "0", "exit_code": "0", "BatchFlag": "1", "HetJobID": "N/A",
        "Dependency": "(null)", "Comment": "(null)", "admin_comment": "(null)", "Name": "n",
    } | fields  # fmt: skip
    return UNIT.join(values.get(name, "") for name in text._FIELDS) + RECORD + "\n"


def test_jobs_tasks_and_text_with_anything_in_it():
    read = text.read_queue(
        line(JobArrayID="7_3", Comment="a|b\nc, ☃", Name="two words", TimeLimit="1-02:03:04", exit_code="256")
    )
    job = read["7_3"]
    assert (job.comment, job.name, job.limit, job.exit_code) == ("a|b\nc, ☃", "two words", 93_784_000, 1)
    assert job.gpus.total == 2 and job.submit == 100_000 and job.waits and not job.held


def test_a_heterogeneous_job_is_one_job():
    parts = line(
        JobArrayID="9+0",
        HetJobID="9",
        State="RUNNING",
        NodeList="n1",
        **{"tres-alloc": "gres/gpu:h100=2,gres/gpu=2"},
    ) + line(
        JobArrayID="9+1",
        HetJobID="9",
        State="RUNNING",
        NodeList="n2",
        **{"tres-alloc": "gres/gpu:a100=1,gres/gpu=1"},
    )
    job = text.read_queue(parts)["9"]
    assert job.gpus.total == 3 and job.spread == (("n1", 2), ("n2", 1)) and job.nodes == ("n1", "n2")


def test_an_empty_queue_and_a_damaged_one():
    assert text.read_queue("") == {} and text.read_queue("\n") == {}
    with pytest.raises(ValueError, match="fields"):
        text.read_queue("1\x1f2\x1e\n")


@pytest.mark.parametrize(
    ("shown", "ms"),
    [
        ("UNLIMITED", 0),
        ("10:00", 600_000),
        ("1:00:00", 3_600_000),
        ("2-00", 172_800_000),
        ("NOT_SET", 0),
        ("0:30", 30_000),
    ],
)
def test_time_limits(shown, ms):
    assert text.read_queue(line(JobArrayID="1", TimeLimit=shown))["1"].limit == ms


def test_nodes_with_shards_drains_and_two_types():
    shown = (
        "NodeName=g1 CPUAlloc=0 Gres=gpu:a100:2(S:0),gpu:v100:2,shard:a100:8 GresUsed=gpu:a100:0(IDX:N/A),"
        "shard:a100:3(3/4,0/4) State=MIXED+DRAIN Partitions=all,gpu Reason=a fan is loud [root@2026] Comment=x\n"
        "NodeName=c1 Gres=(null) State=IDLE\nNo such thing\n"
    )
    nodes = text.read_nodes(shown)
    assert list(nodes) == ["g1"]
    node = nodes["g1"]
    assert node.gpus.models == (("a100", 2), ("v100", 2)) and node.shared == 1
    assert node.reason.startswith("a fan is loud") and node.partitions == ("all", "gpu")


_WHO = ("vis", "ada", "gpu", "train", "divvy: free")


def test_accounting_of_a_requeued_job():
    rows = [
        ("4_1", "REQUEUED", "100", "130", "gres/gpu=4,gres/gpu:h100=4", "n1", "0:15", "90", *_WHO),
        ("4_1", "CANCELLED by 0", "140", "Unknown", "gres/gpu=4", "n2", "0:0", "130", *_WHO),
    ]
    runs = text.read_accounting("\n".join(text.UNIT.join(row) for row in rows))["4_1"]
    assert [(run.state, run.start, run.end, run.exit_code) for run in runs] == [
        ("REQUEUED", 100_000, 130_000, 143),
        ("CANCELLED", 140_000, 0, 0),
    ]


def test_ids_are_put_into_lists_that_fit_a_command():
    jobs = [str(number) for number in range(100_000, 130_000)]
    parts = list(text.chunks(jobs))
    assert [job for part in parts for job in part] == jobs
    assert len(parts) == 4 and all(len(",".join(part)) <= 60_000 for part in parts)
    assert list(text.chunks([])) == []
