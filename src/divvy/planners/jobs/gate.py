"""Which waiting jobs may be tried at all: those within the limits, and not those that rest.

Where nothing limits an account and nothing rests, the heads of its queue pass as they are.
"""

from __future__ import annotations

from divvy.fleet.snapshot import Snapshot
from divvy.planners.jobs.holdings import NEVER, Account
from divvy.planners.jobs.index import JobIndex
from divvy.planners.jobs.limits import Limits, Room
from divvy.planners.jobs.queue import Head
from divvy.planners.jobs.resting import rests_until


class Gate:
    """The gate of one pass."""

    def __init__(self, limits: Limits, index: JobIndex, snapshot: Snapshot, now: int) -> None:
        self._limits = limits
        self._index = index
        self._snapshot = snapshot
        self._now = now
        self.wake = NEVER
        """When the first rest ends that kept a job out."""
        self.resting: list[Head] = []
        """Unallocated jobs of the account asked for last that rest and would be first of their shape."""
        self.barred: dict[int, Room] = {}
        """Per job that was first of its shape and would have exceeded a limit: what the limit left."""

    def heads(self, account: Account) -> list[Head]:
        """Return the first allocated job that may be tried of every shape of an account, in its order."""
        heads = self._index.heads(self._snapshot, account, self._now)
        if account.row not in self._limits:
            return heads
        spec = self._snapshot.jobs.spec
        for head in heads:
            room = self._limits.room(self._index, account.row, spec[head.row].author)
            if room is not None and room.gpus < head.gpus:
                self.barred[head.row] = room
        return account.queue.permitted(lambda author, gpus: self._within(account, author, gpus))

    def may(self, account: Account, row: int) -> bool:
        """Return whether the limits of its account allow a job to start now."""
        spec = self._snapshot.jobs.spec[row]
        return self._within(account, spec.author, spec.gpus)

    def spare_heads(self, account: Account) -> list[Head]:
        """Return the first unallocated job that does not rest of every shape of an account."""
        heads = self._index.spare_heads(account)
        self.resting = []
        if not self._snapshot.policy.unallocated_backoff:
            return heads
        self.resting = [head for head in heads if not self._awake(head.row)]
        if not self.resting:
            return heads
        return account.spare.permitted(lambda _author, _gpus: True, self._awake)

    def _within(self, account: Account, author: str, gpus: int) -> bool:
        room = self._limits.room(self._index, account.row, author)
        return room is None or room.gpus >= gpus

    def _awake(self, row: int) -> bool:
        until = rests_until(self._snapshot.jobs, row, self._snapshot.policy)
        if until <= self._now:
            return True
        self.wake = min(self.wake, until)
        return False
