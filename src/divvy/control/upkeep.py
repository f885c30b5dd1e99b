"""Upkeep of nodes: what follows by itself from faults that were reported and maintenance that was announced.

A fault takes its node out of service: draining as protection ends, or, where it is fatal, down at once with
everything that runs there. A window of maintenance drains its node at its start. Both come back alone: a
fault when the node is reported well (or, where it was not fatal, when it has been quiet for as long as the
policy says), a window at its end. A node that somebody drained, or that its engine reports down, stays so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from divvy.fleet.event import Event, MaintenanceEnded, NodeChanged, NodeCleared, Stopping
from divvy.fleet.job import Phase, StopCause
from divvy.fleet.node import NodeState
from divvy.fleet.snapshot import Snapshot

_NEVER: Final = 1 << 62


def due(snapshot: Snapshot, now: int) -> Iterator[Event]:
    """Yield what follows now; each event is applied before the next one is made."""
    nodes = snapshot.nodes
    for row in sorted({*nodes.window, *nodes.fault}):
        # What ends one reason to be out of service may let the other come to light, whichever it is.
        yield from _fault(snapshot, row, now)
        yield from _window(snapshot, row, now)
        yield from _fault(snapshot, row, now)


def next_due(snapshot: Snapshot, now: int) -> int:
    """Return when something follows next by the passage of time, a large number for never."""
    nodes, quiet = snapshot.nodes, snapshot.policy.fault_clears_after
    if not nodes.window and not nodes.fault:
        return _NEVER
    times = [at for window in nodes.window.values() for at in (window.start, window.end)]
    if quiet:
        times += [fault.last + quiet for fault in nodes.fault.values() if not fault.fatal]
    return min((at for at in times if at > now), default=_NEVER)


def _window(snapshot: Snapshot, row: int, now: int) -> Iterator[Event]:
    node, window = snapshot.nodes.node[row], snapshot.nodes.window.get(row)
    if window is None:
        return
    if window.end and window.end <= now:
        yield MaintenanceEnded(now, node.name)
        if node.state is NodeState.DRAINING and node.cause == window.cause:
            yield NodeChanged(now, replace(node, state=NodeState.UP, cause=""))
    elif window.start <= now and node.state is NodeState.UP:
        yield NodeChanged(now, replace(node, state=NodeState.DRAINING, cause=window.cause))


def _fault(snapshot: Snapshot, row: int, now: int) -> Iterator[Event]:
    node, fault = snapshot.nodes.node[row], snapshot.nodes.fault.get(row)
    if fault is None:
        return
    quiet = snapshot.policy.fault_clears_after
    if not fault.cleared and not fault.fatal and quiet and fault.last + quiet <= now:
        yield NodeCleared(now, node.name)
        fault = snapshot.nodes.fault[row]
    if fault.cleared:
        # Forgotten with the change: whether to come back depends on why the node is out.
        ours = node.state is not NodeState.UP and node.cause == fault.cause
        yield NodeChanged(now, replace(node, state=NodeState.UP, cause="") if ours else node)
        return
    wanted = NodeState.DOWN if fault.fatal else NodeState.DRAINING
    if node.state < wanted:
        yield NodeChanged(now, replace(node, state=wanted, cause=fault.cause))
    if fault.fatal:
        jobs = snapshot.jobs
        for job in list(jobs.live):
            here = any(place == row for place, _ in jobs.placement[job])
            if here and jobs.phase[job] in (Phase.PLACED, Phase.RUNNING):
                yield Stopping(now, jobs.spec[job].id, StopCause.NODE_LOST)
