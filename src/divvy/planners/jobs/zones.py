"""Several clusters under one tree: a gang stays inside one of them, and a job may ask for some of them."""

from __future__ import annotations

from collections.abc import Iterable

from divvy.fleet.node import Node

#: Where nothing is excluded: the whole of a fleet that is one cluster.
ANYWHERE = (0,)


class Zones:
    """The nodes of each cluster, as bit sets over their rows."""

    def __init__(self) -> None:
        self._nodes: dict[str, int] = {}
        self._all = 0

    def read(self, nodes: Iterable[Node]) -> None:
        """Read the clusters of the nodes anew."""
        self._nodes.clear()
        for row, node in enumerate(nodes):
            self._nodes[node.cluster] = self._nodes.get(node.cluster, 0) | 1 << row
        self._all = sum(self._nodes.values())

    def outside(self, clusters: tuple[str, ...]) -> tuple[int, ...]:
        """Return, per cluster where a job may run, the nodes outside it (a bit set); the job tries each."""
        if not clusters and len(self._nodes) <= 1:
            return ANYWHERE
        return tuple(self._all & ~self._nodes.get(name, 0) for name in clusters or sorted(self._nodes))
