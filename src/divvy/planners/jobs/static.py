"""`static`: every account has devices of its own that nobody else ever uses.

The documented rule, re-implemented: a partition or a reserved node group per team, such as a Slurm partition
with AllowAccounts (slurm.schedmd.com/slurm.conf.html) and EASY backfill inside (see `backfill`).

The devices of the fleet, node by node, are dealt to the leaf accounts in the order of the tree, to each its
share, cut at whole devices. What is not funded belongs to nobody. A node that is down is its owners' loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from divvy.fleet.account import AccountTree
from divvy.fleet.decision import Decision, Placement, Plan, Wait
from divvy.fleet.job import Phase
from divvy.fleet.node import Node, NodeState
from divvy.fleet.snapshot import Change, JobTable, NodeTable, Snapshot
from divvy.planners.base import Context
from divvy.planners.jobs.fifo import FifoPlanner


class StaticPlanner:
    """Plans every account alone on its own devices; see the module's text."""

    name = "static"

    def __init__(self) -> None:
        self._version = -1
        self._lanes: dict[int, _Lane] = {}
        self._proposed: list[int] = []

    def plan(self, snapshot: Snapshot, context: Context) -> Plan:
        """Return what starts now."""
        touched = self._follow(snapshot)
        decisions: list[Decision] = []
        waits: list[tuple[int, Wait]] = []
        room = list(snapshot.nodes.free)
        for leaf, lane in self._lanes.items():
            if leaf in touched:
                lane.refresh(room)
                made = lane.plan(replace(snapshot, nodes=lane.nodes), context)
                lane.said = made.waits
                decisions += made.decisions
                for decision in made.decisions:
                    for node, gpus in getattr(decision, "placement", ()):
                        room[node] -= gpus
            waits += lane.said
        self._proposed = [decision.job for decision in decisions]
        return Plan(snapshot.version, context.now, tuple(decisions), (), tuple(sorted(waits)))

    def _follow(self, snapshot: Snapshot) -> set[int]:
        """Bring the lanes up to the snapshot; return those that something happened to."""
        changes = snapshot.changes_since(self._version) if self._version >= 0 else None
        jobs = snapshot.jobs
        rows: Iterable[int]
        if changes is None or any(change is not Change.JOB for change, _ in changes):
            owned = partition(snapshot.tree, snapshot.nodes.node)
            self._lanes = {leaf: _Lane(leaf, owned[leaf], snapshot.nodes.node) for leaf in owned}
            rows = list(jobs.live)
            touched = set(self._lanes)
        else:
            rows = sorted({row for _, row in changes} | set(self._proposed))
            touched = {jobs.account[row] for row in rows}
        for row in rows:
            self._lanes[jobs.account[row]].sync(jobs, row)
        self._version = snapshot.version
        if any(lane.astray for lane in self._lanes.values()):
            return set(self._lanes)  # somebody still sits on what has changed hands
        return touched


def partition(tree: AccountTree, nodes: Sequence[Node]) -> dict[int, list[int]]:
    """Return the devices that every leaf owns on every node."""
    total = sum(node.gpus for node in nodes)
    owned: dict[int, list[int]] = {}
    share, first = tree.share[0] * 0, 0
    for leaf in tree.leaves:
        share += tree.share[leaf]
        last = int(share * total)
        start, mine = 0, []
        for node in nodes:
            mine.append(max(0, min(last, start + node.gpus) - max(first, start)))
            start += node.gpus
        owned[leaf], first = mine, last
    return owned


class _Lane(FifoPlanner):
    """First come, first served on the devices of one account."""

    def __init__(self, leaf: int, owned: Sequence[int], nodes: Sequence[Node]) -> None:
        super().__init__()
        self._leaf = leaf
        self._owned = owned
        self._used = [0] * len(owned)
        self._held: dict[int, Placement] = {}
        self._real = nodes
        self.nodes = NodeTable()
        self.nodes.node = [replace(node, gpus=mine) for node, mine in zip(nodes, owned, strict=True)]
        self.nodes.free = [0] * len(owned)
        self.said: tuple[tuple[int, Wait], ...] = ()

    @property
    def astray(self) -> bool:
        """Return whether it uses devices that it does not own (any more)."""
        return any(used > mine for used, mine in zip(self._used, self._owned, strict=True))

    def sync(self, jobs: JobTable, row: int) -> None:
        """Note what a job holds now."""
        for node, gpus in self._held.pop(row, ()):
            self._used[node] -= gpus
        if jobs.phase[row] in (Phase.PLACED, Phase.RUNNING):
            self._held[row] = jobs.placement[row]
            for node, gpus in jobs.placement[row]:
                self._used[node] += gpus

    def refresh(self, room: Sequence[int]) -> None:
        """Compute what is free of its own; never more than there really is."""
        self.nodes.free = [
            max(0, min(mine - used, free)) if node.state is NodeState.UP else 0
            for node, mine, used, free in zip(self._real, self._owned, self._used, room, strict=True)
        ]

    def _job(self, jobs: JobTable, row: int) -> None:
        if jobs.account[row] == self._leaf:
            super()._job(jobs, row)
