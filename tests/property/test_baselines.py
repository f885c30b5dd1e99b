"""The baselines with quotas over random lives: pure, within capacity, gangs whole, each true to its rule."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_backfilling import BUDGET, CLAIMS, NODES, jobs, trace_of

from divvy.fleet.decision import Preempt, Start
from divvy.fleet.node import Node, NodeState
from divvy.planners.jobs.registry import create
from divvy.planners.jobs.static import partition
from divvy.sim.engine import Pace
from divvy.sim.replay import replay
from divvy.sim.scenario import Scenario
from divvy.sim.traces.trace import CapacityChange
from divvy.units import MINUTE

NAMES = ["priority", "kueue", "kai", "static"]
SHARE = {"a": 0.6, "b": 0.4, "c": 0.0}


class Watched:
    """A planner whose every answer is compared with that of one made anew, and held against its rule."""

    def __init__(self, name):
        self.name = name
        self.inner = create(name)

    def plan(self, snapshot, context):
        fresh = create(self.name).plan(snapshot, context)
        plan = self.inner.plan(snapshot, context)
        assert plan == fresh
        assert self.inner.plan(snapshot, context) == plan, "asked twice without change, it answers the same"
        self.check(snapshot, plan, context.now)
        return plan

    def check(self, snapshot, plan, now):
        jobs, paths = snapshot.jobs, snapshot.tree.paths
        free = list(snapshot.nodes.free)
        started, gone = set(), set()
        for decision in plan.decisions:
            spec = jobs.spec[decision.job]
            if isinstance(decision, Preempt):
                assert self.name != "static", "nobody takes anything from anybody"
                assert decision.job not in gone and decision.job not in started
                gone.add(decision.job)
                for node, gpus in jobs.placement[decision.job]:
                    if snapshot.nodes.node[node].state is NodeState.UP:
                        free[node] += gpus
                if self.name == "priority":
                    assert not spec.allocated, "what opted out is never preempted"
            else:
                assert isinstance(decision, Start)
                started.add(decision.job)
                assert sum(gpus for _, gpus in decision.placement) == spec.gpus, "a gang starts whole"
                for node, gpus in decision.placement:
                    free[node] -= gpus
                    assert free[node] >= 0, "never more than there is"
        after = dict.fromkeys(paths, 0)
        kept = dict(after)
        for row in jobs.live:
            running = jobs.placement[row] and row not in gone
            if running or row in started:
                spec = jobs.spec[row]
                after[paths[jobs.account[row]]] += spec.gpus
                kept[paths[jobs.account[row]]] += spec.gpus * spec.allocated
        capacity = snapshot.healthy_gpus()
        newcomers = {paths[jobs.account[row]] for row in started}
        if self.name == "static":
            owned = partition(snapshot.tree, snapshot.nodes.node)
            for name in newcomers:
                assert after[name] <= sum(owned[snapshot.tree.row[name]])
        if self.name == "priority":
            for name in newcomers:
                fresh = any(jobs.spec[row].allocated and jobs.spec[row].account == name for row in started)
                assert not fresh or kept[name] <= int(SHARE[name] * capacity + 1e-9)
        if self.name == "kueue":
            for decision in plan.decisions:
                if isinstance(decision, Preempt):
                    taker, victim = (paths[jobs.account[row]] for row in (decision.by, decision.job))
                    if taker != victim:
                        assert decision.victim_balance > 1, "only from those that borrow"
        if self.name == "kai":
            for decision in plan.decisions:
                if isinstance(decision, Preempt) and jobs.account[decision.by] != jobs.account[decision.job]:
                    assert now - jobs.started[decision.job] >= 10 * MINUTE, "past its minimum runtime"


def run(name, trace):
    done = replay(Scenario(trace, NODES, BUDGET, CLAIMS, pace=Pace(10 * MINUTE)), Watched(name))
    assert done.refused == ()
    return done


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(jobs)
def test_it_is_pure_and_within_its_rule(name, listed):
    done = run(name, trace_of(listed))
    record = done.record
    if name in ("kueue", "kai"):
        for row, spec in enumerate(done.workload.spec):
            if spec.gpus <= 8:
                assert record.over[row] >= 0, "every job that fits ends"


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(listed=jobs, priorities=st.lists(st.integers(-1, 1), min_size=25, max_size=25))
def test_priorities_change_nothing_about_that(name, listed, priorities):
    trace = trace_of(listed)
    ranked = [one._replace(priority=rank) for one, rank in zip(trace.jobs, priorities, strict=False)]
    run(name, replace(trace, jobs=tuple(ranked)))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(listed=jobs, at=st.integers(0, 60), away=st.integers(1, 60), left=st.integers(0, 3))
def test_the_indices_survive_a_node_that_shrinks_and_comes_back(name, listed, at, away, left):
    state = NodeState.UP if left else NodeState.DOWN
    down = CapacityChange(at * MINUTE, Node("n1", left or 4, state=state))
    up = CapacityChange((at + away) * MINUTE, Node("n1", 4))
    run(name, trace_of(listed, [down, up]))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10, deadline=None)
@given(jobs)
def test_the_same_life_twice(name, listed):
    one, other = (run(name, trace_of(listed)).record for _ in range(2))
    assert (one.start, one.end, one.placement, one.by) == (other.start, other.end, other.placement, other.by)
