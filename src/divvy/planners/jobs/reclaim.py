"""What an account may take back from others, or from itself, and why it may not.

A run of another account may be preempted if all of this holds:

- it is past its minimum runtime (interruptible);
- its account, and its side where the two paths part, have had at least what they are entitled to (unless
  the policy says otherwise), and stay at or above their floor;
- the requester, and its side, have had less than they are entitled to, and its side is less served than
  the run's by the margin, the requester's entry charge included; a requester below its floor needs no such
  comparison, up to its share of what is there now.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, NamedTuple

from divvy.fleet.decision import Placement, Wait
from divvy.fleet.price import entry_charge
from divvy.fleet.reason import Reason
from divvy.fleet.snapshot import Snapshot
from divvy.planners.jobs.claims import Claim, Claims, Side
from divvy.planners.jobs.holdings import Account, Run
from divvy.planners.jobs.index import JobIndex
from divvy.planners.jobs.queue import Head, Rank
from divvy.planners.jobs.victims import UNBOUNDED, Candidate, Request, VictimSearch
from divvy.units import HOUR

#: Wait after which a job may evict more than twice the devices that it needs.
LONG_WAIT: Final = HOUR


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


class _Guarded:
    """Protected devices of accounts by balance, so that each of many waiting jobs need not add them up."""

    def __init__(self, entries: Iterable[tuple[float, int, int]]) -> None:
        ordered = sorted(entries, reverse=True)
        self._balances = [-balance for balance, _, _ in ordered]
        self._sums = [0, *accumulate(gpus for _, gpus, _ in ordered)]
        self._own = {row: (balance, gpus) for balance, gpus, row in ordered}

    def at_least(self, least: float, row: int) -> int:
        """Return the devices of the accounts whose balance is so high, those of one row left out."""
        balance, gpus = self._own.get(row, (least, 0))
        return self._sums[bisect_right(self._balances, -least)] - (gpus if balance >= least else 0)


class Reclaim:
    """Answers on an index as it stands; changes nothing but memories, its own and that of what fits nowhere.

    Args:
        index: Holdings, tentative ones of the pass included.
    """

    def __init__(self, index: JobIndex) -> None:
        self._index = index
        self._claims = Claims(index)
        self._above: dict[int, float] | None = None
        self._guarded: _Guarded | None = None

    def begin(self, snapshot: Snapshot, now: int) -> None:
        """Begin a pass."""
        self._policy = snapshot.policy
        self._specs = snapshot.jobs.spec
        self._queued = snapshot.jobs.queued
        self._now = now
        self._balances = self._index.balances
        self._floors = self._index.floors
        self._claims.begin(snapshot)
        self._above = self._guarded = None

    def catch_up(self) -> None:
        """Take in what the pass changed in the index; call after every decision."""
        if self._claims.catch_up():
            self._above = self._guarded = None

    def hopeless(self, account: Account) -> bool:
        """Return whether it is known that no job of an account fits anywhere, whoever gives way."""
        index, rows = self._index, self._claims.of(account).rows
        return index.reach.still_excludes(account.row, rows, account.queue.version, index.loose)

    def note_hopeless(self, account: Account, heads: list[Head]) -> None:
        """Remember that each of an account's first jobs has been excluded."""
        reach, loose = self._index.reach, self._index.loose
        least = min([reach.needs(head, loose) for head in heads])
        reach.note(account.row, self._claims.of(account).rows, account.queue.version, least)

    def excludes(self, account: Account, head: Head) -> bool:
        """Return whether a job certainly fits nowhere now, whoever gives way."""
        index, rows = self._index, self._claims.of(account).rows
        if self.may_swap(account, head.rank):
            rows |= 1 << account.row
        return index.reach.excludes(account.row, head, rows, index)

    def has_enough(self, row: int) -> bool:
        """Return whether a row has had what it is owed, or the policy does not ask."""
        return self._claims.has_enough(row)

    def over_unallocated(self, head: Head, avoid: int) -> Placement | None:
        """Return where a job fits if unallocated runs leave: the node where the fewest must."""
        index = self._index
        if index.loose.total == index.free.total:
            return None
        request = self._request(head, avoid)
        if len(request.demands()) != 1:
            return index.loose.find(head.gpus, head.per_node, head.model, avoid)
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

    def from_others(self, account: Account, head: Head, avoid: int) -> Taken | None:
        """Return room made by more over-served accounts, or None."""
        claim = self._claims.of(account)
        index = self._index
        if not claim.sides or index.weight(head) > claim.room + index.loose_weight():
            return None
        sides = [side for _, side in sorted(claim.sides.items()) if self._eligible(account, side, head)]
        found = self._search(claim, sides).find(self._request(head, avoid)) if sides else None
        if found is None:
            return None
        placement, runs = found
        balances = {side.donor.row: (side.over, self._compared(side.mine, head)) for side in sides}
        victims = [
            (run, Reason.PREEMPTED_RECLAIM, *balances[run.account])
            if run.allocated
            else (run, Reason.PREEMPTED_UNALLOCATED, 0.0, 0.0)
            for run in runs
        ]
        return Taken(placement, victims, Reason.STARTED_BY_RECLAIM, protected=True)

    def has_claim(self, account: Account) -> bool:
        """Return whether an account is owed enough to hold a dated slot."""
        row = account.row
        if self._index.held[row] < self._floors[row]:
            return True
        return self._balances.of[row] < 1.0 - self._policy.margin

    def above_floors(self, account: Account) -> float:
        """Return the weight that the other accounts that have had enough hold above their floors."""
        if self._above is None:
            held, floors = self._index.held, self._floors
            self._above = {
                row: held[row] - floors[row]
                for row in self._index.accounts
                if held[row] > floors[row] and self.has_enough(row)
            }
        return sum(self._above.values()) - self._above.get(account.row, 0.0)

    def guards(
        self, account: Account, run: Run, spare: dict[int, float], *, anyway: bool = False
    ) -> tuple[int, ...] | None:
        """Return the rows that guard a run against a dated slot, None if the slot may not take it.

        Args:
            account: The account that has the slot.
            run: The run on its devices.
            spare: Filled with the weight above the floor of every row returned.
            anyway: Whether the run accepted the slot's date when it began.
        """
        if run.account == account.row:
            return () if anyway else None
        _, theirs = self._index.parting(account.row, run.account)
        rows = (run.account,) if theirs == run.account else (run.account, theirs)
        if not anyway and not all(self.has_enough(row) for row in rows):
            return None
        for row in rows:
            spare[row] = self._index.held[row] - self._floors[row]
        return rows

    def own_swap(self, account: Account, head: Head, avoid: int) -> Taken | None:
        """Return room made by the account's own interruptible runs that rank behind a job, or None.

        If the account is over-served the newcomer inherits the lack of protection, so that swaps cannot
        be chained into a fortress.
        """
        if not self.may_swap(account, head.rank):
            return None
        candidates = [Candidate(run, 0, ()) for run in account.interruptible.values() if run.rank > head.rank]
        found = VictimSearch(self._index, candidates, {}).find(self._request(head, avoid))
        if found is None:
            return None
        placement, runs = found
        balance = self._balances.of[account.row]
        victims = [
            (run, Reason.PREEMPTED_SWAP if run.allocated else Reason.PREEMPTED_UNALLOCATED, balance, balance)
            for run in runs
        ]
        return Taken(placement, victims, Reason.STARTED_BY_SWAP, protected=balance < 1.0)

    def may_take(self, account: Account) -> bool:
        """Return whether an account could take anything from anybody, whatever its job."""
        return bool(self._claims.donors) and bool(self._claims.of(account).sides)

    @staticmethod
    def may_swap(account: Account, rank: Rank | None) -> bool:
        """Return whether an account holds anything interruptible that ranks behind a job."""
        ranks = account.interruptible_ranks
        return bool(ranks) and rank is not None and max(ranks) > rank

    def why_not(self, account: Account, head: Head, first: int, *, patient: bool) -> Wait:
        """Return why a job that was tried could not be started.

        Args:
            account: Its account.
            head: The job.
            first: The account ahead of all.
            patient: Whether it has waited as long as it must before it may take devices back.
        """
        index = self._index
        free, loose, needed = index.free.total, index.loose.total, head.gpus
        sides = [
            side for side in self._claims.of(account).sides.values() if self._eligible(account, side, head)
        ]
        # What lies under a floor cannot be taken, interruptible or not.
        unit = max(index.weight(head) // needed, 1)
        reclaimable = sum(min(side.donor.interruptible_gpus, int(side.room) // unit) for side in sides)
        protected = self._protected(account)
        if index.free.node_size(head.model) == 0:
            reason = Reason.WAIT_MODEL
        elif needed > index.gpus_of(head.model):
            reason = Reason.WAIT_TOO_LARGE
        elif loose + reclaimable >= needed:
            reason = Reason.WAIT_SHAPE if patient or loose >= needed else Reason.WAIT_PATIENCE
        elif index.weight(head) > index.capacity - self._kept(account):
            reason = Reason.WAIT_FLOORS
        elif loose + reclaimable + protected >= needed:
            reason = Reason.WAIT_PROTECTED
        elif self._balances.of[account.row] > 1.0:
            reason = Reason.WAIT_OVERSERVED
        else:
            reason = Reason.WAIT_CAPACITY
        return Wait(reason, needed, free, reclaimable, protected, first)

    def _kept(self, account: Account) -> float:
        """Return the weight that other accounts hold within their floors: nobody may take it."""
        held, floors = self._index.held, self._floors
        return sum([min(held[row], floors[row]) for row in self._index.accounts if row != account.row])

    def _protected(self, account: Account) -> int:
        """Return the protected devices of accounts from which an account could take once they are not.

        Judged at the leaves, which is what people see; where paths part higher up the rules are stricter.
        """
        if self._guarded is None:
            held, floors = self._index.held, self._floors
            self._guarded = _Guarded(
                (self._balances.of[row], other.gpus - other.interruptible_gpus, row)
                for row, other in self._index.accounts.items()
                if other.gpus > other.interruptible_gpus and held[row] > floors[row] and self.has_enough(row)
            )
        balance = self._balances.of[account.row]
        if self._index.held[account.row] < self._floors[account.row]:
            least = 0.0
        elif balance < 1.0:
            least = balance + self._policy.margin
        else:
            return 0  # it has had its share, and takes nothing back
        return self._guarded.at_least(least, account.row)

    # -- the rules --------------------------------------------------------------------------------------

    def _eligible(self, account: Account, side: Side, head: Head) -> bool:
        """Return whether a side may be taken from for this very job."""
        owed = self._claims.is_owed(account, side.mine)
        if owed and side.over > self._compared(side.mine, head) + self._policy.margin:
            return True
        held, floors, index = self._index.held, self._floors, self._index
        if held[account.row] >= floors[account.row] or held[side.mine] >= floors[side.mine]:
            return False
        return held[account.row] + index.weight(head) <= index.shares[account.row] * index.capacity

    def _compared(self, mine: int, head: Head) -> float:
        """Return the requester's balance for the comparison, entry charge included."""
        price, min_runtime = self._policy.protection_price, self._specs[head.row].min_runtime
        charge = entry_charge(price, min_runtime, self._index.weight(head))
        return self._balances.with_entry(mine, charge)

    def _search(self, claim: Claim, sides: list[Side]) -> VictimSearch:
        key = tuple(side.donor.row for side in sides)
        search = claim.searches.get(key)
        if search is None:
            band = self._policy.band
            spare = {row: self._index.held[row] - self._floors[row] for side in sides for row in side.guards}
            candidates = [
                Candidate(run, int(min(side.over, 1e6) / band) if band > 0 else 0, side.guards)
                for side in sides
                for run in side.donor.interruptible.values()
                if run.weight <= side.room
            ]
            search = claim.searches[key] = VictimSearch(self._index, candidates, spare)
        return search

    def _request(self, head: Head, avoid: int) -> Request:
        loose = self._index.loose
        allowed = loose.nodes_of(head.model) & ~avoid
        surplus = UNBOUNDED if self._waited_long(head) else head.gpus
        return Request(head.gpus, head.per_node, loose.node_size(head.model), allowed, surplus)

    def _waited_long(self, head: Head) -> bool:
        """Return whether a job waits so long already that it may evict more than twice what it needs."""
        return self._now - self._queued[head.row] >= LONG_WAIT
