"""Dated slots: how a gang that cannot start now gets its devices together.

A slot names devices and a date: the earliest time at which they are free or held by runs that may be taken
then. Until the date nothing starts on its nodes that could still be protected by then (backfill within
deadline; unallocated work is always welcome). At the date the gang takes what is interruptible there: runs
of accounts that have had enough, and runs that began after the slot was given and so accepted its date.
Nobody is pushed below a floor for it. An account has at most one slot; it survives changes of rank until
its date, then lapses if the account has no claim any more or could not use it in time.

Announced maintenance is a reservation of the same kind that belongs to nobody: what starts on its node ends
its protection by then, and the node drains at the date.
"""

from __future__ import annotations

from typing import Final

from divvy.fleet.decision import Hold, Lapse, Placement
from divvy.fleet.snapshot import Slot, Snapshot
from divvy.planners.jobs.holdings import NEVER, Account, Run
from divvy.planners.jobs.index import JobIndex
from divvy.planners.jobs.queue import Head
from divvy.planners.jobs.reclaim import Reclaim
from divvy.planners.jobs.victims import Candidate, Request, VictimSearch
from divvy.units import MINUTE

#: How long after its date a slot may wait for what is in its way.
_GRACE: Final = 30 * MINUTE
#: Dates that differ by less are equally early; among them the least work at stake decides.
_COARSE: Final = 30 * MINUTE
#: Searches for a date in one pass, and accounts that may make them.
_SEARCHES: Final = 2
_ACCOUNTS_PER_TURN: Final = 16
#: Multiplicative hashing by the golden ratio (Knuth, The Art of Computer Programming, 6.4).
_SCATTER: Final = 2_654_435_761
_WORD: Final = 1 << 32
#: Devices from which a job counts as a gang wherever it runs.
_GANG: Final = 8


class Slots:
    """The dated slots of one pass, those of the snapshot and those it gives."""

    def __init__(self, index: JobIndex, snapshot: Snapshot, reclaim: Reclaim, now: int) -> None:
        self._index = index
        self._snapshot = snapshot
        self._reclaim = reclaim
        self._now = now
        self._held: dict[int, Slot] = dict(snapshot.jobs.slot)
        self._of_account = {snapshot.jobs.account[row]: row for row in self._held}
        self._bits = {row: _bits(slot.placement) for row, slot in self._held.items()}
        #: Announced maintenance, per node: a reservation that is nobody's.
        self._windows = {
            node: window.start for node, window in snapshot.nodes.window.items() if window.start > now
        }
        self.changes: list[Hold | Lapse] = []
        #: Grows with every slot that this pass gives, uses or gives up.
        self.touched = 0
        #: Looking for a date reads every node: few accounts may do it in a pass, and they take turns.
        self._left = _SEARCHES
        self._turns = -(-len(index.accounts) // _ACCOUNTS_PER_TURN)
        #: Whose turn it is, scattered over time, so that regular passes do not favour anybody.
        self._turn = now * _SCATTER % _WORD * self._turns // _WORD
        self._ends_on: dict[int, list[tuple[int, int, int, Run]]] = {}

    def avoid(self, row: int, ends: int) -> int:
        """Return the nodes (a bit set) on which a job whose protection ends at ``ends`` may not start."""
        nodes = 0
        for node, start in self._windows.items():
            if start < ends:
                nodes |= 1 << node
        if not self._held:
            return nodes
        for holder, slot in self._held.items():
            if holder != row and slot.due < ends:
                nodes |= self._bits[holder]
        return nodes

    def dates(self, ends: int) -> list[int]:
        """Return the dates before ``ends`` by which protection must have ended somewhere, the last first."""
        due = {slot.due for slot in self._held.values()} | set(self._windows.values())
        return sorted((date for date in due if self._now < date < ends), reverse=True)

    def keeps(self, head: Head) -> bool:
        """Return whether a job would find free devices but for a slot or maintenance."""
        index = self._index
        if not self.avoid(head.row, self._now + self._snapshot.jobs.spec[head.row].min_runtime):
            return False
        return any(
            index.free.find(head.gpus, head.per_node, head.model, outside) is not None
            for outside in index.zones.outside(head.clusters)
        )

    def of(self, account: Account) -> int | None:
        """Return the job of an account that has a slot."""
        return self._of_account.get(account.row)

    def date(self, account: Account) -> int:
        """Return when an account's slot is due, or given up if it is due already; NEVER without one."""
        row = self._of_account.get(account.row)
        if row is None:
            return NEVER
        due = self._held[row].due
        return due if due > self._now else due + _GRACE + 1

    def used(self, row: int) -> None:
        """Forget the slot of a job that starts."""
        if self._held.pop(row, None) is not None:
            self.touched += 1
            del self._of_account[self._snapshot.jobs.account[row]]

    def due(self, account: Account, row: int) -> VictimSearch | None:
        """Return a search for what a gang may take on the devices of its slot, None before the date."""
        slot = self._held[row]
        if slot.due > self._now:
            return None
        candidates: list[Candidate] = []
        spare: dict[int, float] = {}
        for node, _ in slot.placement:
            for run in self._index.on_node.get(node, {}).values():
                if run.allocated and run.row in self._index.accounts[run.account].interruptible:
                    guards = self._reclaim.guards(account, run, spare, anyway=run.started >= slot.since)
                    if guards is not None:
                        candidates.append(Candidate(run, 0, guards))
        once = {candidate.run.row: candidate for candidate in candidates}
        return VictimSearch(self._index, once.values(), spare)

    def request(self, row: int) -> Request:
        """Return the request of a gang on the devices of its slot."""
        spec = self._snapshot.jobs.spec[row]
        loose = self._index.loose
        allowed = self._bits[row] & loose.nodes_of(spec.model)
        for node, start in self._windows.items():
            if start < self._now + spec.min_runtime:
                allowed &= ~(1 << node)
        return Request(spec.gpus, spec.per_node, loose.node_size(spec.model), allowed)

    def review(self, account: Account) -> None:
        """Give up the slot of an account that could not use it, if its time or its claim is over."""
        row = self._of_account.get(account.row)
        if row is None:
            return
        slot = self._held[row]
        late = self._now - slot.due
        if late > _GRACE or (late >= 0 and not self._reclaim.has_claim(account)):
            self.used(row)
            self.changes.append(Lapse(row))

    def propose(self, account: Account, head: Head) -> None:
        """Give a gang a slot if its account has a claim, no slot yet, and there is a date."""
        if not self.may_search(account) or not self._is_gang(head):
            return
        self._left -= 1
        if self._index.weight(head) > self._index.loose_weight() + self._reclaim.above_floors(account):
            return
        zones = self._index.zones.outside(head.clusters)
        places = [place for zone in zones if (place := self._find(account, head, zone)) is not None]
        found = min(places, key=lambda place: place[1], default=None)
        if found is not None:
            placement, due = found
            self.touched += 1
            self._held[head.row] = Slot(placement, due, self._now)
            self._of_account[account.row] = head.row
            self._bits[head.row] = _bits(placement)
            self.changes.append(Hold(head.row, placement, due))

    def may_search(self, account: Account) -> bool:
        """Return whether a date may be looked for in this pass for an account's gang."""
        return (
            self._left > 0
            and account.row % self._turns == self._turn
            and account.row not in self._of_account
            and self._reclaim.has_claim(account)
        )

    def _is_gang(self, head: Head) -> bool:
        """Return whether a job is so large that small ones could keep it out for ever."""
        return head.gpus >= _GANG or 2 * head.gpus > self._index.loose.node_size(head.model)

    def next_due(self) -> int:
        """Return the date of the next slot, 0 if there is none ahead."""
        times = [slot.due for slot in self._held.values() if slot.due > self._now]
        return min((*times, *self._windows.values()), default=0)

    def _find(self, account: Account, head: Head, outside: int) -> tuple[Placement, int] | None:
        """Return the devices that come together first, and when."""
        index = self._index
        loose = index.loose
        request = Request(head.gpus, head.per_node, loose.node_size(head.model), loose.nodes_of(head.model))
        demands = request.demands()
        taken_nodes = outside
        for bits in (self._bits[row] for row in self._held):
            taken_nodes |= bits
        allowed = request.allowed & ~taken_nodes
        spare: dict[int, float] = {}
        taken: dict[int, int] = {}
        slots: list[tuple[int, int]] = []
        due, minimum = self._now, self._snapshot.jobs.spec[head.row].min_runtime
        for gpus in sorted(set(demands), reverse=True):
            count = demands.count(gpus)
            choices = sorted(
                (
                    -((self._now - when) // _COARSE),
                    sum(run.lost for run, _ in runs),
                    sum(run.weight for run, _ in runs),
                    node,
                    when,
                    runs,
                )
                for node in range(len(loose.free))
                if allowed >> node & 1 and (clear := self._clear(account, node, gpus, spare)) is not None
                for when, runs in [clear]
                if when + minimum <= self._windows.get(node, NEVER)
            )
            for _, _, _, node, when, runs in choices:
                if count == 0:
                    break
                after = dict(taken)
                for run, guards in runs:
                    for row in guards:
                        after[row] = after.get(row, 0) + run.weight
                if any(weight > spare[row] for row, weight in after.items()):
                    continue
                taken = after
                allowed &= ~(1 << node)
                slots.append((node, gpus))
                due = max(due, when)
                count -= 1
            if count:
                return None
        if any(due + minimum > self._windows.get(node, NEVER) for node, _ in slots):
            return None  # the last of its devices come too late for the maintenance of another
        return (tuple(sorted(slots)), due) if demands else None

    def _clear(
        self, account: Account, node: int, gpus: int, spare: dict[int, float]
    ) -> tuple[int, list[tuple[Run, tuple[int, ...]]]] | None:
        """Return when a node can give devices, and which runs must have left by then; None for never."""
        have = self._index.loose.free[node]
        when = self._now
        leaving: list[tuple[Run, tuple[int, ...]]] = []
        if have >= gpus:
            return when, leaving
        for until, _, _, run in self._ends(node):
            guards = self._reclaim.guards(account, run, spare)
            if guards is None:
                continue
            have += sum(count for place, count in run.placement if place == node)
            when = max(until, self._now)
            leaving.append((run, guards))
            if have >= gpus:
                return when, leaving
        return None

    def _ends(self, node: int) -> list[tuple[int, int, int, Run]]:
        """Return the runs of a node that may be taken once their protection ends, the earliest first."""
        ends = self._ends_on.get(node)
        if ends is None:
            ends = self._ends_on[node] = sorted(
                (max(run.until, self._now), run.lost, run.row, run)
                for run in self._index.on_node.get(node, {}).values()
                if run.allocated and run.until < NEVER and self._reclaim.has_enough(run.account)
            )
        return ends

    def moved(self, placement: Placement) -> None:
        """Forget what is known of the nodes on which a run came or went."""
        for node, _ in placement:
            self._ends_on.pop(node, None)


def _bits(placement: Placement) -> int:
    nodes = 0
    for node, _ in placement:
        nodes |= 1 << node
    return nodes
