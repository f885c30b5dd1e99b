"""The budget policy: shares of GPU time with a rate floor, balance, protection and reclaim.

One pass, in order:

1. Troubled nodes: what drains and is no longer protected leaves; a node that shrank gives up its excess.
2. Allocated jobs. Down the tree, the account that goes first is one below its floor, then the one with
   the least balance. Its jobs are tried in its own order, one per shape: on free devices, in place of
   unallocated runs, in place of interruptible runs of more over-served accounts (reclaim), in place of
   its own interruptible runs that rank behind (own swap).
3. Unallocated jobs fill what is left, by the same tree on unallocated use.
4. Standings and waits are written down, if asked for.
"""

from __future__ import annotations

from functools import partial

from divvy.fleet.account import ROOT
from divvy.fleet.decision import Decision, Plan, Preempt, Start, Wait
from divvy.fleet.node import NodeState
from divvy.fleet.reason import Reason
from divvy.fleet.snapshot import Snapshot
from divvy.planners.base import Context
from divvy.planners.jobs.contest import Contest, Key
from divvy.planners.jobs.feasible import settle
from divvy.planners.jobs.gate import Gate
from divvy.planners.jobs.holdings import NEVER, Account, Run
from divvy.planners.jobs.index import JobIndex, run_of
from divvy.planners.jobs.limits import Limits
from divvy.planners.jobs.protection import Cap
from divvy.planners.jobs.queue import Head
from divvy.planners.jobs.reclaim import LONG_WAIT, Reclaim
from divvy.planners.jobs.slots import Slots
from divvy.planners.jobs.standings import place, standings
from divvy.planners.jobs.victims import unallocated_in_the_way
from divvy.units import MINUTE, SECOND

#: While allocated jobs wait, balances drift: look again at least this often.
_RECHECK = 5 * MINUTE


class BudgetPlanner:
    """Plans jobs by the budget policy; see the module's text for the order of a pass."""

    name = "budget"

    def __init__(self) -> None:
        self._index = JobIndex()
        self._reclaim = Reclaim(self._index)
        self._limits: Limits | None = None

    def plan(self, snapshot: Snapshot, context: Context) -> Plan:
        """Return what to start, what gives way, and why."""
        index = self._index
        index.catch_up(snapshot, context.now)
        settle(index, snapshot)
        self._reclaim.begin(snapshot, context.now)
        if self._limits is None or self._limits.tree is not snapshot.tree:
            self._limits = Limits(snapshot.tree)
        gate = Gate(self._limits, index, snapshot, context.now)
        return _Pass(index, self._reclaim, gate, snapshot, context).run()


class _Pass:
    """The state of one pass: tentative holdings in the index, decisions so far."""

    def __init__(
        self, index: JobIndex, reclaim: Reclaim, gate: Gate, snapshot: Snapshot, context: Context
    ) -> None:
        self.index = index
        self.gate = gate
        self.cap = Cap(index, snapshot.policy)
        self.snapshot = snapshot
        self.context = context
        self.now = context.now
        tree = snapshot.tree
        self.shares = index.shares
        self.balances = index.balances
        self.floors = index.floors
        self.decisions: list[Decision] = []
        self.waits: dict[int, Wait] = {}
        self.tree = tree
        self.reclaim = reclaim
        self.slots = Slots(index, snapshot, reclaim, context.now)
        self._first = ROOT
        #: Shapes that found no room on free or unallocated devices since supply last grew.
        self._no_room: set[tuple[int, int, str, int]] = set()
        #: When the patience of the first job that waits for it ends.
        self._look = 0

    def run(self) -> Plan:
        """Make the plan."""
        if self.index.troubled:
            self._relieve()
        waiting = [account for account in self.index.accounts.values() if account.queue.count]
        if waiting:
            self._serve_allocated(waiting)
        if self.index.free.total:
            self._serve_unallocated()
        explain = self.context.explain
        return Plan(
            self.snapshot.version,
            self.now,
            tuple(self.decisions),
            standings(self.tree, self.index, self.balances, self.floors) if explain else (),
            tuple(sorted(self.waits.items())) if explain else (),
            tuple(self.slots.changes),
            self._next_check(),
        )

    # -- 1. troubled nodes --------------------------------------------------------------------------------

    def _relieve(self) -> None:
        """Drain what may leave, and shrink what is over capacity (the protected last of all)."""
        index = self.index
        for node in sorted(index.troubled):
            runs = sorted(index.on_node.get(node, {}).values(), key=self._leaves_first)
            draining = self.snapshot.nodes.node[node].state is NodeState.DRAINING
            for run in runs:
                over = index.over_capacity(self.snapshot, node)
                if over > 0 or (draining and self._may_leave(run)):
                    self._preempt(run, -1, Reason.PREEMPTED_DRAIN, 0.0, 0.0)

    def _leaves_first(self, run: Run) -> tuple[bool, bool, int, int]:
        return run.allocated, not self._may_leave(run), -run.started, run.row

    def _may_leave(self, run: Run) -> bool:
        return not run.allocated or run.row in self.index.accounts[run.account].interruptible

    # -- 2. allocated jobs --------------------------------------------------------------------------------

    def _serve_allocated(self, waiting: list[Account]) -> None:
        if not self.context.explain and not any(map(self._may_do_something, waiting)):
            # The common case of a full fleet: nothing to give, and nobody asked to be told why.
            return
        contest = Contest(self.tree, [account.row for account in waiting], self._key)
        leaf = contest.first()
        self._first = ROOT if leaf is None else leaf
        while leaf is not None:
            account = self.index.accounts[leaf]
            if account.queue.count and self._serve(account):
                contest.moved(leaf)
            else:
                contest.close(leaf)
            leaf = contest.first()

    def _may_do_something(self, account: Account) -> bool:
        """Return whether an account could perhaps start a job, or has to do with a dated slot."""
        slots = self.slots
        if slots.of(account) is not None or slots.may_search(account):
            return True
        return not (self._has_no_source(account) or self.reclaim.hopeless(account))

    def _has_no_source(self, account: Account) -> bool:
        """Return quickly whether there is nothing to take at all, whatever the job."""
        return not (
            self.index.loose.total > 0
            or self.reclaim.may_take(account)
            or self.reclaim.may_swap(account, account.queue.best_rank())
        )

    def _key(self, row: int) -> Key:
        return place(self.index, self.balances, self.floors, row)

    def _serve(self, account: Account) -> bool:
        """Start the first job of an account that can start; return whether one did."""
        row = self.slots.of(account)
        if row is not None and self._try_slot(account, row):
            return True
        self._look_again(self.slots.date(account))
        if not (self._has_no_source(account) or self.reclaim.hopeless(account)):
            return self._try_all(account)
        if self.slots.may_search(account):
            for head in self.gate.heads(account):
                self.slots.propose(account, head)
        self._tell(account)
        return False

    def _try_all(self, account: Account) -> bool:
        """Start the first of an account's first jobs that fits; return whether one did."""
        heads = self.gate.heads(account)
        # A limit may let a job in that was not looked at; then nothing is known of the account.
        until, hopeless = NEVER, bool(heads) and not self.gate.barred
        excluded: dict[str, int] = {}
        for head in heads:
            if self._excludes(account, head, excluded):
                self.slots.propose(account, head)
            elif self._try(account, head) or self._backfill(account, head):
                return True
            else:
                hopeless = False
                until = min(until, self._changes_by_itself(head))
        if hopeless:
            self.reclaim.note_hopeless(account, heads)
        self._look_again(until)
        self._tell(account)
        return False

    def _excludes(self, account: Account, head: Head, excluded: dict[str, int]) -> bool:
        """Return whether a job certainly fits nowhere.

        Where a smaller one does not, no larger one does; where one that ranks ahead does not, none behind.
        """
        gpus = head.per_node or head.gpus
        if gpus >= excluded.get(head.model, NEVER):
            return True
        if not self.reclaim.excludes(account, head):
            return False
        if not head.per_node and gpus <= self.index.loose.node_size(head.model):
            excluded[head.model] = gpus
        return True

    def _tell(self, account: Account) -> None:
        """Write down why the first job of an account waits, if asked for."""
        if self.context.explain and account.queue.count:
            head = self.index.heads(self.snapshot, account, self.now)[0]
            for row, room in self.gate.barred.items():
                gpus = self.snapshot.jobs.spec[row].gpus
                self.waits[row] = Wait(Reason.WAIT_LIMIT, gpus, room.gpus, 0, 0, room.row)
            if head.row in self.waits:
                return
            patient = self.snapshot.jobs.queued[head.row] + self._patience(head) <= self.now
            wait = self.reclaim.why_not(account, head, self._first, patient=patient)
            self.waits[head.row] = wait._replace(reason=Reason.WAIT_SLOT) if self.slots.keeps(head) else wait

    def _look_again(self, at: int) -> None:
        if at > self.now and (not self._look or at < self._look):
            self._look = at

    def _changes_by_itself(self, head: Head) -> int:
        """Return when the passage of time alone could let a job start (balances apart)."""
        queued = self.snapshot.jobs.queued[head.row]
        patient, long = queued + self._patience(head), queued + LONG_WAIT
        return next((time for time in (patient, long) if time > self.now), NEVER)

    def _try(self, account: Account, head: Head) -> bool:
        index, snapshot = self.index, self.snapshot
        avoid = self.slots.avoid(head.row, self.now + snapshot.jobs.spec[head.row].min_runtime)
        zones = index.zones.outside(head.clusters)
        for outside in zones:
            if self._try_free(head, avoid | outside):
                return True
        taken = None
        patient = snapshot.jobs.queued[head.row] + self._patience(head)
        if patient <= self.now:
            for outside in zones:
                taken = self.reclaim.from_others(account, head, avoid | outside) or self.reclaim.own_swap(
                    account, head, avoid | outside
                )
                if taken is not None:
                    break
        if taken is None:
            self.slots.propose(account, head)
            return False
        for run, reason, victim_balance, balance in taken.victims:
            self._preempt(run, head.row, reason, victim_balance, balance)
        self._start(head, taken.placement, taken.reason, protected=taken.protected)
        return True

    def _backfill(self, account: Account, head: Head) -> bool:
        """Start a shorter job of a shape whose first one a slot or maintenance keeps from free devices."""
        index, jobs = self.index, self.snapshot.jobs
        for date in self.slots.dates(self.now + jobs.spec[head.row].min_runtime):
            avoid = self.slots.avoid(-1, date)
            for outside in index.zones.outside(head.clusters):
                if index.free.find(head.gpus, head.per_node, head.model, avoid | outside) is None:
                    continue
                most = date - self.now
                short = account.queue.shorter(head, most, jobs.spec, partial(self.gate.may, account))
                if short is not None and self._try_free(short, avoid | outside):
                    return True
        return False

    def _try_free(self, head: Head, avoid: int) -> bool:
        """Start a job on free devices, or in place of unallocated runs, if it can."""
        index = self.index
        shape = (head.gpus, head.per_node, head.model, avoid)
        if shape in self._no_room or head.gpus > index.loose.total:
            return False
        placement = index.free.find(*shape)
        if placement is not None:
            self._start(head, placement, Reason.STARTED_FREE)
            return True
        placement = self.reclaim.over_unallocated(head, avoid)
        if placement is None:
            self._no_room.add(shape)
            return False
        for run in unallocated_in_the_way(index, placement, ()):
            self._preempt(run, head.row, Reason.PREEMPTED_UNALLOCATED, 0.0, 0.0)
        self._start(head, placement, Reason.STARTED_OVER_UNALLOCATED)
        return True

    def _try_slot(self, account: Account, row: int) -> bool:
        """Start the gang of an account's dated slot if it can; return whether it did."""
        head = self.index.head_of(self.snapshot, row)
        search = self.slots.due(account, row)
        may = search is not None and self.gate.may(account, row)
        found = search.find(self.slots.request(row)) if search is not None and may else None
        if found is None:
            self.slots.review(account)
            return False
        placement, runs = found
        for run in runs:
            reason = Reason.PREEMPTED_SLOT if run.allocated else Reason.PREEMPTED_UNALLOCATED
            self._preempt(run, row, reason, self.balances.of[run.account], self.balances.of[account.row])
        self._start(head, placement, Reason.STARTED_BY_SLOT)
        return True

    def _patience(self, head: Head) -> int:
        policy = self.snapshot.policy
        return policy.debug_patience if self.snapshot.jobs.debug[head.row] else policy.patience

    def _start(
        self,
        head: Head,
        placement: tuple[tuple[int, int], ...],
        reason: Reason,
        *,
        protected: bool = True,
    ) -> None:
        index, spec = self.index, self.snapshot.jobs.spec[head.row]
        self.waits.pop(head.row, None)
        self.slots.used(head.row)
        self.slots.moved(placement)
        index.forget(self.snapshot, head.row)
        until = self.now + spec.min_runtime if protected else 0
        run = run_of(self.snapshot, head.row, placement, until, self.now)
        if protected and spec.allocated and not self.cap.allows(run.account, run.weight):
            # Interruptible from its start, which is now: nobody may take it in this very pass.
            protected, run = False, run._replace(until=self.now + 1)
        index.occupy(self.snapshot, run)
        index.dirty.add(head.row)
        self.reclaim.catch_up()
        self.decisions.append(Start(head.row, placement, protected and spec.allocated, reason))

    def _preempt(self, run: Run, by: int, reason: Reason, victim_balance: float, balance: float) -> None:
        index = self.index
        self.slots.moved(run.placement)
        index.forget(self.snapshot, run.row)
        index.dirty.add(run.row)
        self.reclaim.catch_up()
        self.decisions.append(Preempt(run.row, by, reason, victim_balance, balance))
        self._no_room.clear()

    # -- 3. unallocated jobs ------------------------------------------------------------------------------

    def _serve_unallocated(self) -> None:
        index = self.index
        waiting = [account.row for account in index.accounts.values() if account.spare.count]
        if not waiting:
            return
        usage = self._unallocated_usage(waiting)
        contest = Contest(self.tree, waiting, lambda row: (False, usage[row], row))
        while index.free.total and (leaf := contest.first()) is not None:
            account = index.accounts[leaf]
            for head in self.gate.spare_heads(account):
                found = (
                    index.free.find(head.gpus, head.per_node, head.model, outside)
                    for outside in index.zones.outside(head.clusters)
                )
                placement = next((place for place in found if place is not None), None)
                if placement is not None:
                    self._start(head, placement, Reason.STARTED_UNALLOCATED)
                    for row in self.tree.lineage[leaf]:
                        usage[row] += index.runs[head.row].weight * self._share_unit(row)
                    contest.moved(leaf)
                    break
                if self.context.explain:
                    free = index.free.total
                    self.waits[head.row] = Wait(Reason.WAIT_CAPACITY, head.gpus, free, 0, 0, ROOT)
            else:
                for head in self.gate.resting:
                    self.waits[head.row] = Wait(Reason.WAIT_REST, head.gpus, index.free.total, 0, 0, ROOT)
                contest.close(leaf)

    def _unallocated_usage(self, leaves: list[int]) -> list[float]:
        """Return unallocated use over share per tree row, in window charge."""
        policy, snapshot = self.snapshot.policy, self.snapshot
        usage = [0.0] * len(self.tree)
        for leaf in leaves:
            used = snapshot.unallocated[leaf].windowed(self.now, policy.lookback, policy.taper)
            for row in self.tree.lineage[leaf]:
                usage[row] += used * self._share_unit(row)
        return usage

    def _share_unit(self, row: int) -> float:
        return 1.0 / self.shares[row] if self.shares[row] > 0 else 1e9

    def _next_check(self) -> int:
        """Return when a decision could change by itself: a protection or a rest ends, balances drift."""
        woken = self.gate.wake if self.gate.wake < NEVER else 0
        if (
            not any(account.queue.count for account in self.index.accounts.values())
            and not self.index.troubled
        ):
            return max(woken, self.now + SECOND) if woken else 0
        times = (self.index.next_expiry(), self._look, self.slots.next_due(), woken)
        soonest = min((time for time in times if time), default=self.now + _RECHECK)
        return max(min(soonest, self.now + _RECHECK), self.now + SECOND)
