"""Several accounts that may pay for a job, and several clusters under one tree: in replay, by hand."""

import json

import pytest

from divvy.control.state import FleetState
from divvy.errors import ConflictError, InputError
from divvy.fleet.budget import parse_budget
from divvy.fleet.event import Reassigned, Submitted, from_document, to_document
from divvy.fleet.job import JobSpec
from divvy.fleet.node import Node
from divvy.planners.jobs.admission import check
from divvy.planners.jobs.budget import BudgetPlanner
from divvy.sim.accounts import claim
from divvy.sim.engine import Pace
from divvy.sim.replay import replay
from divvy.sim.scenario import Scenario, build_fleet
from divvy.sim.traces.jsonlines import read_jsonlines
from divvy.units import HOUR

BUDGET = "[accounts.a]\nshare = 30\n[accounts.b]\nshare = 30\n[accounts.c]\nshare = 40\n"
EAST, WEST = Node("e", 4, cluster="east"), Node("w", 4, cluster="west")


ONE = (Node("n", 4),)


def play(*rows, nodes=ONE):
    data = "\n".join(json.dumps(row) for row in rows).encode() + b"\n"
    trace = read_jsonlines(data, "t")
    budget, claims = claim(trace, parse_budget(BUDGET))
    done = replay(Scenario(trace, nodes, budget, claims, pace=Pace(0, 0)), BudgetPlanner())
    assert not done.refused
    record, spec = done.record, done.workload.spec
    runs = [
        (spec[job].id, record.start[run] / HOUR, dict(record.placement[run]))
        for run, job in enumerate(record.job)
    ]
    return runs, [(entry.job, entry.account) for entry in done.ledger]


def job(name, submit, runtime, gpus=4, least=1, account="a", **more):
    fields = {"min_runtime": f"{least}h", "resumable": True, "author": "u"} | more
    runs = {"runtime": f"{runtime}h", "gpus": gpus, "account": account}
    return {"id": name, "submit": submit * 3600, **runs, **fields}


def test_the_first_account_that_is_under_served_pays():
    # 30% of 4 devices for a day are 28.8 GPU-hours: after 8 hours of 4 devices a is over-served.
    _, paid = play(job("x", 0, 8), *(job(f"j{n}", 8, 8, or_accounts=["b", "c"]) for n in range(3)))
    assert paid == [("x", "a"), ("j0", "b"), ("j1", "c"), ("j2", "c")]


def test_where_nobody_is_under_served_the_first_pays():
    _, paid = play(job("x", 0, 8), job("y", 0, 8, account="b"), job("j", 16, 1, or_accounts=["b"]))
    assert paid == [("x", "a"), ("y", "b"), ("j", "a")]


def test_a_gang_stays_inside_one_cluster_and_a_job_gets_the_clusters_that_it_asks_for():
    runs, _ = play(
        job("w1", 0, 2, gpus=2, clusters=["west"]),
        job("any", 0, 1, gpus=4),
        job("both", 0, 1, gpus=2, clusters=["west", "east"]),
        nodes=(EAST, WEST),
    )
    assert runs == [("w1", 0, {"w": 2}), ("any", 0, {"e": 4}), ("both", 0, {"w": 2})]
    runs, _ = play(job("a1", 0, 1, gpus=6), job("a2", 0, 1, gpus=1), nodes=(EAST, WEST))
    assert [name for name, *_ in runs] == ["a2"], "6 devices are in no one cluster"


def test_one_ledger_and_one_balance_span_the_clusters():
    runs, _ = play(
        job("e1", 0, 9, clusters=["east"], least=8),
        job("w1", 0, 9, clusters=["west"], least=8),
        job("w2", 0.5, 1, clusters=["west"], account="a"),
        job("w3", 1, 1, clusters=["west"], account="b"),
        nodes=(EAST, WEST),
    )
    started = {name: start for name, start, _ in reversed(runs)}
    assert started["w3"] < started["w2"], "what a has in the east counts in the west"


@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({"budgets": ("a", "b", "a")}, ["account-twice"]),
        ({"budgets": ("a", "nobody")}, ["account-unknown"]),
        ({"clusters": ("north",)}, ["cluster-unknown"]),
        ({"clusters": ("east",), "gpus": 5}, ["gpus-fleet"]),
        ({"gpus": 8}, ["gpus-fleet"]),
        ({"gpus": 4, "clusters": ("east", "west"), "budgets": ("a", "c")}, []),
    ],
)
def test_choices_are_checked_at_admission(fields, codes):
    spec = JobSpec("j", "a", "u", 1, HOUR)._replace(**fields)
    assert [fault.code for fault in check(spec, parse_budget(BUDGET), [EAST, WEST])] == codes


def test_only_an_account_that_the_job_names_may_pay_and_the_event_survives_the_journal():
    state = FleetState(parse_budget(BUDGET))
    spec = JobSpec("j", "a", "u", 1, HOUR, budgets=("a", "b"), clusters=("x",))
    for event in (Submitted(0, spec), Reassigned(1, "j", "b")):
        assert from_document(json.loads(json.dumps(to_document(event)))) == event
        state.apply(event)
    assert state.snapshot.jobs.spec[0].account == "b"
    with pytest.raises(ConflictError):
        state.apply(Reassigned(1, "j", "c"))


@pytest.mark.parametrize("value", ["a", [1], [""], ["b", "b"]])
def test_damaged_lists_in_a_trace_are_told(value):
    row = json.dumps(job("j", 0, 1) | {"or_accounts": value})
    with pytest.raises(InputError) as caught:
        read_jsonlines(row.encode() + b"\n", "t")
    assert [fault.code for fault in caught.value.faults] == ["trace-value"]


def test_a_fleet_may_have_several_clusters_and_models():
    fleet = build_fleet(None, "east:2x8@H100-80GB, 8x4")
    assert [(node.name, node.gpus, node.model, node.cluster) for node in fleet[:3]] == [
        ("node01", 8, "H100-80GB", "east"),
        ("node02", 8, "H100-80GB", "east"),
        ("node03", 4, "gpu", ""),
    ]
    assert (len(fleet), fleet[0].weight, fleet[2].weight) == (10, 989, 1)


@pytest.mark.parametrize("shape", ["", "8", "2x4,", "a b:2x4", "2x4@", ":2x4", "0x4", "2x4;2x4"])
def test_what_is_no_shape_is_refused(shape):
    with pytest.raises(InputError) as caught:
        build_fleet(None, shape)
    assert caught.value.code == "fleet-shape"
