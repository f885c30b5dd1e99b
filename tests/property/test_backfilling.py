"""The baselines over random lives: pure, within capacity, and EASY keeps its promise to the first job."""

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from divvy.fleet.account import AccountSpec, build_tree
from divvy.fleet.budget import Budget, Policy
from divvy.fleet.decision import Start
from divvy.fleet.node import Node, NodeState
from divvy.planners.jobs.backfill import shape_of
from divvy.planners.jobs.registry import create
from divvy.sim.accounts import Claims
from divvy.sim.engine import Pace
from divvy.sim.replay import replay
from divvy.sim.scenario import Scenario
from divvy.sim.traces.trace import CapacityChange, Trace, TraceJob
from divvy.units import MINUTE

BUDGET = Budget(
    Policy(),
    build_tree([AccountSpec("a", Decimal(60)), AccountSpec("b", Decimal(40)), AccountSpec("c", Decimal(0))]),
)
CLAIMS = Claims({name: name for name in "abc"}, {})
NODES = (Node("n0", 4), Node("n1", 4), Node("n2", 2))

jobs = st.lists(
    st.builds(
        lambda gap, runtime, slack, size, account, author, minimum: (
            gap,
            {
                "runtime": runtime * MINUTE,
                "time_limit": (runtime + slack) * MINUTE,
                "gpus": size[0],
                "per_node": size[1],
                "account": account,
                "author": author,
                "min_runtime": minimum * MINUTE,
            },
        ),
        gap=st.integers(0, 8),
        runtime=st.integers(1, 40),
        slack=st.integers(0, 40),
        size=st.sampled_from(
            [(1, 0), (1, 0), (2, 0), (3, 0), (4, 0), (6, 0), (8, 0), (4, 2), (6, 2), (9, 0)]
        ),
        account=st.sampled_from("abc"),
        author=st.sampled_from("xyz"),
        minimum=st.integers(0, 20),
    ),
    min_size=1,
    max_size=25,
)


def trace_of(listed, capacity=()):
    at, made = 0, []
    for number, (gap, fields) in enumerate(listed):
        at += gap * MINUTE
        made.append(TraceJob(f"j{number}", at, resumable=True, **fields))
    return Trace(tuple(made), tuple(capacity))


class Watched:
    """A planner whose every answer is compared with that of one made anew."""

    def __init__(self, name):
        self.name = name
        self.inner = create(name)
        self.promised = {}

    def plan(self, snapshot, context):
        fresh = create(self.name).plan(snapshot, context)
        again = self.inner.plan(snapshot, context)
        assert again == fresh
        assert self.inner.plan(snapshot, context) == again, "asked twice without change, it answers the same"
        jobs = snapshot.jobs
        for decision in again.decisions:
            assert isinstance(decision, Start)
            latest = self.promised.pop(decision.job, None)
            assert latest is None or context.now <= latest
        for row, _ in again.waits:
            held = self.inner._timeline.reserve(
                shape_of(jobs.spec[row]), snapshot.nodes.node, self.inner._room, context.now
            )
            if held is not None and self.name == "fifo":
                self.promised.setdefault(row, held.at)
        return again


def run(name, trace):
    done = replay(Scenario(trace, NODES, BUDGET, CLAIMS, pace=Pace(10 * MINUTE)), Watched(name))
    assert done.refused == ()
    return done


@settings(max_examples=60, deadline=None)
@given(jobs)
def test_fifo_is_pure_and_keeps_its_promise_to_the_first_job(listed):
    done = run("fifo", trace_of(listed))
    record = done.record
    fits = [job.gpus <= 8 or job.per_node == 0 for job in done.workload.spec]
    for row, job in enumerate(done.workload.spec):
        if fits[row] and job.gpus <= 8:
            assert record.over[row] >= 0, "every job that fits ends"


@settings(max_examples=60, deadline=None)
@given(jobs)
def test_fairshare_is_pure(listed):
    run("fairshare", trace_of(listed))


@settings(max_examples=30, deadline=None)
@given(jobs, st.sampled_from(["fifo", "fairshare"]), st.integers(0, 60), st.integers(1, 60))
def test_the_indices_survive_a_node_that_dies_and_comes_back(listed, name, at, away):
    down = CapacityChange(at * MINUTE, Node("n1", 4, state=NodeState.DOWN))
    up = CapacityChange((at + away) * MINUTE, Node("n1", 4))
    done = replay(
        Scenario(trace_of(listed, [down, up]), NODES, BUDGET, CLAIMS, pace=Pace(10 * MINUTE)), create(name)
    )
    assert done.refused == ()
    for start, end, placement in zip(done.record.start, done.record.end, done.record.placement, strict=True):
        if "n1" in dict(placement):
            assert end <= down.at or start >= up.at
