"""Limits on what an account, or one author in it, may hold at once.

A limit counts the devices of allocated runs of its account and of all accounts below. A job that would
exceed one waits, and the next of its account that does not is tried instead. Unallocated runs do not count:
they give way to everybody anyway.
"""

from __future__ import annotations

from typing import NamedTuple

from divvy.fleet.account import AccountTree
from divvy.planners.jobs.index import JobIndex


class Room(NamedTuple):
    """What a limit leaves.

    Attributes:
        gpus: Devices.
        row: Tree row of the account whose limit it is.
    """

    gpus: int
    row: int


class _Limit(NamedTuple):
    row: int
    leaves: tuple[int, ...]
    most: int | None
    author_most: int | None


class Limits:
    """The limits of one tree, per leaf; empty for a tree without any."""

    def __init__(self, tree: AccountTree) -> None:
        self.tree = tree
        limits: dict[int, _Limit] = {}
        for row, spec in enumerate(tree.specs, start=1):
            if spec.max_gpus is not None or spec.author_max_gpus is not None:
                leaves = tuple(leaf for leaf in tree.leaves if row in tree.lineage[leaf])
                limits[row] = _Limit(row, leaves, spec.max_gpus, spec.author_max_gpus)
        self._of = {
            leaf: found
            for leaf in tree.leaves
            if (found := [limits[row] for row in tree.lineage[leaf] if row in limits])
        }

    def __contains__(self, leaf: int) -> bool:
        """Return whether anything limits an account."""
        return leaf in self._of

    def room(self, index: JobIndex, leaf: int, author: str) -> Room | None:
        """Return what the tightest limit leaves to an author's jobs in an account; None: no limit."""
        tightest: Room | None = None
        for limit in self._of.get(leaf, ()):
            accounts = [index.accounts[row] for row in limit.leaves]
            left: list[int] = []
            if limit.most is not None:
                left.append(limit.most - sum(account.gpus for account in accounts))
            if limit.author_most is not None:
                left.append(
                    limit.author_most - sum(account.author_gpus.get(author, 0) for account in accounts)
                )
            room = Room(max(min(left), 0), limit.row)
            if tightest is None or room.gpus < tightest.gpus:
                tightest = room
        return tightest
