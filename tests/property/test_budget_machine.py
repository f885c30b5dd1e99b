"""A state machine over the budget planner: whatever happens, the promises of the policy hold."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from divvy.control.loop import goes_back
from divvy.control.state import FleetState
from divvy.fleet.budget import read_budget
from divvy.fleet.decision import Hold, Plan, Preempt, Start
from divvy.fleet.event import (
    BudgetChanged,
    NodeChanged,
    Placed,
    SlotHeld,
    SlotLapsed,
    Started,
    Stopped,
    Stopping,
    Submitted,
    Withdrawn,
)
from divvy.fleet.job import JobSpec, Phase, StopCause
from divvy.fleet.node import Node, NodeState
from divvy.fleet.reason import Reason
from divvy.planners.base import Context
from divvy.planners.jobs.budget import BudgetPlanner
from divvy.planners.jobs.feasible import shares_of
from divvy.units import HOUR, MINUTE

LEAVES = ["a.x", "a.y", "b", "c"]
SHARES = st.sampled_from([(60, 50, 50, 30, 10), (40, 70, 30, 40, 20), (50, 20, 60, 25, 0)])


def document(shares, floor):
    a, x, y, b, c = shares
    return {
        "policy": {"floor": floor, "lookback": "6h", "taper": "1h", "patience": "2m"},
        "accounts": {
            "a": {"share": a, "x": {"share": x}, "y": {"share": y}},
            "b": {"share": b},
            "c": {"share": c},
        },
    }


class BudgetMachine(RuleBasedStateMachine):
    @initialize(
        shares=SHARES,
        floor=st.sampled_from([0, 0.7, 1]),
        sizes=st.lists(st.sampled_from([2, 4]), min_size=1, max_size=4),
        data=st.data(),
    )
    def start(self, shares, floor, sizes, data):
        self.now = 0
        self.entries = []
        self.floor = floor
        self.draw_rules(data)
        self.state = FleetState(read_budget(self.document(shares)), self.entries.append)
        self.planner = BudgetPlanner()
        self.bare = BudgetPlanner()
        self.count = 0
        self.stopping: list[str] = []
        self.adjusted = 0
        for number, gpus in enumerate(sizes):
            model, weight = ("big", 3) if number % 2 else ("small", 1)
            node = Node(f"n{number}", gpus, model, weight, cluster=self.cluster(number))
            self.state.apply(NodeChanged(0, node))

    def draw_rules(self, data):
        """Draw the optional rules; none here."""

    def cluster(self, _number):
        """Return the cluster of a node; all are in one here."""
        return ""

    def document(self, shares):
        """Return a budget document with the optional rules."""
        return document(shares, self.floor)

    # -- what can happen ------------------------------------------------------------------------------

    @rule(
        jobs=st.lists(
            st.tuples(
                st.sampled_from(LEAVES),
                st.sampled_from([1, 1, 1, 2, 4]),
                st.sampled_from([0, 5 * MINUTE, HOUR]),
            ),
            min_size=3,
            max_size=9,
        )
    )
    def burst(self, jobs):
        for account, gpus, min_runtime in jobs:
            self.submit(account, "ada", gpus, min_runtime, True, 0, "", False)

    @rule(
        account=st.sampled_from(LEAVES),
        author=st.sampled_from(["ada", "bob"]),
        gpus=st.sampled_from([1, 1, 1, 2, 2, 4, 6]),
        min_runtime=st.sampled_from([0, 5 * MINUTE, HOUR, 3 * HOUR]),
        resumable=st.booleans(),
        priority=st.sampled_from([0, 0, 5]),
        model=st.sampled_from(["", "", "", "big"]),
        debug=st.booleans(),
    )
    def submit(self, account, author, gpus, min_runtime, resumable, priority, model, debug):
        self.count += 1
        spec = JobSpec(
            f"j{self.count}", account, author, gpus, min_runtime, resumable, priority=priority, model=model
        )
        self.state.apply(Submitted(self.now, spec, debug and min_runtime > 0))

    @rule(ahead=st.sampled_from([1, 1_000, 7 * MINUTE, HOUR, 5 * HOUR]))
    def wait(self, ahead):
        self.now += ahead

    @precondition(lambda self: self.in_phase(Phase.RUNNING))
    @rule(data=st.data(), cause=st.sampled_from([StopCause.FINISHED, StopCause.FAILED]))
    def finish(self, data, cause):
        self.state.apply(
            Stopped(self.now, data.draw(st.sampled_from(self.in_phase(Phase.RUNNING))), cause, requeue=False)
        )

    @precondition(lambda self: self.in_phase(Phase.QUEUED))
    @rule(data=st.data())
    def withdraw(self, data):
        self.state.apply(Withdrawn(self.now, data.draw(st.sampled_from(self.in_phase(Phase.QUEUED)))))

    @precondition(lambda self: self.count > 5)
    @rule(data=st.data(), to=st.sampled_from(list(NodeState)))
    def health(self, data, to):
        nodes = self.state.snapshot.nodes
        row = data.draw(st.integers(0, len(nodes) - 1))
        node = nodes.node[row]
        if to is NodeState.DOWN:
            jobs = self.state.snapshot.jobs
            for job in list(jobs.live):
                if jobs.phase[job] in (Phase.RUNNING, Phase.STOPPING) and any(
                    n == row for n, _ in jobs.placement[job]
                ):
                    spec = jobs.spec[job]
                    back = goes_back(spec, StopCause.NODE_LOST)
                    self.state.apply(Stopped(self.now, spec.id, StopCause.NODE_LOST, back))
        self.state.apply(NodeChanged(self.now, replace(node, state=to, cause="")))

    @precondition(lambda self: self.count > 5)
    @rule(shares=SHARES)
    def change_shares(self, shares):
        self.state.apply(BudgetChanged(self.now, self.document(shares), "ada", "test"))

    @precondition(lambda self: self.count)
    @rule(ahead=st.sampled_from([6 * MINUTE, 2 * HOUR]))
    def wait_and_schedule(self, ahead):
        self.now += ahead
        self.schedule(True, True)

    @precondition(lambda self: self.count)
    @rule(quick=st.booleans(), carry_out=st.booleans())
    def schedule(self, quick, carry_out):
        snapshot = self.state.snapshot
        plan = self.planner.plan(snapshot, Context(self.now))
        assert plan == BudgetPlanner().plan(snapshot, Context(self.now)), "incremental and rebuilt differ"
        bare = self.bare.plan(snapshot, Context(self.now, explain=False))
        assert bare == BudgetPlanner().plan(snapshot, Context(self.now, explain=False))
        assert bare.decisions == plan.decisions and bare.slots == plan.slots, (
            "an explanation changed a decision"
        )
        self.check(plan)
        self.check_explained(plan)
        if carry_out:
            self.carry_out(plan, quick)

    # -- what must hold -------------------------------------------------------------------------------

    def check(self, plan: Plan) -> None:
        snapshot = self.state.snapshot
        jobs, nodes = snapshot.jobs, snapshot.nodes
        running = {r: jobs.placement[r] for r in jobs.live if jobs.phase[r] in (Phase.PLACED, Phase.RUNNING)}
        started_now: set[int] = set()
        victims_of: dict[int, list[int]] = {}
        for decision in plan.decisions:
            if isinstance(decision, Preempt):
                row = decision.job
                assert row in running and row not in started_now, "a victim that did not run"
                if decision.by >= 0:
                    victims_of.setdefault(decision.by, []).append(row)
                    if jobs.spec[row].allocated:
                        assert self.now >= jobs.protected_until[row], "a protected job was preempted"
                        assert jobs.phase[row] is Phase.RUNNING
                        if jobs.account[row] != jobs.account[decision.by]:
                            if decision.reason is not Reason.PREEMPTED_SLOT:
                                assert decision.victim_balance >= 1
                            self.check_floor(running, row)
                else:
                    on = [nodes.node[n] for n, _ in running[row]]
                    protected = jobs.spec[row].allocated and (
                        self.now < jobs.protected_until[row] or jobs.phase[row] is Phase.PLACED
                    )
                    assert any(n.state is NodeState.DRAINING for n in on) and not protected
                del running[row]
                continue
            self.check_start(decision, running, victims_of.pop(decision.job, []))
            started_now.add(decision.job)
        assert not victims_of, "a victim whose devices nobody took"

    def check_floor(self, running, row):
        """After the victim leaves, its account and every account above hold their floor."""
        snapshot = self.state.snapshot
        jobs, nodes = snapshot.jobs, snapshot.nodes
        capacity = sum(there * n.weight for n, there in zip(nodes.node, nodes.there, strict=True))
        held = sum(
            g * nodes.node[n].weight
            for r, placement in running.items()
            if r != row and jobs.spec[r].allocated and jobs.account[r] == jobs.account[row]
            for n, g in placement
        )
        floor = self.floor * shares_of(snapshot)[jobs.account[row]] * capacity
        assert held >= floor - 1e-6, "an account with demand was pushed below its floor"

    def check_start(self, start: Start, running, victims):
        snapshot = self.state.snapshot
        jobs, nodes = snapshot.jobs, snapshot.nodes
        spec = jobs.spec[start.job]
        assert jobs.phase[start.job] is Phase.QUEUED and start.job not in running
        assert sum(g for _, g in start.placement) == spec.gpus, "a gang was split"
        for node, gpus in start.placement:
            assert nodes.node[node].state is NodeState.UP
            assert not spec.model or nodes.node[node].model == spec.model
            taken = sum(g for placement in running.values() for n, g in placement if n == node)
            assert taken + gpus <= nodes.node[node].gpus, "over capacity"
            del taken
        for victim in victims:
            freed = dict(jobs.placement[victim])
            assert any(n in freed for n, _ in start.placement), "a victim on another node"
            enough_without = all(
                nodes.node[n].gpus
                - sum(g for p in running.values() for m, g in p if m == n)
                - freed.get(n, 0)
                >= gpus
                for n, gpus in start.placement
            )
            assert not enough_without, "a victim that does not help"
        running[start.job] = start.placement
        self.check_rules(start, running)

    def check_rules(self, start: Start, running):
        """Check what the optional rules promise of a start; nothing here."""

    def check_explained(self, plan: Plan) -> None:
        snapshot = self.state.snapshot
        jobs = snapshot.jobs
        started = {d.job for d in plan.decisions if isinstance(d, Start)}
        waiting = {
            jobs.account[r]
            for r in jobs.live
            if jobs.phase[r] is Phase.QUEUED and r not in started and jobs.spec[r].allocated
        }
        told = {jobs.account[row] for row, _ in plan.waits}
        assert waiting <= told, "an account waits without a reason"
        assert waiting <= {s.account for s in plan.standings}

    def carry_out(self, plan: Plan, quick: bool) -> None:
        jobs, nodes = self.state.snapshot.jobs, self.state.snapshot.nodes.node
        for slot in plan.slots:
            job = jobs.spec[slot.job].id
            if isinstance(slot, Hold):
                names = tuple((nodes[n].name, g) for n, g in slot.placement)
                self.state.apply(SlotHeld(self.now, job, names, slot.due))
            else:
                self.state.apply(SlotLapsed(self.now, job))
        accounts = [jobs.account[row] for row in jobs.slot]
        assert len(set(accounts)) == len(accounts), "an account has two dated slots"
        for decision in plan.decisions:
            spec = jobs.spec[decision.job]
            if isinstance(decision, Preempt):
                self.state.apply(Stopping(self.now, spec.id, StopCause.PREEMPTED))
                if quick:
                    self.state.apply(
                        Stopped(self.now, spec.id, StopCause.PREEMPTED, goes_back(spec, StopCause.PREEMPTED))
                    )
                else:
                    self.stopping.append(spec.id)
            else:
                names = tuple((nodes[n].name, g) for n, g in decision.placement)
                self.state.apply(Placed(self.now, spec.id, names, decision.protected))
                self.state.apply(Started(self.now, spec.id))

    @precondition(lambda self: getattr(self, "stopping", None))
    @rule()
    def leave(self):
        jobs = self.state.snapshot.jobs
        for job in self.stopping:
            row = jobs.row[job]
            if jobs.phase[row] is Phase.STOPPING:
                back = goes_back(jobs.spec[row], StopCause.PREEMPTED)
                self.state.apply(Stopped(self.now, job, StopCause.PREEMPTED, back))
        self.stopping = []

    def in_phase(self, phase):
        jobs = self.state.snapshot.jobs
        return [jobs.spec[row].id for row in jobs.live if jobs.phase[row] is phase]

    @invariant()
    def the_ledger_is_occupancy_times_weight(self):
        if not hasattr(self, "state"):
            return
        snapshot = self.state.snapshot
        jobs, nodes, tree = snapshot.jobs, snapshot.nodes.node, snapshot.tree
        for leaf in tree.leaves:
            closed = sum(e.charge for e in self.entries if e.account == tree.paths[leaf] and e.allocated)
            assert all(
                e.charge == (e.end - e.start) * e.weight for e in self.entries if e.cause == "occupancy"
            )
            open_ = sum(
                (self.now - jobs.started[r]) * sum(g * nodes[n].weight for n, g in jobs.placement[r])
                + jobs.surcharge[r]
                for r in jobs.live
                if jobs.account[r] == leaf
                and jobs.spec[r].allocated
                and jobs.phase[r] in (Phase.RUNNING, Phase.STOPPING)
            )
            assert snapshot.usage[leaf].total(self.now) == closed + open_


TestBudget = BudgetMachine.TestCase
TestBudget.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
