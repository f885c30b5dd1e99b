"""From whom an account may take devices at all, kept between passes and mended after every move.

What an account may take depends on what all others hold. After a start or an end only the accounts that
share a top-level node with the one that moved are compared again; when balances are read anew, all are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from divvy.fleet.snapshot import Snapshot
from divvy.planners.jobs.holdings import Account
from divvy.planners.jobs.index import JobIndex
from divvy.planners.jobs.victims import VictimSearch

#: Donors that are compared again one by one; with more it is quicker to begin anew.
_FEW: Final = 8


class Side(NamedTuple):
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


class Claim:
    """What an account could take at best, whatever its job: an upper bound that most jobs fail already.

    Attributes:
        stamp: How many moves of the index it knows of.
        sides: From whom, by tree row.
        rows: The same as a bit set.
        room: Weight that they may lose in all.
        searches: Searches for victims among some of them, by their rows.
    """

    __slots__ = ("room", "rows", "searches", "sides", "stamp")

    def __init__(self, sides: dict[int, Side], stamp: int) -> None:
        self.stamp = stamp
        self.sides = sides
        self.rows = 0
        for row in sides:
            self.rows |= 1 << row
        self.room = sum([side.room for side in sides.values()])
        self.searches: dict[tuple[int, ...], VictimSearch] = {}


class Claims:
    """The claims of all accounts on an index as it stands.

    Args:
        index: Holdings, tentative ones of the pass included.

    Attributes:
        donors: The accounts from which anybody at all could take something now, by tree row.
    """

    def __init__(self, index: JobIndex) -> None:
        self._index = index
        self._epoch = -1
        self._seen = 0
        self._most: float | None = None
        self._claims: dict[int, Claim] = {}
        self.donors: dict[int, Account] = {}

    def begin(self, snapshot: Snapshot) -> None:
        """Begin a pass."""
        self._lineage = snapshot.tree.lineage
        self._policy = snapshot.policy
        self._balances = self._index.balances
        self._floors = self._index.floors
        self.catch_up()

    def catch_up(self) -> bool:
        """Forget what the moves of the index since the last call made untrue; return whether any did."""
        index = self._index
        if self._epoch != index.epoch:
            self._epoch = index.epoch
            self._claims.clear()
            self.donors.clear()
            moved: Iterable[int] = index.accounts
        elif self._seen < len(index.moved):
            moved = set(index.moved[self._seen :])
        else:
            return False
        self._seen = len(index.moved)
        self._most = None
        held, floors, donors = index.held, index.floors, self.donors
        for row in moved:
            account = index.accounts[row]
            if account.interruptible and held[row] > floors[row] and self.has_enough(row):
                donors[row] = account
            else:
                donors.pop(row, None)
        return True

    def has_enough(self, row: int) -> bool:
        """Return whether a row has had what it is owed, or the policy does not ask."""
        return self._policy.reclaim_from_owed or self._balances.of[row] >= 1.0

    def is_owed(self, account: Account, mine: int) -> bool:
        """Return whether an account and its side have had less than they are entitled to."""
        balance = self._balances.of
        return balance[account.row] < 1.0 and balance[mine] < 1.0

    def of(self, account: Account) -> Claim:
        """Return from whom an account may take at all, the entry charge of a job left out."""
        claim = self._claims.get(account.row)
        if claim is None:
            claim = self._claims[account.row] = self._whole(account)
        elif claim.stamp != self._seen:
            claim = self._claims[account.row] = self._mended(account, claim)
        return claim

    def _whole(self, account: Account) -> Claim:
        sides: dict[int, Side] = {}
        if self.donors and self._may_have_sides(account):
            for row, donor in self.donors.items():
                side = self._side(account, donor)
                if side is not None:
                    sides[row] = side
        return Claim(sides, self._seen)

    def _mended(self, account: Account, claim: Claim) -> Claim:
        """Compare again only with the accounts that share a top-level node with one that moved."""
        lineage = self._lineage
        tops = {lineage[row][0] for row in self._index.moved[claim.stamp :]}
        if lineage[account.row][0] in tops:
            return self._whole(account)
        again = [row for row in self.donors if lineage[row][0] in tops]
        if len(again) > _FEW:
            return self._whole(account)
        gone = [row for row in claim.sides if lineage[row][0] in tops]
        if not again and not gone:
            claim.stamp = self._seen
            return claim
        sides = claim.sides.copy()
        for row in gone:
            del sides[row]
        for row in again:
            side = self._side(account, self.donors[row])
            if side is not None:
                sides[row] = side
        return Claim(sides, self._seen)

    def _may_have_sides(self, account: Account) -> bool:
        """Return quickly whether anybody could be over-served enough; an upper bound, rarely reached."""
        held, floors, balance = self._index.held, self._floors, self._balances.of
        if held[account.row] < floors[account.row]:
            return True
        if balance[account.row] >= 1.0:
            return False
        lineage = self._lineage
        if self._most is None:
            self._most = max((balance[row] for donor in self.donors for row in lineage[donor]), default=0.0)
        return self._most > min([balance[row] for row in lineage[account.row]]) + self._policy.margin

    def _side(self, account: Account, donor: Account) -> Side | None:
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
        over = self._balances.of[theirs]
        below = held[account.row] < floors[account.row] and held[mine] < floors[mine]
        if not below and (
            not self.is_owed(account, mine) or over <= self._balances.of[mine] + self._policy.margin
        ):
            return None
        return Side(donor, guards, room, over, mine)
