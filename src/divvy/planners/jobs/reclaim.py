"""What an account may take back from others, or from itself, and why it may not.

A run of another account may be preempted if all of this holds:

- it is past its minimum runtime (interruptible);
- its account, and its side where the two paths part, have had at least what they are entitled to (unless
  the policy says otherwise), and stay at or above their floor;
- its side is more over-served than the requester's by the margin, the requester's entry charge included;
  a requester below its floor needs no such comparison, up to its share of what is there now.
"""

from __future__ import annotations

from typing import NamedTuple

from divvy.fleet.decision import Placement, Wait
from divvy.fleet.reason import Reason
from divvy.fleet.snapshot import Snapshot
from divvy.planners.jobs.balance import Balances
from divvy.planners.jobs.index import Account, JobIndex, Run
from divvy.planners.jobs.queue import Head
from divvy.planners.jobs.victims import Candidate, Request, VictimSearch


class Taken(NamedTuple):
    """Room that was found.

    Attributes:
        placement: Where the job goes.
        victims: Who gives way: run, reason, balance of its side, balance of the requester's side.
        reason: Reason of the start.
        protected: Whether the newcomer is protected.
    """

    placement: Placement
    victims: list[tuple[Run, Reason, float, float]]
    reason: Reason
    protected: bool


class Reclaim:
    """Answers for one pass; reads the index, changes nothing.

    Args:
        index: Holdings, tentative ones of this pass included.
        snapshot: Tree and policy.
        balances: Balances of this pass.
        floors: Weight per tree row below which nobody is pushed.
    """

    def __init__(self, index: JobIndex, snapshot: Snapshot, balances: Balances, floors: list[float]) -> None:
        self._index = index
        self._tree = snapshot.tree
        self._policy = snapshot.policy
        self._specs = snapshot.jobs.spec
        self._balances = balances
        self._floors = floors
        self._donors: list[Account] | None = None
        self._hopeless: set[tuple[int, int, int, str]] = set()

    def holdings_changed(self) -> None:
        """Forget what was found out so far: runs came or went."""
        self._donors = None
        self._hopeless.clear()

    def donors(self) -> list[Account]:
        """Return the accounts from which anybody at all could take something now."""
        if self._donors is None:
            held, floors = self._index.held, self._floors
            self._donors = [
                account
                for account in self._index.accounts.values()
                if account.interruptible
                and held[account.row] > floors[account.row]
                and self._has_enough(account.row)
            ]
        return self._donors

    def _has_enough(self, row: int) -> bool:
        return self._policy.reclaim_from_owed or self._balances.of(row) >= 1.0

    def over_unallocated(self, head: Head) -> Placement | None:
        """Return where a job fits if unallocated runs leave: the node where the fewest must."""
        index = self._index
        if index.loose.total == index.free.total:
            return None
        request = self._request(head)
        if len(request.demands()) != 1:
            return index.loose.find(head.gpus, head.per_node, head.model)
        loose, free, gpus = index.loose.free, index.free.free, head.gpus
        best = min(
            (
                (gpus - free[node], loose[node], node)
                for node in index.spare_nodes
                if loose[node] >= gpus and request.allowed >> node & 1
            ),
            default=None,
        )
        return ((best[2], gpus),) if best is not None else None

    def from_others(self, account: Account, head: Head) -> Taken | None:
        """Return room made by more over-served accounts, or None."""
        if not self.donors():
            return None
        key = (account.row, head.gpus, head.per_node, head.model)
        if key in self._hopeless:
            return None
        candidates, spare, sides = self._candidates(account, head)
        needed = head.gpus - self._index.loose.total
        found = None
        if candidates and sum(candidate.run.gpus for candidate in candidates) >= needed:
            found = VictimSearch(self._index, candidates, spare).find(self._request(head))
        if found is None:
            self._hopeless.add(key)
            return None
        placement, runs = found
        victims = []
        for run in runs:
            if run.allocated:
                victims.append((run, Reason.PREEMPTED_RECLAIM, *sides[run.account]))
            else:
                victims.append((run, Reason.PREEMPTED_UNALLOCATED, 0.0, 0.0))
        return Taken(placement, victims, Reason.STARTED_BY_RECLAIM, protected=True)

    def own_swap(self, account: Account, head: Head) -> Taken | None:
        """Return room made by the account's own interruptible runs that rank behind a job, or None.

        If the account is over-served the newcomer inherits the lack of protection, so that swaps cannot
        be chained into a fortress.
        """
        if not self.may_swap(account, head):
            return None
        candidates = [Candidate(run, 0, ()) for run in account.interruptible.values() if run.rank > head.rank]
        found = VictimSearch(self._index, candidates, {}).find(self._request(head))
        if found is None:
            return None
        placement, runs = found
        balance = self._balances.of(account.row)
        victims = [
            (run, Reason.PREEMPTED_SWAP if run.allocated else Reason.PREEMPTED_UNALLOCATED, balance, balance)
            for run in runs
        ]
        return Taken(placement, victims, Reason.STARTED_BY_SWAP, protected=balance < 1.0)

    @staticmethod
    def may_swap(account: Account, head: Head) -> bool:
        """Return whether the account holds anything interruptible that ranks behind a job."""
        return any(rank > head.rank for rank in account.interruptible_ranks)

    def why_not(self, account: Account, head: Head, first: int) -> Wait:
        """Return why a job that was tried could not be started; ``first`` is the account ahead of all."""
        index = self._index
        free, loose = index.free.total, index.loose.total
        candidates, _, _ = self._candidates(account, head)
        reclaimable = sum(candidate.run.gpus for candidate in candidates)
        protected = sum(
            run.gpus
            for run in index.runs.values()
            if run.allocated
            and run.account != account.row
            and run.row not in index.accounts[run.account].interruptible
            and self._may_take(account.row, run.account, head)
        )
        if index.free.node_size(head.model) == 0:
            reason = Reason.WAIT_MODEL
        elif head.gpus > index.gpus_of(head.model):
            reason = Reason.WAIT_TOO_LARGE
        elif loose + reclaimable >= head.gpus:
            reason = Reason.WAIT_SHAPE
        elif loose + reclaimable + protected >= head.gpus:
            reason = Reason.WAIT_PROTECTED
        elif self._balances.of(account.row) > 1.0:
            reason = Reason.WAIT_OVERSERVED
        else:
            reason = Reason.WAIT_CAPACITY
        return Wait(reason, head.gpus, free, reclaimable, protected, first)

    # -- the rules --------------------------------------------------------------------------------------

    def _candidates(
        self, account: Account, head: Head
    ) -> tuple[list[Candidate], dict[int, float], dict[int, tuple[float, float]]]:
        """Return who may be preempted for a job, the room above the floors, the balances per account."""
        held, floors, band = self._index.held, self._floors, self._policy.band
        candidates: list[Candidate] = []
        spare: dict[int, float] = {}
        sides: dict[int, tuple[float, float]] = {}
        for donor in self.donors():
            if donor is account or not self._may_take(account.row, donor.row, head):
                continue
            mine, theirs = self._tree.parting(account.row, donor.row)
            guards = (donor.row,) if theirs == donor.row else (donor.row, theirs)
            for row in guards:
                spare[row] = held[row] - floors[row]
            over = self._balances.of(theirs)
            sides[donor.row] = over, self._compared(mine, head)
            level = int(min(over, 1e6) / band) if band > 0 else 0
            room = min(spare[row] for row in guards)
            candidates += [
                Candidate(run, level, guards) for run in donor.interruptible.values() if run.weight <= room
            ]
        return candidates, spare, sides

    def _may_take(self, taker: int, donor: int, head: Head) -> bool:
        """Return whether an account may take from another one at all (protection and size apart)."""
        mine, theirs = self._tree.parting(taker, donor)
        held, floors = self._index.held, self._floors
        if held[donor] <= floors[donor] or held[theirs] <= floors[theirs]:
            return False
        if not (self._has_enough(donor) and self._has_enough(theirs)):
            return False
        if self._below_floor(taker, mine, head):
            return True
        return self._balances.of(theirs) > self._compared(mine, head) + self._policy.margin

    def _below_floor(self, leaf: int, mine: int, head: Head) -> bool:
        """Return whether a job only brings its account up to what it may hold at any time."""
        held, floors = self._index.held, self._floors
        if held[leaf] >= floors[leaf] or held[mine] >= floors[mine]:
            return False
        return held[leaf] + self._index.weight(head) <= self._index.shares[leaf] * self._index.capacity

    def _compared(self, mine: int, head: Head) -> float:
        """Return the requester's balance for the comparison, entry charge included."""
        charge = self._specs[head.row].min_runtime * self._index.weight(head)
        return self._balances.with_entry(mine, charge)

    def _request(self, head: Head) -> Request:
        loose = self._index.loose
        return Request(head.gpus, head.per_node, loose.node_size(head.model), loose.nodes_of(head.model))
