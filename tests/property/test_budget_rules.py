"""The same state machine with the optional rules: what each of them promises holds beside all the rest."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import invariant
from test_budget_machine import BudgetMachine, document

from divvy.control.agenda import Agenda
from divvy.control.codec import canonical, restore, state_document
from divvy.fleet.event import Stopped
from divvy.fleet.job import Phase, StopCause
from divvy.fleet.node import NodeState
from divvy.fleet.price import surcharge
from divvy.units import HOUR, MINUTE


class RulesMachine(BudgetMachine):
    def draw_rules(self, data):
        self.policy = data.draw(
            st.fixed_dictionaries(
                {
                    "protection_price": st.sampled_from([1, 1.5, 3]),
                    "protection_cap": st.sampled_from([0, 0.5, 1, 2]),
                    "unallocated_backoff": st.sampled_from(["0", "10m"]),
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
        self.agenda = Agenda()

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
        for event in self.agenda.due(self.state.snapshot, self.now):
            self.state.apply(event)
            if getattr(event, "cause", None) is StopCause.LIFETIME and type(event).__name__ == "Stopping":
                self.state.apply(Stopped(self.now, event.job, StopCause.LIFETIME, requeue=False))
        self.check_time()
        self.protected_now = set()
        super().schedule(quick, carry_out)

    def check_time(self):
        """What is due by now has happened."""
        snapshot = self.state.snapshot
        assert all(at > self.now for spec in snapshot.tree.specs for at, _ in spec.later)
        lifetime, jobs = snapshot.policy.unallocated_lifetime, snapshot.jobs
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
    def a_base_snapshot_loses_nothing(self):
        if hasattr(self, "state"):
            written = canonical(state_document(self.state.snapshot))
            again = restore(state_document(self.state.snapshot))
            assert canonical(state_document(again.snapshot)) == written


TestRules = RulesMachine.TestCase
TestRules.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
