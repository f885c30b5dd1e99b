"""What the budget planner keeps between passes: queues, holdings and interruptible runs, by account.

The index is a function of the snapshot: `catch_up` brings it to the snapshot's version from the change
log, or rebuilds it; both give the same. What a pass does to it on trial is noted in `dirty` and read
again from the snapshot at the next pass, so a plan that is never carried out leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from divvy.fleet.account import AccountTree
from divvy.fleet.decision import Placement
from divvy.fleet.job import Phase
from divvy.fleet.node import Node, NodeState
from divvy.fleet.price import entry_charge
from divvy.fleet.snapshot import Change, Snapshot
from divvy.planners.jobs.balance import BalanceBook, Balances, tick_of
from divvy.planners.jobs.holdings import NEVER, Account, Run, at_stake
from divvy.planners.jobs.placement import FreeMap
from divvy.planners.jobs.queue import Head
from divvy.planners.jobs.reach import Reach
from divvy.planners.jobs.zones import Zones
from divvy.units import HOUR


class JobIndex:
    """The budget planner's view of a snapshot."""

    def __init__(self) -> None:
        self._version = -1
        self._tree: AccountTree | None = None
        self.dirty: set[int] = set()
        self.zones = Zones()
        self.moved: list[int] = []
        """Leaf accounts whose holdings, balance or interruptible runs changed, in that order."""
        self.epoch = 0
        """Grows when everybody's did, and `moved` begins anew."""

    def catch_up(self, snapshot: Snapshot, now: int) -> None:
        """Bring the index to the snapshot's version and to the time of the pass."""
        changes = snapshot.changes_since(self._version) if self._version >= 0 else None
        tick = tick_of(now, snapshot.policy.lookback)
        if changes is None or self._tree is not snapshot.tree or tick < self._book.tick:
            self._rebuild(snapshot)
        else:
            rows = self.dirty
            nodes = set()
            for change, row in changes:
                if change is Change.JOB:
                    rows.add(row)
                elif change is Change.NODE:
                    nodes.add(row)
                else:
                    self._terms_changed(snapshot)
            if nodes:
                self._sync_nodes(snapshot, sorted(nodes))
            for row in sorted(rows):
                self._sync_job(snapshot, row)
            self.dirty = set()
        self._version = snapshot.version
        self._expire(now)
        self._read_balances(snapshot, tick)

    def _rebuild(self, snapshot: Snapshot) -> None:
        self._tree = tree = snapshot.tree
        self.nominal = [float(share) for share in tree.share]
        """Part of the whole fleet that each tree row is to have."""
        self.shares = self.nominal
        """Part of it that each can be owed: less where it asks for models of which there is too little."""
        self.floors = [0.0] * len(tree)
        """Weight per tree row below which nobody is pushed."""
        self.accounts: dict[int, Account] = {row: Account(row) for row in tree.leaves}
        self.held = [0] * len(tree)
        """Weight of allocated runs per tree row, every level."""
        self.unallocated = [0] * len(tree)
        """Weight of unallocated runs per tree row, every level."""
        self.runs: dict[int, Run] = {}
        self._book = BalanceBook(len(tree))
        self.reach = Reach()
        """What certainly fits nowhere."""
        self.free = FreeMap()
        self.loose = FreeMap()
        """Free devices plus those of unallocated runs."""
        self.on_node: dict[int, dict[int, Run]] = {}
        """All runs per node."""
        self.capacity = 0
        """Weight of all healthy devices."""
        self.spare_nodes: set[int] = set()
        """Nodes with unallocated runs."""
        self.troubled: set[int] = set()
        """Nodes that drain or have promised more than they have."""
        self._node_weight: list[int] = []
        self._unit: dict[str, int] = {}
        self._lightest = self._heaviest = 1
        self._parting: dict[tuple[int, int], tuple[int, int]] = {}
        self._gpus_by_model: dict[str, int] = {}
        self.weight_by_model: dict[str, int] = {}
        """Weight of the healthy devices."""
        self._taken: list[int] = []
        self._spare: list[int] = []
        self._queued: dict[int, int] = {}
        self._expiry: list[tuple[int, int]] = []
        self.dirty = set()
        self._sync_nodes(snapshot, range(len(snapshot.nodes)))
        for row in snapshot.jobs.live:
            self._sync_job(snapshot, row)
        self._all_moved()

    def _terms_changed(self, snapshot: Snapshot) -> None:
        """Forget what rests on the policy, the shares' history or the ledger's adjustments."""
        self._book.forget()
        self._set_floors(snapshot)

    def _read_balances(self, snapshot: Snapshot, tick: int) -> None:
        if self._book.catch_up(snapshot, tick, self.capacity, self.shares):
            self._all_moved()

    def _all_moved(self) -> None:
        self.epoch += 1
        self.moved.clear()

    def _set_floors(self, snapshot: Snapshot) -> None:
        floor = snapshot.policy.floor
        self.floors = [floor * share * self.capacity for share in self.shares]
        self.reach.forget()

    # -- nodes ------------------------------------------------------------------------------------------

    def _sync_nodes(self, snapshot: Snapshot, rows: Iterable[int]) -> None:
        for row in rows:
            self._sync_node(snapshot, row)
        self._count_models(snapshot)
        self.zones.read(snapshot.nodes.node)
        self._terms_changed(snapshot)

    def _sync_node(self, snapshot: Snapshot, row: int) -> None:
        node = snapshot.nodes.node[row]
        while len(self._taken) <= row:
            self._taken.append(0)
            self._spare.append(0)
            self._node_weight.append(0)
        self.free.set_node(row, node, 0)
        self.loose.set_node(row, node, 0)
        self._settle(node, row)
        weight = snapshot.nodes.there[row] * node.weight
        self.capacity += weight - self._node_weight[row]
        self._node_weight[row] = weight

    def _count_models(self, snapshot: Snapshot) -> None:
        self._unit, self._gpus_by_model, self.weight_by_model = {}, {}, {}
        weights = [node.weight for node in snapshot.nodes.node if node.state is NodeState.UP]
        self._lightest, self._heaviest = min(weights, default=1), max(weights, default=1)
        for node, there in zip(snapshot.nodes.node, snapshot.nodes.there, strict=True):
            if node.state is NodeState.UP:
                self._unit[node.model] = min(node.weight, self._unit.get(node.model, node.weight))
                self._gpus_by_model[node.model] = self._gpus_by_model.get(node.model, 0) + node.gpus
            if there:
                before = self.weight_by_model.get(node.model, 0)
                self.weight_by_model[node.model] = before + there * node.weight

    # -- jobs -------------------------------------------------------------------------------------------

    def _sync_job(self, snapshot: Snapshot, row: int) -> None:
        jobs = snapshot.jobs
        phase = jobs.phase[row]
        run = None
        if phase is Phase.PLACED or phase is Phase.RUNNING:
            until = NEVER if phase is Phase.PLACED else jobs.protected_until[row]
            run = run_of(snapshot, row, jobs.placement[row], until, jobs.started[row])
            if self.runs.get(row) == run:
                return  # a start that a pass tried out and that came true
        elif phase is Phase.QUEUED and self._queued.get(row) == jobs.account[row]:
            return
        self.forget(snapshot, row)
        if run is not None:
            self.occupy(snapshot, run)
        elif phase is Phase.QUEUED:
            self.enqueue(snapshot, row)

    def enqueue(self, snapshot: Snapshot, row: int) -> None:
        """Put a queued job into its account's queue."""
        jobs = snapshot.jobs
        spec, account = jobs.spec[row], jobs.account[row]
        queues = self.accounts[account]
        queue = queues.queue if spec.allocated else queues.spare
        queue.add(row, spec, jobs.submitted[row], debug=jobs.debug[row])
        self._queued[row] = account

    def occupy(self, snapshot: Snapshot, run: Run) -> None:
        """Record a run."""
        self.runs[run.row] = run
        self._move(snapshot, run, +1)
        if run.allocated:
            min_runtime = snapshot.jobs.spec[run.row].min_runtime
            charge = entry_charge(snapshot.policy.protection_price, min_runtime, run.weight)
            self._book.begin(run.row, self._lineage(run.account), run.started, charge)
            if run.until > 0:
                heappush(self._expiry, (run.until, run.row))
            else:
                self._expose(run)

    def forget(self, snapshot: Snapshot, row: int) -> None:
        """Take a job out of wherever it is."""
        account = self._queued.pop(row, None)
        if account is not None:
            queues = self.accounts[account]
            spec = snapshot.jobs.spec[row]
            (queues.queue if spec.allocated else queues.spare).remove(row, spec)
            return
        run = self.runs.pop(row, None)
        if run is None:
            return
        self._move(snapshot, run, -1)
        queues = self.accounts[run.account]
        self._book.end(row)
        if queues.interruptible.pop(row, None) is not None:
            queues.interruptible_gpus -= run.gpus
            self.reach.hide(run)
            ranks = queues.interruptible_ranks
            ranks[run.rank] -= 1
            if not ranks[run.rank]:
                del ranks[run.rank]

    def _move(self, snapshot: Snapshot, run: Run, sign: int) -> None:
        """Add (+1) or remove (-1) what a run holds."""
        for node, gpus in run.placement:
            on_node = self.on_node.setdefault(node, {})
            if sign > 0:
                on_node[run.row] = run
            else:
                del on_node[run.row]
            self._taken[node] += sign * gpus
            if not run.allocated:
                self._spare[node] += sign * gpus
            self._settle(snapshot.nodes.node[node], node)
        held = self.held if run.allocated else self.unallocated
        if run.allocated and sign > 0:
            self.reach.more_room(run.account, held[run.account] - self.floors[run.account])
        for row in self._lineage(run.account):
            held[row] += sign * run.weight
        if run.allocated:
            account = self.accounts[run.account]
            account.running[run.author] = account.running.get(run.author, 0) + sign * run.weight
            account.author_gpus[run.author] = account.author_gpus.get(run.author, 0) + sign * run.gpus
            account.models_run[run.model] = account.models_run.get(run.model, 0) + sign
            self.moved.append(run.account)
            account.gpus += sign * run.gpus
            account.author_usage.pop(run.author, None)
            account.queue.authors_changed()

    def _settle(self, node: Node, row: int) -> None:
        """Set a node's free devices from what is taken."""
        free = node.gpus - self._taken[row] if node.state is NodeState.UP else 0
        self.free.set_free(row, free)
        spare = self._spare[row] if node.state is NodeState.UP else 0
        if free + spare > self.loose.free[row]:
            self.reach.grow(row)
        self.loose.set_free(row, free + spare)
        if spare:
            self.spare_nodes.add(row)
        elif self.spare_nodes:
            self.spare_nodes.discard(row)
        if free < 0 or node.state is NodeState.DRAINING:
            self.troubled.add(row)
        elif self.troubled:
            self.troubled.discard(row)

    def _lineage(self, account: int) -> tuple[int, ...]:
        assert self._tree is not None  # noqa: S101  # set by the first rebuild
        return self._tree.lineage[account]

    # -- questions --------------------------------------------------------------------------------------

    def over_capacity(self, snapshot: Snapshot, node: int) -> int:
        """Return how many devices more than it has a node has promised; negative where it has some left."""
        return self._taken[node] - snapshot.nodes.node[node].gpus

    def share(self, snapshot: Snapshot, shares: list[float]) -> None:
        """Put shares into force, after `catch_up`; what was found out under others is forgotten."""
        if shares is not self.shares and shares != self.shares:
            self.shares = shares
            self._terms_changed(snapshot)
            self._read_balances(snapshot, self._book.tick)

    def gpus_of(self, model: str) -> int:
        """Return the devices in service of a model; empty means any."""
        return sum(self._gpus_by_model.values()) if not model else self._gpus_by_model.get(model, 0)

    def weight(self, head: Head) -> int:
        """Return the weight a job would hold: that of its model, or of the lightest there is."""
        return head.gpus * (self._unit.get(head.model) or self._lightest)

    def parting(self, one: int, other: int) -> tuple[int, int]:
        """Return the tree rows just below where the paths of two leaves part."""
        rows = self._parting.get((one, other))
        if rows is None:
            assert self._tree is not None  # noqa: S101  # set by the first rebuild
            rows = self._parting[one, other] = self._tree.parting(one, other)
        return rows

    def head_of(self, snapshot: Snapshot, row: int) -> Head:
        """Return a queued job as a head, wherever it stands in its account's order."""
        spec = snapshot.jobs.spec[row]
        rank = (-spec.priority, not snapshot.jobs.debug[row])
        shape = spec.gpus, spec.per_node, spec.model, spec.clusters
        return Head(rank, 0.0, snapshot.jobs.submitted[row], row, *shape)

    @property
    def balances(self) -> Balances:
        """Return the balances as they stand."""
        return self._book.balances

    def loose_weight(self) -> float:
        """Return an upper bound of the weight of the free devices and those of unallocated runs."""
        return self.loose.total * self._heaviest

    def spare_heads(self, account: Account) -> list[Head]:
        """Return the first unallocated job of every shape of an account, by priority and age."""
        ready = account.spare.ready()
        return (
            ready if ready is not None else account.spare.heads(dict.fromkeys(account.spare.authors(), 0.0))
        )

    # -- time -------------------------------------------------------------------------------------------

    def _expose(self, run: Run) -> None:
        self.moved.append(run.account)
        account = self.accounts[run.account]
        self.reach.expose(run)
        account.interruptible[run.row] = run
        account.interruptible_gpus += run.gpus
        account.interruptible_ranks[run.rank] = account.interruptible_ranks.get(run.rank, 0) + 1

    def _expire(self, now: int) -> None:
        """Move runs whose protection has ended to the interruptible ones."""
        expiry = self._expiry
        while expiry and expiry[0][0] <= now:
            until, row = heappop(expiry)
            run = self.runs.get(row)
            if run is not None and run.until == until and row not in self.accounts[run.account].interruptible:
                self._expose(run)

    def next_expiry(self) -> int:
        """Return when the next protection ends, 0 if none does."""
        expiry = self._expiry
        while expiry:
            until, row = expiry[0]
            run = self.runs.get(row)
            if run is not None and run.until == until:
                return until if until < NEVER else 0
            heappop(expiry)
        return 0

    def heads(self, snapshot: Snapshot, account: Account, now: int) -> list[Head]:
        """Return the first allocated job of every shape of an account, in its order.

        Fair share between authors: window usage at the last full hour, which keeps the order stable (and
        cheap) in between, plus one hour of what runs now, so that authors alternate at once.
        """
        bucket = now - now % HOUR
        if account.bucket != bucket:
            account.author_usage.clear()
            account.bucket = bucket
            account.queue.authors_changed()
        ready = account.queue.ready()
        if ready is not None:
            return ready
        usage, policy = account.author_usage, snapshot.policy
        shares: dict[str, float] = {}
        for author in account.queue.authors():
            had = usage.get(author)
            if had is None:
                history = snapshot.author_usage.get((account.row, author))
                had = history.windowed(bucket, policy.lookback, policy.taper) if history is not None else 0.0
                usage[author] = had
            shares[author] = had + account.running.get(author, 0) * HOUR
        return account.queue.heads(shares)


def run_of(snapshot: Snapshot, row: int, placement: Placement, until: int, started: int) -> Run:
    """Return a job's run as the planner sees it."""
    jobs, nodes = snapshot.jobs, snapshot.nodes.node
    spec = jobs.spec[row]
    return Run(
        row,
        jobs.account[row],
        spec.author,
        spec.allocated,
        placement,
        spec.gpus,
        sum([gpus * nodes[node].weight for node, gpus in placement]),
        until,
        started,
        (-spec.priority, not jobs.debug[row]),
        spec.gpus * at_stake(spec),
        spec.model,
    )
