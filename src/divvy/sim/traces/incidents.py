"""Rows of Divvy's own trace format that speak of the health of nodes: faults, and maintenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from divvy.fleet.event import MaintenanceSet, NodeCleared, NodeFaulted
from divvy.fleet.health import is_fatal
from divvy.sim.traces.trace import Findings, Incident

KINDS: Final = ("maintenance", "fault", "healthy")
NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "maintenance": ("at", "node", "from"),
    "fault": ("at", "node", "code"),
    "healthy": ("at", "node"),
}
_MORE: Final[dict[str, tuple[str, ...]]] = {
    "maintenance": ("until", "cause"),
    "fault": ("fatal",),
    "healthy": (),
}


def readers_of(kind: str, readers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Callable[[Any], Any]]:
    """Return the readers of the fields that a kind of row may have."""
    return {name: readers[name] for name in ("event", *NEEDS[kind], *_MORE[kind])}


def incident(kind: str, values: Mapping[str, Any], number: int, findings: Findings) -> Incident | None:
    """Return what a row reports, or None after noting why it cannot be."""
    at, node = values["at"], values["node"]
    if kind == "healthy":
        return NodeCleared(at, node)
    if kind == "fault":
        fatal = values.get("fatal", is_fatal(values["code"]))
        if fatal is None:
            findings.notes.append(
                f"line {number}: {values['code']} is a fault of an application, not of a node"
            )
            return None
        return NodeFaulted(at, node, values["code"], fatal)
    start, end = values["from"], values.get("until", 0)
    if end and end <= max(start, at):
        findings.fault(number, "trace-value", f"until: {end} is not after from", "a later time")
        return None
    return MaintenanceSet(at, node, start, end, values.get("cause", "maintenance"))
