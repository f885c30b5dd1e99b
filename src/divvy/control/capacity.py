"""What of a node counts as capacity: what can be given to anybody, or is held.

A draining node takes no work, so a device of it that nobody holds is not there for anybody: it raises no
floor, entitles nobody and is owed to nobody. What still runs there is charged, and counts until it has left.
"""

from __future__ import annotations

from collections.abc import Iterable

from divvy.fleet.decision import Placement
from divvy.fleet.job import Phase
from divvy.fleet.node import Node, NodeState
from divvy.fleet.snapshot import Snapshot

_HOLDS = (Phase.PLACED, Phase.RUNNING, Phase.STOPPING)


def counted(node: Node, held: int) -> int:
    """Return the devices of a node that count, of which runs hold some."""
    if node.state is NodeState.DRAINING:
        return min(held, node.gpus)
    return 0 if node.state is NodeState.DOWN else node.gpus


def held_on(snapshot: Snapshot, row: int, phases: Iterable[Phase] = _HOLDS) -> int:
    """Return the devices of a node that runs in some phases hold."""
    jobs = snapshot.jobs
    return sum(
        gpus
        for job in jobs.live
        if jobs.phase[job] in phases
        for place, gpus in jobs.placement[job]
        if place == row
    )


def recount(snapshot: Snapshot, row: int, at: int, before: int) -> bool:
    """Bring the capacity to what counts of a node now; return whether that changed.

    Args:
        snapshot: Changed.
        row: The node.
        at: Time, ms.
        before: Weight of its devices that counted until now.
    """
    nodes = snapshot.nodes
    node = nodes.node[row]
    there = counted(node, held_on(snapshot, row) if node.state is NodeState.DRAINING else 0)
    nodes.there[row] = there
    if there * node.weight == before:
        return False
    snapshot.capacity.add(at, there * node.weight - before)
    return True


def leave(snapshot: Snapshot, placement: Placement, at: int) -> list[int]:
    """Recount the draining nodes of a run that came or left; return those that changed."""
    nodes = snapshot.nodes
    return [
        row
        for row, _ in placement
        if nodes.node[row].state is NodeState.DRAINING
        and recount(snapshot, row, at, nodes.there[row] * nodes.node[row].weight)
    ]
