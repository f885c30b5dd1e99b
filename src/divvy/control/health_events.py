"""What events about the health of nodes change: faults, and windows of maintenance."""

from __future__ import annotations

from collections.abc import Callable

from divvy.control import refunds
from divvy.errors import ConflictError, InputError
from divvy.fleet.event import MaintenanceEnded, MaintenanceSet, NodeCleared, NodeFaulted
from divvy.fleet.health import NodeFault, Window
from divvy.fleet.ledger import LedgerEntry
from divvy.fleet.snapshot import Snapshot

HealthEvent = MaintenanceSet | MaintenanceEnded | NodeFaulted | NodeCleared


def change(
    snapshot: Snapshot, row: int, event: HealthEvent, on_ledger: Callable[[LedgerEntry], None]
) -> None:
    """Change what is known of the health of a node by one event.

    Raises:
        DivvyError: If the event contradicts what is known; then nothing has changed.
    """
    windows = snapshot.nodes.window
    if isinstance(event, MaintenanceSet):
        if event.end and event.end <= max(event.start, event.at):
            raise InputError.one("maintenance-end", f"node {event.node}: the end is not after the start")
        windows[row] = Window(event.start, event.end, event.at, event.cause)
    elif isinstance(event, MaintenanceEnded):
        if windows.pop(row, None) is None:
            raise ConflictError.one("maintenance-none", f"no maintenance of node {event.node} is announced")
    elif isinstance(event, NodeFaulted):
        _faulted(snapshot.nodes.fault, row, event)
        refunds.confirmed(snapshot, row, event.at, on_ledger)
    else:
        fault = snapshot.nodes.fault.get(row)
        if fault is None:
            raise ConflictError.one("node-well", f"no fault of node {event.node} is known", path="node")
        snapshot.nodes.fault[row] = fault._replace(cleared=True)


def _faulted(faults: dict[int, NodeFault], row: int, event: NodeFaulted) -> None:
    old = faults.get(row)
    if old is None or old.cleared or event.fatal > old.fatal:
        since = event.at if old is None or old.cleared else old.since
        faults[row] = NodeFault(event.code, event.fatal, since, event.at)
    else:
        faults[row] = old._replace(last=event.at)
