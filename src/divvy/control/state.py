"""The one mutator: events in, columns changed, ledger entries out.

Nothing else writes to a snapshot's columns. An event that contradicts the state is refused with the
story of its subject; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from divvy.control import charging, health_events, refunds
from divvy.control.capacity import held_on, leave, recount
from divvy.control.remap import remap as remapped
from divvy.errors import ConflictError, InputError, NotFoundError
from divvy.fleet.budget import Budget, read_budget
from divvy.fleet.decision import Placement
from divvy.fleet.event import (
    Adjusted,
    BudgetChanged,
    Event,
    MaintenanceEnded,
    MaintenanceSet,
    NodeChanged,
    NodeCleared,
    NodeFaulted,
    Placed,
    Reassigned,
    SlotHeld,
    SlotLapsed,
    Started,
    Stopped,
    Stopping,
    Submitted,
    Withdrawn,
)
from divvy.fleet.job import Phase, StopCause
from divvy.fleet.ledger import LedgerEntry
from divvy.fleet.node import NodeState
from divvy.fleet.snapshot import NEVER, Change, ShareEpoch, Slot, Snapshot
from divvy.fleet.usage import ChargeHistory
from divvy.units import HOUR

_LOG_LIMIT: Final = 200_000
_FORGET_EVERY: Final = 4_096
#: Planners read windows that end at the last full tick or hour; what those reach back to must be kept.
_READ_BACK: Final = 2 * HOUR

_ENDS: Final = {
    StopCause.FINISHED: Phase.FINISHED,
    StopCause.CANCELLED: Phase.CANCELLED,
    StopCause.LIFETIME: Phase.CANCELLED,
    StopCause.PREEMPTED: Phase.PREEMPTED,
    StopCause.DRAINED: Phase.PREEMPTED,
}


class FleetState:
    """Owns a snapshot and applies events to it.

    Args:
        budget: The budget in force at the beginning.
        on_ledger: Receives every ledger entry when it is closed.
        epoch: Time since which the first tree holds, ms.
    """

    def __init__(
        self, budget: Budget, on_ledger: Callable[[LedgerEntry], None] | None = None, epoch: int = 0
    ) -> None:
        self.snapshot = Snapshot(budget.policy, [ShareEpoch(epoch, budget.tree)])
        self._on_ledger = on_ledger or (lambda _entry: None)
        self._applied = 0
        self._grow_accounts()
        self._apply: dict[type[Event], Callable[[Any], None]] = {
            Submitted: self._submitted,
            Placed: self._placed,
            Started: self._started,
            Stopping: self._stopping,
            Stopped: self._stopped,
            SlotHeld: self._slot_held,
            SlotLapsed: self._slot_lapsed,
            Withdrawn: self._withdrawn,
            Reassigned: self._reassigned,
            NodeChanged: self._node_changed,
            MaintenanceSet: self._health,
            MaintenanceEnded: self._health,
            NodeFaulted: self._health,
            NodeCleared: self._health,
            BudgetChanged: self._budget_changed,
            Adjusted: self._adjusted,
        }

    def apply(self, event: Event) -> None:
        """Change the state by one event.

        Raises:
            DivvyError: If the event contradicts the state; then nothing has changed.
        """
        self._apply[type(event)](event)
        self._applied += 1
        if self._applied % _FORGET_EVERY == 0:
            self._forget(event.at)

    # -- jobs -----------------------------------------------------------------------------------------

    def _submitted(self, event: Submitted) -> None:
        snapshot, spec = self.snapshot, event.spec
        jobs = snapshot.jobs
        if spec.id in jobs.row:
            raise ConflictError.one(
                "job-duplicate", f"job {spec.id} exists already", path="job", fix="choose another id"
            )
        if spec.gpus <= 0 or spec.min_runtime < 0:
            raise InputError.one(
                "job-size", f"job {spec.id}: {spec.gpus} devices, {spec.min_runtime} ms", path="gpus"
            )
        account = snapshot.tree.leaf(spec.account)
        row = len(jobs)
        jobs.row[spec.id] = row
        jobs.live[row] = None
        if spec.budgets:
            jobs.several[spec.id] = None
        jobs.spec.append(spec)
        jobs.account.append(account)
        jobs.phase.append(Phase.QUEUED)
        jobs.submitted.append(event.at)
        jobs.queued.append(event.at)
        jobs.started.append(NEVER)
        jobs.stopped.append(NEVER)
        jobs.protected_until.append(0)
        jobs.placement.append(())
        jobs.preemptions.append(0)
        jobs.attempt.append(0)
        jobs.debug.append(event.debug)
        jobs.rate.append(0)
        jobs.surcharge.append(0)
        jobs.stop_cause.append(StopCause.FINISHED)
        jobs.exit_code.append(None)
        self._changed(Change.JOB, row)

    def _placed(self, event: Placed) -> None:
        jobs, nodes = self.snapshot.jobs, self.snapshot.nodes
        row = self._row(event.job, Phase.QUEUED)
        spec = jobs.spec[row]
        placement = tuple((self._node(name), gpus) for name, gpus in event.placement)
        for node, gpus in placement:
            if gpus <= 0 or gpus > nodes.free[node]:
                raise ConflictError.one(
                    "node-full",
                    f"job {event.job}: {gpus} devices on {nodes.node[node].name}, {nodes.free[node]} free",
                    path="placement",
                )
        if sum(gpus for _, gpus in placement) != spec.gpus:
            raise ConflictError.one("gang-split", f"job {event.job} is not placed on {spec.gpus} devices")
        for node, gpus in placement:
            nodes.free[node] -= gpus
        jobs.phase[row] = Phase.PLACED
        jobs.slot.pop(row, None)
        jobs.placement[row] = placement
        jobs.started[row] = event.at
        jobs.attempt[row] += 1
        jobs.protected_until[row] = event.at + spec.min_runtime if event.protected else 0
        self._changed(Change.JOB, row)

    def _started(self, event: Started) -> None:
        jobs = self.snapshot.jobs
        unasked = (Phase.QUEUED,) if event.placement else ()
        row = self._row(event.job, Phase.PLACED, Phase.STOPPING, *unasked)
        if jobs.phase[row] is Phase.STOPPING and jobs.rate[row]:
            raise ConflictError.one("job-phase", f"job {event.job} has started before", path="job")
        if event.placement:
            self._found(row, event)
        if jobs.phase[row] is not Phase.STOPPING:
            jobs.phase[row] = Phase.RUNNING
        # else: told to leave before its start was reported; it did run, and is charged for it
        if jobs.protected_until[row]:
            jobs.protected_until[row] += event.at - jobs.started[row]
        jobs.started[row] = event.at
        charging.begin(self.snapshot, row, event.at)
        self._changed(Change.JOB, row)
        if event.placement:
            self._moved(jobs.placement[row], event.at)

    def _found(self, row: int, event: Started) -> None:
        """Take over where the engine says that a run is; its nodes may be overfull until the next pass."""
        jobs = self.snapshot.jobs
        placement = tuple((self._node(name), gpus) for name, gpus in event.placement)
        if jobs.phase[row] is Phase.QUEUED:
            jobs.slot.pop(row, None)
            jobs.attempt[row] += 1
            jobs.started[row] = event.at
            minimum = jobs.spec[row].min_runtime
            jobs.protected_until[row] = event.at + minimum if minimum else 0
        elif jobs.phase[row] is Phase.PLACED:
            self._release(row)
        jobs.placement[row] = placement
        if jobs.phase[row] is not Phase.STOPPING:
            self._release(row, -1)

    def _stopping(self, event: Stopping) -> None:
        row = self._row(event.job, Phase.PLACED, Phase.RUNNING)
        self._release(row)
        self.snapshot.jobs.phase[row] = Phase.STOPPING
        self.snapshot.jobs.stop_cause[row] = event.cause
        self._changed(Change.JOB, row)

    def _stopped(self, event: Stopped) -> None:
        jobs = self.snapshot.jobs
        row = self._row(event.job, Phase.PLACED, Phase.RUNNING, Phase.STOPPING)
        phase, start = jobs.phase[row], jobs.started[row]
        if phase is not Phase.STOPPING:
            self._release(row)
        if jobs.rate[row]:  # a run stopped before its start costs nothing
            refunds.ended(self.snapshot, row, event.cause, max(event.at, start), self._on_ledger)
            charging.end(self.snapshot, row, max(event.at, start), self._on_ledger)
        left, jobs.placement[row] = jobs.placement[row], ()
        jobs.protected_until[row] = 0
        jobs.stop_cause[row] = event.cause
        jobs.exit_code[row] = event.exit_code
        if event.cause in (StopCause.PREEMPTED, StopCause.DRAINED):
            jobs.preemptions[row] += 1
        if event.requeue:
            jobs.phase[row] = Phase.QUEUED
            jobs.queued[row] = event.at
            jobs.started[row] = NEVER
        else:
            self._end(row, _ENDS.get(event.cause, Phase.FAILED), event.at)
        self._changed(Change.JOB, row)
        self._moved(left, event.at)

    def _slot_held(self, event: SlotHeld) -> None:
        row = self._row(event.job, Phase.QUEUED)
        held = tuple((self._node(name), gpus) for name, gpus in event.placement)
        self.snapshot.jobs.slot[row] = Slot(held, event.due, event.at)
        self._changed(Change.JOB, row)

    def _slot_lapsed(self, event: SlotLapsed) -> None:
        row = self._row(event.job, Phase.QUEUED)
        self.snapshot.jobs.slot.pop(row, None)
        self._changed(Change.JOB, row)

    def _withdrawn(self, event: Withdrawn) -> None:
        row = self._row(event.job, Phase.QUEUED)
        if event.cause is not StopCause.CANCELLED:
            self.snapshot.jobs.stop_cause[row] = event.cause
        self._end(row, Phase.CANCELLED, event.at)
        self._changed(Change.JOB, row)

    def _reassigned(self, event: Reassigned) -> None:
        jobs, account = self.snapshot.jobs, self.snapshot.tree.leaf(event.account)
        row = self._row(event.job, Phase.QUEUED)
        if event.account not in jobs.spec[row].budgets:
            raise ConflictError.one(
                "account-not-named", f"job {event.job} does not name account {event.account}", path="account"
            )
        jobs.spec[row] = jobs.spec[row]._replace(account=event.account)
        jobs.account[row] = account
        jobs.slot.pop(row, None)
        self._changed(Change.JOB, row)

    def _end(self, row: int, phase: Phase, at: int) -> None:
        jobs = self.snapshot.jobs
        jobs.phase[row] = phase
        jobs.stopped[row] = at
        jobs.slot.pop(row, None)
        jobs.several.pop(jobs.spec[row].id, None)
        del jobs.live[row]

    def _moved(self, placement: Placement, at: int) -> None:
        """Count what draining nodes still offer after a run came to them or left."""
        for node in leave(self.snapshot, placement, at):
            self._changed(Change.NODE, node)

    def _release(self, row: int, sign: int = 1) -> None:
        nodes = self.snapshot.nodes
        for node, gpus in self.snapshot.jobs.placement[row]:
            if nodes.node[node].state is NodeState.UP:
                nodes.free[node] += sign * gpus

    # -- nodes, budgets, adjustments --------------------------------------------------------------------

    def _node_changed(self, event: NodeChanged) -> None:
        snapshot, node = self.snapshot, event.node
        nodes = snapshot.nodes
        if node.gpus < 0 or node.weight <= 0:
            raise InputError.one(
                "node-size", f"node {node.name}: {node.gpus} devices of weight {node.weight}", path="node"
            )
        row = nodes.row.get(node.name)
        before = 0
        if row is None:
            row = nodes.row[node.name] = len(nodes)
            nodes.node.append(node)
            nodes.free.append(0)
            nodes.there.append(0)
        else:
            before = nodes.there[row] * nodes.node[row].weight
            nodes.node[row] = node
        taken = held_on(snapshot, row, (Phase.PLACED, Phase.RUNNING))
        nodes.free[row] = node.gpus - taken if node.state is NodeState.UP else 0
        recount(snapshot, row, event.at, before)
        if row in nodes.fault and nodes.fault[row].cleared:
            del nodes.fault[row]
        self._changed(Change.NODE, row)

    def _health(self, event: health_events.HealthEvent) -> None:
        row = self._node(event.node)
        health_events.change(self.snapshot, row, event, self._on_ledger)
        self._changed(Change.NODE, row)

    def _budget_changed(self, event: BudgetChanged) -> None:
        snapshot = self.snapshot
        budget = read_budget(event.document)
        remap = remapped(snapshot, budget.tree)
        usage, unallocated = snapshot.usage, snapshot.unallocated
        snapshot.policy = budget.policy
        snapshot.epochs.append(ShareEpoch(event.at, budget.tree, event.author, event.reason))
        snapshot.usage, snapshot.unallocated = [], []
        self._grow_accounts()
        for before, after in remap.items():
            snapshot.usage[after] = usage[before]
            snapshot.unallocated[after] = unallocated[before]
        snapshot.author_usage = {
            (remap[account], author): history
            for (account, author), history in snapshot.author_usage.items()
            if account in remap
        }
        jobs = snapshot.jobs
        for row in jobs.live:
            jobs.account[row] = remap[jobs.account[row]]
        self._changed(Change.TREE, 0)

    def _adjusted(self, event: Adjusted) -> None:
        entry = LedgerEntry(
            event.account, "", 0, event.at, event.at, 0, 0, event.charge, allocated=True, cause=event.cause
        )
        charging.adjust(self.snapshot, entry, self._on_ledger)
        self._changed(Change.TREE, 0)

    # -- bookkeeping ------------------------------------------------------------------------------------

    def _grow_accounts(self) -> None:
        snapshot = self.snapshot
        count = len(snapshot.tree)
        snapshot.usage = [ChargeHistory() for _ in range(count)]
        snapshot.unallocated = [ChargeHistory() for _ in range(count)]

    def _changed(self, change: Change, row: int) -> None:
        snapshot = self.snapshot
        snapshot.version += 1
        snapshot.log.append((change, row))
        if len(snapshot.log) > _LOG_LIMIT:
            half = _LOG_LIMIT // 2
            del snapshot.log[:half]
            snapshot.log_start += half

    def _forget(self, now: int) -> None:
        """Drop what no window can see any more."""
        snapshot = self.snapshot
        before = now - snapshot.policy.lookback - _READ_BACK
        for history in (
            *snapshot.usage,
            *snapshot.unallocated,
            *snapshot.author_usage.values(),
            snapshot.capacity,
        ):
            history.forget(before)
        while len(snapshot.epochs) > 1 and snapshot.epochs[1].since <= before:
            del snapshot.epochs[0]

    def _row(self, job: str, *phases: Phase) -> int:
        jobs = self.snapshot.jobs
        row = jobs.row.get(job)
        if row is None:
            raise NotFoundError.one("job-unknown", f"no job {job}", path="job")
        if jobs.phase[row] not in phases:
            raise ConflictError.one(
                "job-phase",
                f"job {job} is {jobs.phase[row].name.lower()} (attempt {jobs.attempt[row]})",
                path="job",
                allowed=", ".join(phase.name.lower() for phase in phases),
            )
        return row

    def _node(self, name: str) -> int:
        row = self.snapshot.nodes.row.get(name)
        if row is None:
            raise NotFoundError.one("node-unknown", f"no node {name}", path="node")
        return row
