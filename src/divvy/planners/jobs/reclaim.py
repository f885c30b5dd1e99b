"""What an account may take back from others, or from itself, and why it may not.

A run of another account may be preempted if all of this holds:

- it is past its minimum runtime (interruptible);
- its account, and its side where the two paths part, have had at least what they are entitled to (unless
  the policy says otherwise), and stay at or above their floor;
- its side is more over-served than the requester's by the margin, the requester's entry charge included;
  a requester below its floor needs no such comparison, up to its share of what is there now.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from divvy.fleet.decision import Placement, Wait
from divvy.fleet.price import entry_charge
from divvy.fleet.reason import Reason
from divvy.fleet.snapshot import Snapshot
from divvy.planners.jobs.balance import Balances
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


class _Side(NamedTuple):
    """An account from which a requester may take, and how.

    Attributes:
        donor: The account.
        guards: Tree rows that must stay at or above their floor.
        room: Weight that may be taken before one of them falls to its floor.
        over: Balance of the donor's side where the paths part.
        mine: Tree row of the requester's side there.
    """

    donor: Account
    guards: tuple[int, ...]
    room: float
    over: float
    mine: int


class _Claim:
    """What an account could take at best, whatever its job: an upper bound that most jobs fail already."""

    __slots__ = ("room", "searches", "sides", "states")

    def __init__(self, sides: list[_Side], held: list[int]) -> None:
        self.sides = sides
        #: Everything about the donors on which the outcome of a search depends, bands apart.
        self.states = frozenset(
            (side.donor.row, side.donor.version, *(held[row] for row in side.guards)) for side in sides
        )
        self.room = sum(side.room for side in sides)
        self.searches: dict[tuple[int, ...], VictimSearch] = {}


class Reclaim:
    """Answers for one pass; reads the index, changes nothing but the memory of what was in vain.

    Args:
        index: Holdings, tentative ones of this pass included.
        snapshot: Tree and policy.
        balances: Balances of this pass.
        floors: Weight per tree row below which nobody is pushed.
        now: Time of the pass.
    """

    def __init__(
        self, index: JobIndex, snapshot: Snapshot, balances: Balances, floors: list[float], now: int
    ) -> None:
        self._index = index
        self._tree = snapshot.tree
        self._policy = snapshot.policy
        self._specs = snapshot.jobs.spec
        self._queued = snapshot.jobs.queued
        self._now = now
        self._balances = balances
        self._floors = floors
        self._donors: list[Account] | None = None
        self._most: float | None = None
        self._above: dict[int, float] | None = None
        self._guarded: list[tuple[float, int, int]] | None = None
        self._claims: dict[int, _Claim] = {}
        #: Whether a search failed among fewer donors than there are, for balances that may soon differ.
        self.narrowed = False

    def states(self, account: Account) -> frozenset[tuple[int, ...]]:
        """Return the donors of an account with all that the outcome of a search depends on."""
        return self._claim(account).states if self.donors() else frozenset()

    def holdings_changed(self) -> None:
        """Forget what was found out so far: runs came or went."""
        self._donors = None
        self._most = None
        self._above = None
        self._guarded = None
        self._claims.clear()

    def donors(self) -> list[Account]:
        """Return the accounts from which anybody at all could take something now."""
        if self._donors is None:
            held, floors = self._index.held, self._floors
            self._donors = [
                account
                for account in self._index.accounts.values()
                if account.interruptible
                and held[account.row] > floors[account.row]
                and self.has_enough(account.row)
            ]
        return self._donors

    def has_enough(self, row: int) -> bool:
        """Return whether a row has had what it is owed, or the policy does not ask."""
        return self._policy.reclaim_from_owed or self._balances.of(row) >= 1.0

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
        claim = self._claim(account)
        index = self._index
        if not claim.sides or index.weight(head) > claim.room + index.loose_weight():
            return None
        shape = (account.row, head.gpus, head.per_node, head.model, avoid, self._waited_long(head))
        vain = index.in_vain.get(shape)
        if vain is not None and vain[0] == index.loose_key() and claim.states <= vain[1]:
            return None
        sides = [side for side in claim.sides if self._eligible(account, side, head)]
        found = self._search(claim, sides).find(self._request(head, avoid)) if sides else None
        if found is None:
            if len(sides) == len(claim.sides):
                index.in_vain[shape] = (index.loose_key(), claim.states)
            else:
                self.narrowed = True
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
        return self._balances.of(row) < 1.0 - self._policy.margin

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
        balance = self._balances.of(account.row)
        victims = [
            (run, Reason.PREEMPTED_SWAP if run.allocated else Reason.PREEMPTED_UNALLOCATED, balance, balance)
            for run in runs
        ]
        return Taken(placement, victims, Reason.STARTED_BY_SWAP, protected=balance < 1.0)

    def may_take(self, account: Account) -> bool:
        """Return whether an account could take anything from anybody, whatever its job."""
        return bool(self.donors()) and bool(self._claim(account).sides)

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
        sides = [side for side in self._claim(account).sides if self._eligible(account, side, head)]
        reclaimable = sum(side.donor.interruptible_gpus for side in sides)
        protected = self._protected(account)
        if index.free.node_size(head.model) == 0:
            reason = Reason.WAIT_MODEL
        elif needed > index.gpus_of(head.model):
            reason = Reason.WAIT_TOO_LARGE
        elif loose + reclaimable >= needed:
            reason = Reason.WAIT_SHAPE if patient or loose >= needed else Reason.WAIT_PATIENCE
        elif loose + reclaimable + protected >= needed:
            reason = Reason.WAIT_PROTECTED
        elif self._balances.of(account.row) > 1.0:
            reason = Reason.WAIT_OVERSERVED
        else:
            reason = Reason.WAIT_CAPACITY
        return Wait(reason, needed, free, reclaimable, protected, first)

    def _protected(self, account: Account) -> int:
        """Return the protected devices of accounts from which an account could take once they are not.

        Judged at the leaves, which is what people see; where paths part higher up the rules are stricter.
        """
        if self._guarded is None:
            held, floors = self._index.held, self._floors
            self._guarded = [
                (self._balances.of(row), other.gpus - other.interruptible_gpus, row)
                for row, other in self._index.accounts.items()
                if other.gpus > other.interruptible_gpus and held[row] > floors[row] and self.has_enough(row)
            ]
        least = self._balances.of(account.row) + self._policy.margin
        if self._index.held[account.row] < self._floors[account.row]:
            least = 0.0
        return sum(gpus for balance, gpus, row in self._guarded if balance >= least and row != account.row)

    # -- the rules --------------------------------------------------------------------------------------

    def _claim(self, account: Account) -> _Claim:
        """Return from whom an account may take at all, the entry charge of a job left out."""
        claim = self._claims.get(account.row)
        if claim is None:
            sides: list[_Side] = []
            if self._may_have_sides(account):
                sides = [side for donor in self.donors() if (side := self._side(account, donor)) is not None]
            claim = self._claims[account.row] = _Claim(sides, self._index.held)
        return claim

    def _may_have_sides(self, account: Account) -> bool:
        """Return quickly whether anybody could be over-served enough; an upper bound, rarely reached."""
        held, floors, of = self._index.held, self._floors, self._balances.of
        if held[account.row] < floors[account.row]:
            return True
        lineage = self._tree.lineage
        if self._most is None:
            self._most = max((of(row) for donor in self.donors() for row in lineage[donor.row]), default=0.0)
        return self._most > min(of(row) for row in lineage[account.row]) + self._policy.margin

    def _side(self, account: Account, donor: Account) -> _Side | None:
        if donor is account:
            return None
        mine, theirs = self._index.parting(account.row, donor.row)
        held, floors = self._index.held, self._floors
        room = held[donor.row] - floors[donor.row]
        guards: tuple[int, ...] = (donor.row,)
        if theirs != donor.row:
            guards = (donor.row, theirs)
            room = min(room, held[theirs] - floors[theirs])
            if room <= 0 or not self.has_enough(theirs):
                return None
        over = self._balances.of(theirs)
        below = held[account.row] < floors[account.row] and held[mine] < floors[mine]
        if not below and over <= self._balances.of(mine) + self._policy.margin:
            return None
        return _Side(donor, guards, room, over, mine)

    def _eligible(self, account: Account, side: _Side, head: Head) -> bool:
        """Return whether a side may be taken from for this very job."""
        if side.over > self._compared(side.mine, head) + self._policy.margin:
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

    def _search(self, claim: _Claim, sides: list[_Side]) -> VictimSearch:
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
