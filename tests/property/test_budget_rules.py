"""The same state machine with the optional rules: what each of them promises holds beside all the rest."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import invariant, precondition, rule
from test_budget_machine import LEAVES, BudgetMachine, document

from divvy.control.agenda import Agenda
from divvy.control.codec import canonical, restore, state_document
from divvy.control.loop import goes_back
from divvy.fleet.event import MaintenanceSet, NodeCleared, NodeFaulted, Stopped, Stopping, Submitted
from divvy.fleet.job import JobSpec, Phase
from divvy.fleet.node import NodeState
from divvy.fleet.price import surcharge
from divvy.units import HOUR, MINUTE

NEVER = 1 << 62


class RulesMachine(BudgetMachine):
    def draw_rules(self, data):
        self.policy = data.draw(
            st.fixed_dictionaries(
                {
                    "protection_price": st.sampled_from([1, 1.5, 3]),
                    "protection_cap": st.sampled_from([0, 0.5, 1, 2]),
                    "unallocated_backoff": st.sampled_from(["0", "10m"]),
                    "usage_half_life": st.sampled_from(["0", "1h"]),
                    "forgiveness": st.sampled_from(["0", "2h"]),
                    "fault_clears_after": st.sampled_from(["0", "1h"]),
                    "unallocated_lifetime": st.sampled_from(["0", "3h"]),
                }
            )
        )
        self.limits = data.draw(
            st.fixed_dictionaries(
                {
                    "a": st.sampled_from([{}, {"max_gpus": 3}, {"author_max_gpus": 2}]),
                    "a.x": st.sampled_from([{}, {"max_gpus": 2}]),
                    "b": st.sampled_from([{}, {"max_gpus": 4, "author_max_gpus": 1}]),
                }
            )
        )
        self.dated = data.draw(st.sampled_from([[], [{"from": 7200, "share": 5}]]))
        self.clusters = data.draw(st.sampled_from([("",), ("east", "west")]))
        self.agenda = Agenda()

    def cluster(self, number):
        return self.clusters[number // 2 % len(self.clusters)]

    @rule(
        budgets=st.lists(st.sampled_from(LEAVES), min_size=1, max_size=3, unique=True),
        clusters=st.sets(st.sampled_from(["east", "west"]), max_size=1),
        gpus=st.sampled_from([1, 2, 4, 6]),
        min_runtime=st.sampled_from([0, 5 * MINUTE, HOUR]),
    )
    def submit_with_choices(self, budgets, clusters, gpus, min_runtime):
        self.count += 1
        more = {"budgets": tuple(budgets) if len(budgets) > 1 else (), "clusters": tuple(clusters)}
        spec = JobSpec(f"j{self.count}", budgets[0], "ada", gpus, min_runtime, True, **more)
        self.state.apply(Submitted(self.now, spec))

    @rule(
        data=st.data(), ahead=st.sampled_from([MINUTE, HOUR, 4 * HOUR]), length=st.sampled_from([0, 2 * HOUR])
    )
    def announce(self, data, ahead, length):
        node = data.draw(st.sampled_from(list(self.state.snapshot.nodes.row)))
        start = self.now + ahead
        self.state.apply(MaintenanceSet(self.now, node, start, length and start + length, "maintenance"))

    @precondition(lambda self: self.count > 5)
    @rule(data=st.data(), fatal=st.booleans())
    def fault(self, data, fatal):
        node = data.draw(st.sampled_from(list(self.state.snapshot.nodes.row)))
        self.state.apply(NodeFaulted(self.now, node, "xid-79" if fatal else "ecc", fatal))

    @precondition(lambda self: getattr(self, "state", None) and self.state.snapshot.nodes.fault)
    @rule(data=st.data())
    def mend(self, data):
        nodes = self.state.snapshot.nodes
        row = data.draw(st.sampled_from(list(nodes.fault)))
        self.state.apply(NodeCleared(self.now, nodes.node[row].name))

    def document(self, shares):
        written = document(shares, self.floor)
        written["policy"] |= self.policy
        accounts = written["accounts"]
        for path, limit in self.limits.items():
            place = accounts
            for name in path.split("."):
                place = place[name]
            place |= limit
        if self.dated:
            accounts["b"]["shares"] = self.dated
        return written

    def schedule(self, quick, carry_out):
        self.windows = {
            row: window.start
            for row, window in self.state.snapshot.nodes.window.items()
            if window.start > self.now
        }
        for event in self.agenda.due(self.state.snapshot, self.now):
            self.state.apply(event)
            if isinstance(event, Stopping):
                spec = self.state.snapshot.jobs.spec[self.state.snapshot.jobs.row[event.job]]
                self.state.apply(Stopped(self.now, event.job, event.cause, goes_back(spec, event.cause)))
        self.check_time()
        self.protected_now = set()
        super().schedule(quick, carry_out)

    def check_time(self):
        """What is due by now has happened."""
        snapshot = self.state.snapshot
        nodes = snapshot.nodes
        for row, window in nodes.window.items():
            assert not window.end or window.end > self.now
            assert window.start > self.now or nodes.node[row].state is not NodeState.UP
        for row, fault in nodes.fault.items():
            assert not fault.cleared
            assert nodes.node[row].state >= (NodeState.DOWN if fault.fatal else NodeState.DRAINING)
            if fault.fatal:
                assert not any(
                    place == row
                    for job in snapshot.jobs.live
                    if snapshot.jobs.phase[job] in (Phase.PLACED, Phase.RUNNING)
                    for place, _ in snapshot.jobs.placement[job]
                ), "something still runs on a node that failed"
        assert all(at > self.now for spec in snapshot.tree.specs for at, _ in spec.later)
        lifetime, jobs = snapshot.policy.unallocated_lifetime, snapshot.jobs
        for row in jobs.live:
            spec = jobs.spec[row]
            assert snapshot.tree.paths[jobs.account[row]] == spec.account
            assert spec.account in (spec.budgets or (spec.account,))
            assert (spec.id in jobs.several) == bool(spec.budgets)
        if lifetime:
            assert all(
                jobs.spec[row].allocated
                or jobs.phase[row] is Phase.STOPPING
                or jobs.submitted[row] + lifetime > self.now
                for row in jobs.live
            ), "unallocated work outlived its lifetime"

    def check_rules(self, start, running):
        snapshot = self.state.snapshot
        jobs, tree = snapshot.jobs, snapshot.tree
        spec = jobs.spec[start.job]
        places = {snapshot.nodes.node[node].cluster for node, _ in start.placement}
        assert len(places) == 1, "a gang spans clusters"
        assert not spec.clusters or places <= set(spec.clusters)
        if start.protected:
            for node, _ in start.placement:
                assert self.now + spec.min_runtime <= self.windows.get(node, NEVER), "it outlasts the begin"
        if not spec.allocated:
            if snapshot.policy.unallocated_backoff and jobs.preemptions[start.job]:
                assert self.now >= jobs.queued[start.job] + 10 * MINUTE, "it rests"
            return
        for row in tree.lineage[jobs.account[start.job]]:
            limits = tree.specs[row - 1]
            held = [
                jobs.spec[r]
                for r in running
                if jobs.spec[r].allocated and row in tree.lineage[jobs.account[r]]
            ]
            if limits.max_gpus is not None:
                assert sum(one.gpus for one in held) <= limits.max_gpus
            if limits.author_max_gpus is not None:
                assert sum(one.gpus for one in held if one.author == spec.author) <= limits.author_max_gpus
        if start.protected:
            self.protected_now.add(start.job)
        if start.protected and snapshot.policy.protection_cap:
            self.check_cap(start, running)

    def check_cap(self, start, running):
        snapshot = self.state.snapshot
        jobs, nodes = snapshot.jobs, snapshot.nodes.node
        account = jobs.account[start.job]
        protected = sum(
            gpus * nodes[node].weight
            for r, placement in running.items()
            if jobs.account[r] == account
            and jobs.spec[r].allocated
            and (
                r in self.protected_now or jobs.phase[r] is Phase.PLACED or jobs.protected_until[r] > self.now
            )
            for node, gpus in placement
        )
        capacity = sum(n.gpus * n.weight for n in nodes if n.state is not NodeState.DOWN)
        share = float(snapshot.tree.share[account])
        assert protected <= snapshot.policy.protection_cap * share * capacity + 1e-6

    @invariant()
    def a_surcharge_is_that_of_the_protection(self):
        if not hasattr(self, "state"):
            return
        jobs, policy = self.state.snapshot.jobs, self.state.snapshot.policy
        for row in jobs.live:
            if jobs.surcharge[row]:
                length = jobs.protected_until[row] - jobs.started[row]
                assert length > HOUR
                assert jobs.surcharge[row] == surcharge(policy.protection_price, length, jobs.rate[row])
        for entry in self.entries:
            if entry.cause == "protection-price":
                occupied = next(
                    e
                    for e in self.entries
                    if (e.job, e.attempt, e.cause) == (entry.job, entry.attempt, "occupancy")
                )
                assert 0 < entry.charge <= 2 * max(occupied.charge - HOUR * occupied.weight, 0)

    @invariant()
    def a_refund_is_at_most_one_minimum_runtime_of_a_run_and_comes_once(self):
        refunds = [e for e in getattr(self, "entries", ()) if e.cause == "refund-node-failure"]
        assert len({(e.job, e.attempt) for e in refunds}) == len(refunds)
        for refund in refunds:
            occupied = next(
                e
                for e in self.entries
                if (e.job, e.attempt, e.cause) == (refund.job, refund.attempt, "occupancy")
            )
            minimum = self.state.snapshot.jobs.spec[self.state.snapshot.jobs.row[refund.job]].min_runtime
            assert refund.charge == -min(occupied.charge, minimum * occupied.weight)

    @invariant()
    def a_base_snapshot_loses_nothing(self):
        if hasattr(self, "state"):
            written = canonical(state_document(self.state.snapshot))
            again = restore(state_document(self.state.snapshot))
            assert canonical(state_document(again.snapshot)) == written


TestRules = RulesMachine.TestCase
TestRules.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
