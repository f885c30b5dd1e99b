"""Maintenance at a date, faults and refunds: in replay, by hand."""

import json

import pytest

from divvy.control.codec import canonical, restore, state_document
from divvy.control.state import FleetState
from divvy.errors import ConflictError, InputError
from divvy.fleet.budget import parse_budget
from divvy.fleet.event import (
    MaintenanceEnded,
    MaintenanceSet,
    NodeChanged,
    NodeCleared,
    NodeFaulted,
    Placed,
    Started,
    Stopped,
    Submitted,
    from_document,
    to_document,
)
from divvy.fleet.health import is_fatal
from divvy.fleet.job import JobSpec, StopCause
from divvy.fleet.node import Node, NodeState
from divvy.fleet.reason import Reason
from divvy.planners.base import Context
from divvy.planners.jobs.budget import BudgetPlanner
from divvy.sim.accounts import claim
from divvy.sim.engine import Pace
from divvy.sim.replay import replay
from divvy.sim.scenario import Scenario
from divvy.sim.traces.jsonlines import read_jsonlines
from divvy.units import HOUR, MINUTE

BUDGET = "[accounts.a]\nshare = 60\n[accounts.b]\nshare = 40\n"


def play(*rows, nodes=2, policy=""):
    data = "\n".join(json.dumps(row) for row in rows).encode() + b"\n"
    trace = read_jsonlines(data, "t")
    budget, claims = claim(trace, parse_budget(policy + BUDGET))
    fleet = tuple(Node(f"n{number}", 4) for number in range(nodes))
    done = replay(Scenario(trace, fleet, budget, claims, pace=Pace(0, 0)), BudgetPlanner())
    assert not done.refused
    record, spec = done.record, done.workload.spec
    return [
        (
            spec[job].id,
            dict(record.placement[run]),
            record.start[run] / HOUR,
            record.end[run] / HOUR,
            record.cause[run],
        )
        for run, job in enumerate(record.job)
    ]


def job(name, submit, runtime, gpus=4, least=1, **more):
    fields = {"min_runtime": f"{least}h", "resumable": True, "author": "u"} | more
    runs = {"runtime": f"{runtime}h", "gpus": gpus, "account": "a"}
    return {"id": name, "submit": submit * 3600, **runs, **fields}


def test_what_would_outlast_the_begin_of_maintenance_goes_elsewhere_and_shorter_work_may_start():
    runs = play(
        {"event": "maintenance", "at": 0, "node": "n0", "from": 2 * 3600, "until": 5 * 3600},
        job("long", 0, 3, least=3),
        job("short", 0, 1, least=1),
        job("late", 1.5, 2, least=2),
    )
    assert runs == [
        ("long", {"n1": 4}, 0, 3, StopCause.FINISHED),
        ("short", {"n0": 4}, 0, 1, StopCause.FINISHED),
        ("late", {"n1": 4}, 3, 5, StopCause.FINISHED),
    ]


def test_a_shorter_job_is_not_hidden_behind_a_longer_one_of_its_shape_that_maintenance_keeps_out():
    runs = play(
        {"event": "maintenance", "at": 0, "node": "n0", "from": 3 * 3600, "until": 9 * 3600},
        job("longest", 0, 6, least=6),
        job("long", 0, 4, least=4, author="v"),
        job("short", 1, 1, least=1),
        nodes=1,
    )
    assert [(name, start) for name, _, start, _, _ in runs] == [("short", 1), ("long", 9), ("longest", 13)]


def owed_while(drained, *rows):
    """Return the devices that count over time while the second of two nodes drains from an hour on."""
    node = {"event": "capacity", "at": drained * 3600, "node": "n1", "gpus": 4, "state": "draining"}
    data = "\n".join(json.dumps(row) for row in (*rows, node)).encode() + b"\n"
    trace = read_jsonlines(data, "t")
    budget, claims = claim(trace, parse_budget(BUDGET))
    fleet = (Node("n0", 4), Node("n1", 4))
    done = replay(Scenario(trace, fleet, budget, claims, pace=Pace(0, 0)), BudgetPlanner())
    steps = [(step.at / HOUR, step.gpus) for step in done.record.capacity]
    return [step for step, before in zip(steps, [(0, -1), *steps], strict=False) if step[1] != before[1]]


def test_a_draining_node_counts_as_capacity_for_what_runs_there_and_for_nothing_once_it_is_empty():
    first, second = job("first", 0, 2, least=2), job("second", 0, 3, least=3)
    assert owed_while(1, first, second) == [(0, 8), (3, 4)]
    assert owed_while(1, job("only", 0, 2, least=2)) == [(0, 8), (1, 4)]
    partly = job("half", 0, 3, gpus=2, least=3)
    assert owed_while(1, first, partly) == [(0, 8), (1, 6), (3, 4)]


def test_floors_and_entitlements_follow_what_of_a_draining_node_still_counts():
    state = FleetState(parse_budget(BUDGET))
    for name in ("n0", "n1"):
        state.apply(NodeChanged(0, Node(name, 4)))
    spec = JobSpec(id="j", account="a", author="u", gpus=2, min_runtime=HOUR)
    state.apply(Submitted(0, spec))
    state.apply(Placed(0, "j", (("n1", 2),), protected=True))
    state.apply(Started(0, "j"))
    planner = BudgetPlanner()

    def floor_of_a():
        plan = planner.plan(state.snapshot, Context(MINUTE))
        fresh = BudgetPlanner().plan(state.snapshot, Context(MINUTE))
        assert plan == fresh
        return next(standing.floor for standing in plan.standings)

    whole = floor_of_a()
    state.apply(NodeChanged(10, Node("n1", 4, state=NodeState.DRAINING)))
    assert floor_of_a() == pytest.approx(whole * 6 / 8)
    state.apply(Stopped(20, "j", StopCause.FINISHED, requeue=False))
    state.apply(Submitted(20, spec._replace(id="k")))
    assert floor_of_a() == pytest.approx(whole * 4 / 8)
    assert state.snapshot.healthy_gpus() == 4
    again = restore(json.loads(canonical(state_document(state.snapshot))))
    assert again.snapshot.healthy_gpus() == 4
    again.apply(NodeChanged(2 * HOUR, Node("n1", 4)))
    assert again.snapshot.healthy_gpus() == 8
    assert again.snapshot.capacity.rate == 8 * Node("n1", 4).weight


def test_a_job_that_maintenance_keeps_out_is_told_so():
    made = FleetState(parse_budget(BUDGET))
    made.apply(NodeChanged(0, Node("n", 4)))
    made.apply(MaintenanceSet(0, "n", HOUR, 0, "fan"))
    made.apply(Submitted(0, JobSpec("j", "a", "ada", 2, 2 * HOUR)))
    plan = BudgetPlanner().plan(made.snapshot, Context(0))
    assert [wait.reason for _, wait in plan.waits] == [Reason.WAIT_SLOT]
    assert not plan.decisions


def test_work_past_its_minimum_leaves_at_the_begin_and_the_node_comes_back_at_the_end():
    runs = play(
        {"event": "maintenance", "at": 0, "node": "n0", "from": 2 * 3600, "until": 3 * 3600},
        job("a", 0, 4, least=1),
        nodes=1,
    )
    assert runs == [("a", {"n0": 4}, 0, 2, StopCause.DRAINED), ("a", {"n0": 4}, 3, 7, StopCause.FINISHED)]


def test_a_gang_gets_no_slot_into_maintenance():
    runs = play(
        {"event": "maintenance", "at": 0, "node": "n0", "from": 3 * 3600, "until": 4 * 3600},
        job("a1", 0, 2, least=2),
        job("a2", 0, 2, least=2),
        job("gang", 0.1, 2, gpus=8, least=2, account="b"),
    )
    assert [(name, start) for name, _, start, *_ in runs] == [("a1", 0), ("a2", 0), ("gang", 4)]


def test_a_fault_drains_at_the_end_of_protection_and_the_node_returns_when_it_is_well():
    runs = play(
        {"event": "fault", "at": 600, "node": "n0", "code": "xid-63"},
        {"event": "healthy", "at": 2 * 3600, "node": "n0"},
        job("a", 0, 3, least=1),
        nodes=1,
    )
    assert [(start, end, cause) for _, _, start, end, cause in runs] == [
        (0, 1, StopCause.DRAINED),
        (2, 5, StopCause.FINISHED),
    ]


def test_a_fatal_fault_ends_what_runs_at_once():
    runs = play(
        {"event": "fault", "at": 600, "node": "n0", "code": "xid-79"},
        {"event": "healthy", "at": 3600, "node": "n0"},
        job("a", 0, 3, least=3),
        nodes=1,
    )
    assert [(start, end, cause) for _, _, start, end, cause in runs] == [
        (0, 600 / 3600, StopCause.NODE_LOST),
        (1, 4, StopCause.FINISHED),
    ]


def test_a_quiet_node_comes_back_by_itself_if_the_policy_says_so():
    rows = ({"event": "fault", "at": 0, "node": "n0", "code": "ecc"}, job("a", 0, 1))
    runs = play(*rows, nodes=1, policy='[policy]\nfault_clears_after = "2h"\n')
    assert [start for _, _, start, *_ in runs] == [2]


def test_faults_of_applications_take_no_node_out():
    assert [is_fatal(code) for code in ("xid-79", "xid-63", "xid-13", "ecc")] == [True, False, None, False]
    runs = play({"event": "fault", "at": 0, "node": "n0", "code": "xid-13"}, job("a", 0, 1), nodes=1)
    assert [start for _, _, start, *_ in runs] == [0]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"event": "fault", "at": 0, "node": "n0"}, "trace-field"),
        ({"event": "fault", "at": 0, "node": "n0", "code": "x", "until": 3}, "trace-field"),
        ({"event": "maintenance", "at": 0, "node": "n0", "from": 9, "until": 9}, "trace-value"),
        ({"event": "maintenance", "at": 0, "node": "n0", "from": "noon"}, "trace-value"),
        ({"event": "flood", "at": 0, "node": "n0"}, "trace-event"),
    ],
)
def test_damaged_incidents_are_told(row, code):
    with pytest.raises(InputError) as caught:
        read_jsonlines(f"{json.dumps(row)}\n{json.dumps(job('a', 0, 1))}\n".encode(), "t")
    assert [fault.code for fault in caught.value.faults] == [code]


def state(entries, minimum=2 * HOUR):
    made = FleetState(parse_budget(BUDGET), entries.append)
    made.apply(NodeChanged(0, Node("n", 4, "x", 3)))
    made.apply(Submitted(0, JobSpec("j", "a", "ada", 2, minimum)))
    made.apply(Placed(0, "j", (("n", 2),), protected=True))
    made.apply(Started(0, "j"))
    return made


@pytest.mark.parametrize("first", ["fault", "end"])
@pytest.mark.parametrize(("ran", "back"), [(HOUR, HOUR), (5 * HOUR, 2 * HOUR)])
def test_a_refund_needs_a_fault_and_gives_back_at_most_one_minimum_runtime(first, ran, back):
    entries = []
    made = state(entries)
    events = [NodeFaulted(ran, "n", "xid-79", True), Stopped(ran, "j", StopCause.NODE_LOST, requeue=True)]
    for event in events if first == "fault" else reversed(events):
        made.apply(event)
    refund = next(e for e in entries if e.cause == "refund-node-failure")
    assert (refund.account, refund.job, refund.attempt, refund.charge) == ("a", "j", 1, -6 * back)
    assert made.snapshot.usage[1].total(ran) == 6 * (ran - back)
    assert made.snapshot.author_usage[1, "ada"].total(ran) == 6 * (ran - back)


@pytest.mark.parametrize(
    ("cause", "fault_at"),
    [(StopCause.NODE_LOST, None), (StopCause.PREEMPTED, 0), (StopCause.FAILED, 70 * MINUTE)],
)
def test_there_is_no_refund_without_a_fault_near_the_end_of_a_run_that_was_lost(cause, fault_at):
    entries = []
    made = state(entries)
    made.apply(Stopped(5 * MINUTE, "j", cause, requeue=False))
    if fault_at is not None:
        made.apply(NodeFaulted(max(fault_at, 5 * MINUTE), "n", "xid-79", True))
    assert [e.cause for e in entries] == ["occupancy"]


def test_health_survives_the_base_snapshot_and_the_journal():
    made = state([])
    for event in (
        MaintenanceSet(1, "n", 5, 9, "fan"),
        NodeFaulted(2, "n", "ecc"),
        Stopped(3, "j", StopCause.FAILED, requeue=False),
        Submitted(3, JobSpec("k", "a", "ada", 1, HOUR)),
        NodeCleared(4, "n"),
        MaintenanceEnded(5, "n"),
    ):
        assert from_document(json.loads(json.dumps(to_document(event)))) == event
        made.apply(event)
        again = restore(json.loads(canonical(state_document(made.snapshot))))
        assert again.snapshot.nodes.fault == made.snapshot.nodes.fault
        assert again.snapshot.nodes.window == made.snapshot.nodes.window
        assert again.snapshot.lost == made.snapshot.lost


def test_what_contradicts_the_health_of_a_node_is_refused():
    made = state([])
    with pytest.raises(ConflictError):
        made.apply(NodeCleared(1, "n"))
    with pytest.raises(ConflictError):
        made.apply(MaintenanceEnded(1, "n"))
    with pytest.raises(InputError):
        made.apply(MaintenanceSet(1, "n", 5, 5, "fan"))
