"""Where a gang goes: best fit on single nodes, whole nodes for large gangs.

Nodes are kept in bit sets by the number of free devices, so that "the fullest node that still has g" is
a few machine words, also on thousands of nodes, and the answer does not depend on history: among equals
the lowest row wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from divvy.fleet.decision import Placement
from divvy.fleet.node import Node, NodeState


class FreeMap:
    """Free devices per node, indexed for placement.

    Rules (a gang is placed whole or not at all):

    - With ``per_node`` = p, a gang of g takes p devices on each of g / p nodes.
    - Else a gang that fits the largest node of its model goes to one node: the one that is left with the
      fewest free devices, so that whole nodes stay free.
    - A larger gang takes whole nodes and puts the remainder on one more by best fit; it stays inside one
      domain where one has room, the domain with the least room to spare.
    """

    __slots__ = ("_domains", "_largest", "_models", "_present", "_sets", "_sizes", "_up", "free", "total")

    def __init__(self, nodes: Sequence[Node] = (), free: Sequence[int] = ()) -> None:
        self.free: list[int] = []
        self.total = 0
        self._sets: list[int] = []
        self._present = 0
        self._models: dict[str, int] = {}
        self._sizes: dict[int, int] = {}
        self._domains: dict[str, int] = {}
        self._up = 0
        self._largest: dict[str, int] = {}
        for row, node in enumerate(nodes):
            self.set_node(row, node, free[row])

    def set_node(self, row: int, node: Node, free: int) -> None:
        """Put a node into the map, or change its size, model, domain or health."""
        bit = 1 << row
        self._largest.clear()
        for kind in (self._models, self._sizes, self._domains):
            for key in kind:
                kind[key] &= ~bit  # type: ignore[index]
        self._models[node.model] = self._models.get(node.model, 0) | bit
        self._sizes[node.gpus] = self._sizes.get(node.gpus, 0) | bit
        if node.domain:
            self._domains[node.domain] = self._domains.get(node.domain, 0) | bit
        self._up = self._up | bit if node.state is NodeState.UP else self._up & ~bit
        while len(self.free) <= row:
            self.free.append(0)
        self.set_free(row, free)

    def set_free(self, row: int, free: int) -> None:
        """Set the free devices of a node; a negative number (a node that shrank) counts as none."""
        free = max(free, 0)
        old = self.free[row]
        bit = 1 << row
        if old:
            self._sets[old] &= ~bit
            if not self._sets[old]:
                self._present &= ~(1 << old)
        while len(self._sets) <= free:
            self._sets.append(0)
        if free:
            self._sets[free] |= bit
            self._present |= 1 << free
        self.free[row] = free
        self.total += free - old

    def take(self, placement: Placement) -> None:
        """Remove devices from the free ones."""
        for row, gpus in placement:
            self.set_free(row, self.free[row] - gpus)

    def largest(self) -> int:
        """Return the most devices that are free on any one node."""
        return self._present.bit_length() - 1 if self._present else 0

    def at_least(self, gpus: int) -> int:
        """Return the bit set of nodes with so many free devices or more, one at least."""
        nodes = 0
        for free in range(max(gpus, 1), len(self._sets)):
            nodes |= self._sets[free]
        return nodes

    def nodes_of(self, model: str) -> int:
        """Return the bit set of nodes in service that have a device model; empty means any."""
        return self._models.get(model, 0) & self._up if model else self._up

    def node_size(self, model: str) -> int:
        """Return the devices of the largest node in service with a model, 0 where there is none."""
        known = self._largest.get(model)
        if known is None:
            allowed = self.nodes_of(model)
            known = max((size for size, nodes in self._sizes.items() if nodes & allowed), default=0)
            self._largest[model] = known
        return known

    def find(self, gpus: int, per_node: int = 0, model: str = "", avoid: int = 0) -> Placement | None:
        """Return where a gang fits now, or None; ``avoid`` is a bit set of nodes to leave alone."""
        if gpus > self.total:
            return None
        allowed = self.nodes_of(model) & ~avoid
        if per_node and per_node < gpus:
            return self._spread(gpus, per_node, allowed)
        if gpus <= self.largest():
            row = self._best_fit(gpus, allowed)
            if row >= 0:
                return ((row, gpus),)
        size = self.node_size(model)
        return self._whole_nodes(gpus, size, allowed) if 0 < size < gpus else None

    def _best_fit(self, gpus: int, allowed: int) -> int:
        counts = self._present >> gpus << gpus
        while counts:
            low = counts & -counts
            nodes = self._sets[low.bit_length() - 1] & allowed
            if nodes:
                return (nodes & -nodes).bit_length() - 1
            counts ^= low
        return -1

    def _spread(self, gpus: int, per_node: int, allowed: int) -> Placement | None:
        if gpus % per_node:
            return None
        rows: list[int] = []
        counts = self._present >> per_node << per_node
        while counts and len(rows) < gpus // per_node:
            low = counts & -counts
            rows += _bits(self._sets[low.bit_length() - 1] & allowed, gpus // per_node - len(rows))
            counts ^= low
        if len(rows) < gpus // per_node:
            return None
        return tuple((row, per_node) for row in sorted(rows))

    def _whole_nodes(self, gpus: int, size: int, allowed: int) -> Placement | None:
        if size >= len(self._sets):
            return None
        count, rest = divmod(gpus, size)
        whole = self._sets[size] & self._sizes[size] & allowed
        needed = count + (1 if rest else 0)
        inside = [
            (room, domain)
            for domain, nodes in self._domains.items()
            if (room := (whole & nodes).bit_count()) >= needed
        ]
        if inside:
            whole &= self._domains[min(inside)[1]]
        if whole.bit_count() < count:
            return None
        rows = _bits(whole, count)
        if not rest:
            return tuple((row, size) for row in rows)
        used = sum(1 << row for row in rows)
        last = self._best_fit(rest, allowed & ~used)
        if last < 0:
            return None
        return tuple(sorted([*((row, size) for row in rows), (last, rest)]))


def demands(gpus: int, per_node: int, size: int) -> list[int]:
    """Return the devices a gang needs per node, largest first; nothing if no node would do.

    Args:
        gpus: Devices of the gang.
        per_node: Devices on each node, 0 for the planner's choice.
        size: Devices of the largest node.
    """
    if size == 0:
        return []
    if per_node and per_node < gpus:
        return [per_node] * (gpus // per_node)
    if gpus <= size:
        return [gpus]
    whole, rest = divmod(gpus, size)
    return [size] * whole + ([rest] if rest else [])


def each_bit(rows: int) -> Iterator[int]:
    """Yield the rows of a bit set, the lowest first."""
    while rows:
        low = rows & -rows
        yield low.bit_length() - 1
        rows ^= low


def _bits(nodes: int, count: int) -> list[int]:
    """Return the lowest rows of a bit set, at most ``count`` of them."""
    rows: list[int] = []
    while nodes and len(rows) < count:
        low = nodes & -nodes
        rows.append(low.bit_length() - 1)
        nodes ^= low
    return rows
