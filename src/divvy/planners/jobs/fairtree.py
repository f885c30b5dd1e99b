"""Slurm's Fair Tree: decayed usage per association, and the order that follows from it.

Source: slurm.schedmd.com/fair_tree.html and priority_multifactor.html. Among the children of an account
the level fair share is LF = S / U, S the child's part of its siblings' shares, U its part of their usage.
The tree is walked by falling LF; users get the factor rank / associations in the order in which they are
met. Children of accounts that tie are sorted together, and users who tie get the same rank.

Usage halves every half-life. It is kept as a sum in units that grow by the same factor, so that nothing
has to be decayed, and powers of two are applied exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from divvy.fleet.account import AccountTree

_REBASE: Final = 256
Floats = NDArray[np.float64]


class DecayedUsage:
    """Device-time per association, halved every half-life.

    An association is an author in an account. Rates are devices; times are ms and do not fall.
    """

    __slots__ = ("_base", "_half_life", "_rate", "_since", "_sum")

    def __init__(self, half_life: int) -> None:
        self._half_life = half_life
        self._base = -1
        self._sum: Floats = np.zeros(0)
        self._rate: Floats = np.zeros(0)
        self._since: Floats = np.zeros(0)

    def __len__(self) -> int:
        """Return the number of associations."""
        return len(self._sum)

    def grow(self) -> int:
        """Add an association without usage and return its number."""
        self._sum, self._rate, self._since = (
            np.append(column, 0.0) for column in (self._sum, self._rate, self._since)
        )
        return len(self._sum) - 1

    def change(self, association: int, at: int, devices: int) -> None:
        """Let an association use more (or, negative, fewer) devices from an instant on."""
        weight = self._weight(at)
        self._sum[association] += self._rate[association] * (weight - self._since[association])
        self._rate[association] += devices
        self._since[association] = weight

    def at(self, instant: int) -> Floats:
        """Return the usage of every association at an instant, in units that only this object knows."""
        usage: Floats = self._sum + self._rate * (self._weight(instant) - self._since)
        return usage

    def _weight(self, at: int) -> float:
        """Return 2 to the power of the half-lives since the base; rebased by exact powers of two."""
        whole, rest = divmod(at, self._half_life)
        if self._base < 0:
            self._base = whole
        if whole - self._base > _REBASE:
            shift = whole - self._base
            self._sum = np.ldexp(self._sum, -shift)
            self._since = np.ldexp(self._since, -shift)
            self._base = whole
        return math.ldexp(2.0 ** (rest / self._half_life), whole - self._base)


class FairTree:
    """The walk over one account tree.

    Args:
        tree: Accounts and shares.
    """

    def __init__(self, tree: AccountTree) -> None:
        self._parent = np.array([max(parent, 0) for parent in tree.parent])
        self._levels = [
            np.array([row for row in range(len(tree)) if tree.depth[row] == depth])
            for depth in range(max(tree.depth) + 1)
        ]
        raw = np.array([0.0, *(float(spec.share) for spec in tree.specs)])
        sums = np.bincount(self._parent[1:], raw[1:], minlength=len(tree))
        self._share = np.divide(
            raw, sums[self._parent], out=np.zeros(len(tree)), where=sums[self._parent] > 0
        )
        self._tree = tree
        self._rows = np.zeros((len(self._levels), 0), dtype=np.int64)
        self._depth = np.zeros(0, dtype=np.int64)

    def factors(self, leaves: Sequence[int], usage: Floats) -> Floats:
        """Return the fair-share factor of every association, from 1 (first) down to above 0.

        Args:
            leaves: Account of every association.
            usage: Its decayed usage.
        """
        count = len(leaves)
        account = np.asarray(leaves)
        used = np.bincount(account, usage, minlength=len(self._parent))
        for level in reversed(self._levels[1:]):
            np.add.at(used, self._parent[level], used[level])
        # U / S, so that the smallest goes first: no usage before any usage, no share after everybody.
        part = np.divide(used, used[self._parent], out=np.zeros(len(used)), where=used[self._parent] > 0)
        level_fs = np.divide(part, self._share, out=np.full(len(used), np.inf), where=self._share > 0)
        if len(self._depth) != count:  # associations are only ever added
            self._locate(leaves)
        users = np.bincount(account, minlength=len(used))
        whole = used[account]
        own = np.divide(usage * users[account], whole, out=np.zeros(count), where=whole > 0)
        # One key per level on the way down; a user stands where its account has its children, before an
        # account that ties with it.
        keys = np.where(self._rows < 0, -np.inf, level_fs[self._rows])
        keys[self._depth, np.arange(count)] = own
        order = np.lexsort(keys[::-1])
        changed = np.zeros(count, dtype=bool)
        for key in keys:
            ordered = key[order]
            changed[1:] |= ordered[1:] != ordered[:-1]
        first = np.maximum.accumulate(np.where(changed, np.arange(count), 0))
        factors = np.empty(count)
        factors[order] = (count - first) / count
        return factors

    def _locate(self, leaves: Sequence[int]) -> None:
        """Note the accounts above every association, level by level, -1 where there are no more."""
        self._depth = np.array([self._tree.depth[leaf] for leaf in leaves])
        self._rows = np.full((len(self._levels), len(leaves)), -1)
        for number, leaf in enumerate(leaves):
            lineage = self._tree.lineage[leaf]
            self._rows[: len(lineage), number] = lineage
