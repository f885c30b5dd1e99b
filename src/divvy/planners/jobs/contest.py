"""Who goes first, down the account tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heapreplace

from divvy.fleet.account import ROOT, AccountTree

Key = tuple[bool, float, int]


class Contest:
    """A tournament between leaves: at each level the child with the least key wins.

    Keys are read through ``key`` and kept until somebody says that a leaf has moved.
    """

    __slots__ = ("_heaps", "_key", "_tree")

    def __init__(self, tree: AccountTree, leaves: Iterable[int], key: Callable[[int], Key]) -> None:
        self._tree = tree
        self._key = key
        heaps: dict[int, list[Key]] = {}
        entered: set[int] = set()
        for leaf in leaves:
            row = leaf
            while row != ROOT and row not in entered:
                entered.add(row)
                heaps.setdefault(tree.parent[row], []).append(key(row))
                row = tree.parent[row]
        for heap in heaps.values():
            heapify(heap)
        self._heaps = heaps

    def first(self) -> int | None:
        """Return the leaf that goes first, None when all are closed."""
        heaps = self._heaps
        if not heaps.get(ROOT):
            return None
        row = heaps[ROOT][0][2]
        while row in heaps:
            row = heaps[row][0][2]
        return row

    def moved(self, leaf: int) -> None:
        """Read the keys of the leaf that goes first again, on its whole path."""
        for row in self._tree.lineage[leaf]:
            heapreplace(self._heaps[self._tree.parent[row]], self._key(row))

    def close(self, leaf: int) -> None:
        """Take the leaf that goes first out of the contest."""
        for row in reversed(self._tree.lineage[leaf]):
            heap = self._heaps[self._tree.parent[row]]
            heappop(heap)
            if heap:
                break
            del self._heaps[self._tree.parent[row]]
