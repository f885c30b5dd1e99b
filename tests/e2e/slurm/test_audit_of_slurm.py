"""What a real Slurm says of the same jobs in all its forms is understood alike."""

import io
from types import SimpleNamespace

import pytest

from divvy.adapters.slurm.accounting.clock import Clock
from divvy.adapters.slurm.accounting.read import Form, read_accounting
from divvy.control.audit.attribute import By
from divvy.control.audit.audit import Period, audit
from divvy.control.audit.jobs import Fate
from divvy.fleet.budget import parse_budget
from divvy.units import SECOND

pytestmark = pytest.mark.e2e

COLUMNS = (
    "JobID,JobIDRaw,Cluster,Account,User,QOS,Partition,State,Submit,Eligible,Start,End,Elapsed,Timelimit,NNodes,"
    "NodeList,ReqTRES,AllocTRES,SubmitLine,JobName"
)
BUDGET = """
[accounts.vision]
share = 50
slurm = ["vis"]
[accounts.language]
share = 50
slurm = ["lang"]
"""


def read(*texts, zone=""):
    files = [(f"f{n}", io.BytesIO(text.encode())) for n, text in enumerate(texts)]
    found = read_accounting(files, Form.AUTO, Clock(zone))
    assert found.tally.skipped == 0, found.warnings
    return found


def column(found, name):
    jobs = found.jobs
    return [jobs.numbers[name][n] if name in jobs.numbers else jobs.text(name, n) for n in range(len(jobs))]


def counted(found):
    """Return GPUs and model of every job."""
    columns = (column(found, name) for name in ("job", "gpus", "gpu_model"))
    return {job: (gpus, model) for job, gpus, model in zip(*columns, strict=True)}


def sacct(world, *options):
    return world.run("sacct", "-a", "-D", "-S", "now-1days", *options)


def completed(world):
    rows = sacct(world, "-X", "-n", "-P", "-o", "JobID,State").splitlines()
    return {job for job, state in (row.split("|") for row in rows) if state == "COMPLETED"}


@pytest.fixture(scope="module")
def ran(slurm):
    """Jobs of many kinds: their ids, and GPUs and model that each must have."""
    slurm.clear()
    typed = slurm.sbatch("vis", "--gres=gpu:h100:2", "-J", "a|b\nc | d", seconds=3)
    gang = slurm.sbatch("vis", "-N2", "--gres=gpu:h100:4", "-p", "h100", seconds=2)
    array = slurm.sbatch("lang", "--array=0-2", "--gpus=1", "-p", "h100", seconds=1)
    task = slurm.sbatch("lang", "-n2", "--gpus-per-task=a100:1", "-p", "mixed", seconds=1)
    whole = slurm.sbatch("lang", "--exclusive", "-w", "node01", "-p", "h100", seconds=1)
    shard = slurm.sbatch("lang", "--gres=shard:2", "-p", "mixed", seconds=1)
    plain = slurm.sbatch("stray", seconds=1)
    waiting = slurm.sbatch("vis", "--hold", "--gres=gpu:h100:1", "--array=1-4%2")
    again = slurm.sbatch("vis", "--gres=gpu:h100:1", seconds=8)
    slurm.until_state(again, "RUNNING")
    slurm.run("scontrol", "requeue", again)
    over = {typed, gang, task, whole, shard, plain, again, *(f"{array}_{n}" for n in range(3))}
    slurm.until(lambda: over <= completed(slurm), 90, "all are over")
    expected = {
        typed: (2, "h100"), gang: (8, "h100"), task: (2, "a100"), whole: (4, "h100"), shard: (0, ""), plain: (0, ""),
        again: (1, "h100"), **{f"{array}_{n}": (1, "h100") for n in range(3)},
    }  # fmt: skip
    yield SimpleNamespace(world=slurm, expected=expected, typed=typed, again=again, waiting=waiting)
    slurm.clear()


def mine(found, ran):
    return {job: told for job, told in counted(found).items() if job in ran.expected}


def test_tables_of_sacct(ran):
    plain = read(sacct(ran.world, "-P", "-o", COLUMNS))
    assert mine(plain, ran) == ran.expected and plain.tally.steps > 5
    same = ("job", "gpus", "gpu_model", "account", "user", "submit", "start", "end", "state", "limit")
    for options in (("-p",), ("-P", "--delimiter=\x1f"), ("-P", "-X")):
        other = read(sacct(ran.world, *options, "-o", COLUMNS))
        for name in same:
            assert column(other, name) == column(plain, name), (options, name)
    backwards = read(sacct(ran.world, "-P", "-o", ",".join(reversed(COLUMNS.split(",")))))
    assert mine(backwards, ran) == ran.expected
    sure = read(sacct(ran.world, "-P", "--delimiter=\x1f", "-o", COLUMNS))
    names = dict(zip(column(sure, "job"), column(sure, "name"), strict=True))
    assert names[ran.typed].startswith("a|b"), "with | it may be taken for a part of the command before it"


def test_a_requeued_job_has_two_runs(ran):
    found = read(sacct(ran.world, "-P", "-o", COLUMNS))
    runs = [n for n, job in enumerate(column(found, "job")) if job == ran.again]
    assert sorted(found.jobs.text("state", n) for n in runs) == ["COMPLETED", "REQUEUED"]
    first, second = (found.jobs.numbers["start"][n] for n in runs)
    assert first != second


def test_json_of_sacct_tells_the_same_as_its_table(ran):
    table = read(sacct(ran.world, "-P", "-X", "-o", COLUMNS))
    document = read(sacct(ran.world, "--json"))
    assert mine(document, ran) == {
        job: told for job, told in ran.expected.items() if job in counted(document)
    }
    assert ran.typed in counted(document)
    columns = ("job", "start", "end", "gpus", "state", "account", "limit")
    rows = [set(zip(*(column(found, name) for name in columns), strict=True)) for found in (table, document)]
    both = {row[0] for row in rows[0]} & {row[0] for row in rows[1]}
    ended = [{row for row in some if row[0] in both and row[2] > 0 and row[1] > 0} for some in rows]
    assert ended[1] <= ended[0] and len(ended[1]) > 6


def test_the_queue_tells_what_waits(ran):
    for text in (ran.world.run("squeue", "--json"), ran.world.run("scontrol", "show", "job")):
        found = read(text)
        told = {job: gpus for job, gpus in counted(found).items() if job.startswith(ran.waiting)}
        assert set(told.values()) == {(1, "h100")}, told
    listing = "%i|%a|%u|%P|%T|%V|%S|%e|%l|%D|%b"
    found = read(ran.world.run("squeue", "-t", "PD,R", "-o", listing))
    assert [gpus for job, gpus in counted(found).items() if job.startswith(ran.waiting)] == [(1, "h100")]


def test_nodes_in_all_forms(ran):
    world = ran.world
    for text in (
        world.run("scontrol", "show", "node"),
        world.run("scontrol", "-o", "show", "node"),
        world.run("sinfo", "--json"),
        world.run("sinfo", "-N", "-O", "NodeList:20,Gres:60,GresUsed:60,StateLong:20"),
        world.run("sinfo", "-o", "%N %G %T"),
    ):
        found = read(text)
        assert {node.name: node.gpus for node in found.nodes} == {f"node{n:02d}": 4 for n in range(1, 6)}, (
            text
        )
        assert all(node.in_service for node in found.nodes)


def test_gpu_hours_are_those_of_slurm_to_the_second(ran):
    world = ran.world
    text = sacct(world, "-P", "-o", COLUMNS)
    found = audit(
        read(text, world.run("scontrol", "show", "node")), parse_budget(BUDGET).tree, By.ACCOUNT, Period()
    )
    running = found.runs.number["fate"] == Fate.RUNNING
    used = sum(world.used().values())
    assert int(found.signs.held[~running].sum()) == used * SECOND and used > 0
    assert found.supply.gpus == 20 and found.attribution.unclaimed == ()
