"""Both directions of the comparison between a Slurm and the state, on views made by hand."""

from dataclasses import replace

import pytest

from divvy.adapters.slurm.commands import Steward, overdue
from divvy.adapters.slurm.record import MARK, PastRun, SlurmJob, SlurmNode, View
from divvy.adapters.slurm.settings import SlurmSettings
from divvy.adapters.slurm.tres import Gpus
from divvy.adapters.slurm.truth import Truth
from divvy.control.state import FleetState
from divvy.fleet.budget import read_budget
from divvy.fleet.event import NodeChanged, Placed, Stopping, Withdrawn
from divvy.fleet.job import Phase, StopCause
from divvy.fleet.node import NodeState
from divvy.units import MINUTE, SECOND

BUDGET = {"accounts": {"a": {"share": 60, "slurm": ["vis*"]}, "b": {"share": 40}, "unfunded": {"share": 0}}}
FOUR = Gpus(4, (("h100", 4),))
NOW = 1_000_000_000


def job(name, state="PENDING", **fields):
    base = {
        "account": "vis", "user": "ada", "partition": "gpu", "gpus": FOUR, "submit": NOW - 10_000,
        "comment": "divvy: min_runtime=1m resumable",
    }  # fmt: skip
    if state == "RUNNING":
        base |= {"start": NOW - 5_000, "nodes": ("n1",)}
    return SlurmJob(name, state, **(base | fields))


class Bench:
    """A state, its comparison with Slurm, and Slurm's jobs as a dictionary."""

    def __init__(self, **settings):
        self.charged = []
        self.state = FleetState(read_budget(BUDGET), self.charged.append)
        self.settings = SlurmSettings(**settings)
        self.known = set()
        rows = self.state.snapshot.jobs.row
        seen = lambda names: (self.known | set(rows)) & set(names)  # noqa: E731 - as the store answers
        self.truth = Truth(self.state.snapshot, self.settings, seen)
        self.steward = Steward(self.state.snapshot, self.settings)
        self.nodes = {f"n{n}": SlurmNode(f"n{n}", FOUR, partitions=("gpu",)) for n in (1, 2, 3)}
        self.now = NOW

    def look(self, *jobs, past=None, asked=(), passed=0):
        """Absorb a view; return the names of the events."""
        self.now += passed
        self.view = View(self.now, {j.id: j for j in jobs}, self.nodes, {}, past or {}, frozenset(asked))
        told = []
        for event in self.truth.events(self.view, self.now):
            self.state.apply(event)
            told.append(event)
        return told

    def orders(self):
        live = self.truth.rows()
        truth = self.truth
        return self.steward.commands(self.view, self.now, live, truth.managed, truth.doomed, truth.strangers)

    def phase(self, name):
        jobs = self.state.snapshot.jobs
        return jobs.phase[jobs.row[name]]

    def place(self, name, node="n1"):
        self.state.apply(Placed(self.now, name, ((node, 4),), protected=True))

    def stop(self, name, cause=StopCause.PREEMPTED):
        self.state.apply(Stopping(self.now, name, cause))


def words(commands):
    return [" ".join(command) for command in commands]


def test_a_waiting_job_is_taken_in_held_and_released_when_it_is_placed():
    bench = Bench()
    bench.look(job("1"))
    assert bench.phase("1") is Phase.QUEUED
    assert words(bench.orders()) == [f"scontrol update JobId=1 Priority=0 AdminComment={MARK}"]
    held = job("1", priority=0, reason="JobHeldAdmin", mark=MARK)
    assert bench.look(held) == []
    assert bench.orders() == []
    bench.place("1")
    assert words(bench.orders()) == ["scontrol release 1"]
    bench.look(job("1", "RUNNING", start=bench.now, nodes=("n2",)))
    jobs = bench.state.snapshot.jobs
    assert bench.phase("1") is Phase.RUNNING and jobs.placement[0] == ((1, 4),), "where Slurm put it"
    assert bench.state.snapshot.nodes.free == [4, 0, 4]


@pytest.mark.parametrize(
    ("state", "code", "phase"), [("COMPLETED", 0, Phase.FINISHED), ("FAILED", 3, Phase.FAILED)]
)
@pytest.mark.parametrize("released", [True, False])
def test_a_run_of_less_than_a_second_ends_as_it_did(state, code, phase, released):
    bench = Bench()
    bench.look(job("1"))
    if released:
        bench.now += 1_500
        bench.place("1")
    over = job("1", state, start=NOW + 1_000, end=NOW + 1_000, nodes=("n1",), exit_code=code)
    told = bench.look(over, passed=600)
    assert bench.phase("1") is phase and told[-1].exit_code == code
    assert bench.state.snapshot.nodes.free == [4, 4, 4]
    assert bench.look(over) == []


def test_a_job_cancelled_in_the_queue_never_ran():
    bench = Bench()
    bench.look(job("1"))
    bench.place("1")
    bench.look(job("1", "CANCELLED", start=NOW, end=NOW, nodes=("n1",)))
    assert bench.phase("1") is Phase.CANCELLED and bench.charged == []


def test_ten_thousand_jobs_are_told_in_a_handful_of_commands():
    bench = Bench()
    bench.look(*(job(str(n)) for n in range(10_000)))
    commands = bench.orders()
    assert len(commands) == 1 and commands[0][2].count(",") == 9_999


def test_a_job_that_slurm_started_by_itself_is_adopted_and_charged_to_the_second():
    bench = Bench()
    told = bench.look(
        job("1", "RUNNING"), job("2", "COMPLETED", start=NOW - 9_000, end=NOW - 2_000, nodes=("n2",))
    )
    assert bench.phase("1") is Phase.RUNNING
    assert len(told) == 3 + 2 + 3
    assert [(entry.job, entry.end - entry.start, entry.gpus) for entry in bench.charged] == [("2", 7_000, 4)]
    assert bench.look(job("1", "RUNNING")) == []


def test_a_finished_job_that_the_store_knows_is_not_charged_again():
    bench = Bench()
    bench.known = {"2"}
    done = job("2", "COMPLETED", start=NOW - 9_000, end=NOW - 2_000, nodes=("n2",))
    assert len(bench.look(done)) == 3 and bench.charged == []


def test_a_run_that_a_crashed_controller_brings_back_is_not_charged_twice():
    bench = Bench()
    run = job("1", "RUNNING")
    bench.look(run)
    bench.look(replace(run, state="COMPLETED", end=NOW, exit_code=0))
    assert bench.look(run, passed=1_000) == [] and len(bench.charged) == 1


def test_a_known_job_that_waits_again_has_a_new_name():
    bench = Bench()
    bench.known = {"2"}
    bench.look(job("2"))
    assert bench.phase(f"2@{(NOW - 10_000) // 1000}") is Phase.QUEUED


def test_a_preempted_run_is_warned_then_put_back_and_returns_when_slurm_lets_it():
    bench = Bench(warn=60 * SECOND)
    run = job("1", "RUNNING")
    bench.look(run)
    bench.stop("1")
    assert words(bench.orders()) == ["scancel --signal=USR1 --batch 1"]
    bench.look(run, passed=59 * SECOND)
    assert bench.orders() == []
    bench.look(run, passed=2 * SECOND)
    assert words(bench.orders()) == [
        f"scontrol update JobId=1 Requeue=1 AdminComment={MARK}",
        "scontrol requeuehold 1",
    ]
    ended = bench.now
    back = job(
        "1",
        priority=0,
        reason="job requeued in held state",
        mark=MARK,
        submit=ended + 5_000,
        eligible=ended + 121_000,
        restarts=1,
    )
    assert bench.look(replace(run, state="COMPLETING")) == []
    assert bench.look(back, passed=6_000) == [] and bench.truth.wanted == {"1"}
    past = {"1": (PastRun("1", "REQUEUED", run.start, ended), PastRun("1", "PENDING", 0, 0))}
    told = bench.look(back, past=past, asked=("1",), passed=121_000)
    assert [type(event).__name__ for event in told] == ["Stopped"] and bench.phase("1") is Phase.QUEUED
    assert bench.charged[0].end == ended, "as the accounting says, not when the devices came free"


@pytest.mark.parametrize(
    ("state", "code", "back"), [("COMPLETED", 0, False), ("FAILED", 75, True), ("CANCELLED", None, True)]
)
def test_a_run_that_ends_by_itself_while_it_is_warned(state, code, back):
    bench = Bench()
    bench.look(job("1", "RUNNING"))
    bench.stop("1")
    bench.orders()
    over = job("1", state, start=NOW - 5_000, end=NOW + 1_000, nodes=("n1",), exit_code=code)
    bench.look(over, passed=2_000)
    requeued = any(command[:2] == ("scontrol", "requeuehold") for command in bench.orders())
    assert requeued is back
    assert bench.phase("1") is (Phase.STOPPING if back else Phase.FINISHED)
    for _ in range(6):  # Slurm does not take it back
        bench.look(over, passed=1_000)
    assert bench.phase("1") is (Phase.PREEMPTED if back else Phase.FINISHED)


def test_requeue_storms_are_bounded():
    bench = Bench(warn=0, requeues_per_minute=2)
    bench.nodes = {f"n{n}": SlurmNode(f"n{n}", FOUR) for n in range(1, 9)}
    runs = [job(str(n), "RUNNING", nodes=(f"n{n}",), mark=MARK) for n in range(1, 9)]
    bench.look(*runs)
    for run in runs:
        bench.stop(run.id)
    asked = []
    for _ in range(4):
        asked += [command[2].count(",") + 1 for command in bench.orders() if command[1] == "requeuehold"]
        bench.look(*runs, passed=MINUTE // 4)
    assert asked == [2]
    bench.look(*runs, passed=MINUTE)
    assert [command[2].count(",") + 1 for command in bench.orders() if command[1] == "requeuehold"] == [2]


def test_a_vanished_job_waits_for_the_accounting_and_is_not_invented():
    bench = Bench()
    run = job("1", "RUNNING")
    bench.look(run)
    assert bench.look() == [] and bench.truth.wanted == {"1"}
    assert bench.look(passed=60_000) == [], "the accounting could not be asked: nothing is known"
    past = {"1": (PastRun("1", "TIMEOUT", run.start, NOW + 7_000, FOUR, ("n1",)),)}
    bench.look(past=past, asked=("1",))
    assert bench.phase("1") is Phase.FAILED and bench.charged[0].end == NOW + 7_000


def test_promises_are_taken_back_where_slurm_put_something_else():
    bench = Bench()
    held = {"priority": 0, "reason": "JobHeldAdmin", "mark": MARK}
    bench.look(job("1", **held), job("2", **held))
    bench.place("1", "n1")
    bench.place("2", "n2")
    bench.look(job("1", "RUNNING", start=bench.now, nodes=("n2",)), job("2", **held))
    assert bench.phase("1") is Phase.RUNNING and bench.phase("2") is Phase.QUEUED
    assert min(bench.state.snapshot.nodes.free) >= 0


def test_capacity_is_what_managed_jobs_can_have():
    bench = Bench()
    bench.nodes["n1"] = replace(bench.nodes["n1"], shared=1)
    bench.nodes["n2"] = replace(bench.nodes["n2"], state="IDLE+DRAIN", reason="a fan")
    bench.nodes["n3"] = replace(bench.nodes["n3"], state="DOWN*", reason="dead")
    bench.look()
    nodes = bench.state.snapshot.nodes
    assert [(node.gpus, node.state.name, node.cause) for node in nodes.node] == [
        (3, "UP", ""), (4, "DRAINING", "slurm: a fan"), (4, "DOWN", "slurm: DOWN* dead"),
    ]  # fmt: skip
    del bench.nodes["n3"]
    bench.look()
    assert nodes.node[2].gpus == 0


def test_a_drain_that_was_asked_for_here_is_done_and_undone_there():
    bench = Bench()
    bench.look()
    nodes = bench.state.snapshot.nodes
    bench.state.apply(
        NodeChanged(bench.now, replace(nodes.node[0], state=NodeState.DRAINING, cause="drained by ada"))
    )
    bench.look()
    assert words(bench.orders()) == ["scontrol update NodeName=n1 State=DRAIN Reason=divvy: drained by ada"]
    bench.nodes["n1"] = replace(
        bench.nodes["n1"], state="IDLE+DRAIN", reason="divvy: drained by ada [root@1]"
    )
    bench.look()
    assert bench.orders() == [] and nodes.node[0].cause == "drained by ada"
    bench.state.apply(NodeChanged(bench.now, replace(nodes.node[0], state=NodeState.UP, cause="")))
    bench.look()
    assert words(bench.orders()) == ["scontrol update NodeName=n1 State=RESUME"]


def test_a_job_that_slurm_cannot_start_is_taken_back_sooner_when_it_is_not_for_devices():
    bench = Bench()
    bench.look(job("1"), job("2"))
    bench.place("1")
    bench.place("2", "n2")
    since = {}
    view = {"1": "Resources", "2": "AssocGrpCpuLimit"}
    late = []
    for _ in range(5):
        bench.look(*(job(name, reason=reason) for name, reason in view.items()), passed=10_000)
        late += overdue(bench.state.snapshot, bench.view, bench.truth.rows(), since, bench.now, 2 * MINUTE)
    assert {(name, reason) for name, _, reason in late} == {("2", "AssocGrpCpuLimit")}


def test_names_that_nobody_claims_are_unfunded_and_words_not_understood_are_told():
    bench = Bench()
    bench.look(job("1", account="nobody", comment="divvy: min_runtime=soon"))
    snapshot = bench.state.snapshot
    assert snapshot.jobs.spec[0].account == "unfunded" and snapshot.jobs.spec[0].min_runtime == 60 * MINUTE
    assert "1" in bench.truth.faults


def test_a_job_for_which_nobody_can_be_charged_is_left_to_slurm():
    bench = Bench(unfunded="nowhere")
    held = {"priority": 0, "mark": "divvy:new", "reason": "JobHeldUser"}
    bench.look(
        job("1", account="nobody", **held), job("2", "RUNNING", account="nobody"), job("3", account="nobody")
    )
    assert bench.state.snapshot.jobs.row == {}
    assert words(bench.orders()) == ["scontrol release 1"]
    bench.look(job("1", account="nobody"), job("2", "RUNNING", account="nobody"))
    assert bench.state.snapshot.nodes.node[0].gpus == 0, "its devices are not there for the planners"


def test_runs_that_came_and_went_while_nobody_looked_are_charged_once():
    bench = Bench()
    who = {"account": "vis", "user": "ada", "partition": "gpu"}
    runs = (
        PastRun("9", "REQUEUED", NOW - 90_000, NOW - 60_000, FOUR, ("n1",), submit=NOW - 95_000, **who),
        PastRun("9", "COMPLETED", NOW - 50_000, NOW - 20_000, FOUR, ("n2",), 0, NOW - 60_000, **who),
    )
    pending = (PastRun("8", "PENDING", 0, 0, submit=NOW, **who),)
    history = {"9": runs, "8": pending}
    bench.view = View(NOW, {}, bench.nodes, history=history)
    for _ in range(2):
        for event in bench.truth.events(bench.view, NOW):
            bench.state.apply(event)
    assert [(entry.attempt, entry.end - entry.start) for entry in bench.charged] == [(1, 30_000), (2, 30_000)]
    assert bench.phase("9") is Phase.FINISHED


def test_a_cancelled_run_that_slurm_puts_back_does_not_run_again():
    bench = Bench()
    run = job("1", "RUNNING")
    bench.look(run)
    bench.stop("1", StopCause.CANCELLED)
    past = {"1": (PastRun("1", "NODE_FAIL", run.start, NOW),)}
    assert bench.look(job("1", restarts=1, submit=NOW), past=past, asked=("1",), passed=1_000) == []
    assert words(bench.orders()) == ["scancel 1"]
    bench.look(job("1", "CANCELLED", submit=NOW, start=NOW + 2_000, end=NOW + 2_000), passed=2_000)
    assert bench.phase("1") is Phase.CANCELLED


def test_cancelled_here_is_cancelled_there():
    bench = Bench()
    bench.look(job("1", "RUNNING"), job("2"))
    bench.stop("1", StopCause.CANCELLED)
    bench.state.apply(Withdrawn(bench.now, "2"))
    bench.look(job("1", "RUNNING"), job("2"))
    assert words(bench.orders()) == ["scancel 1 2"]
