"""Events: everything that can happen to the state of the fleet, and nothing else changes it.

Events are what the journal stores; applying the same events to the same base gives the same state.
Times are ms since the state's epoch. Codes on the wire are the class names in lower snake case.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from divvy.fleet.job import JobKind, JobSpec, StopCause
from divvy.fleet.node import Node, NodeState


class Submitted(NamedTuple):
    """A job entered the queue; ``debug`` is admission's answer to the debug rule."""

    at: int
    spec: JobSpec
    debug: bool = False


class Placed(NamedTuple):
    """A plan promised devices to a job: (node name, devices) pairs."""

    at: int
    job: str
    placement: tuple[tuple[str, int], ...]
    protected: bool


class Started(NamedTuple):
    """The engine reports that the run began; charging begins.

    ``placement``: (node name, devices) pairs where the engine chose them itself; it replaces what was
    promised and may be of more or fewer devices. With it, the run of a job that was still queued begins,
    too: an engine that is the truth about its jobs has started it without being asked.
    """

    at: int
    job: str
    placement: tuple[tuple[str, int], ...] = ()


class Stopping(NamedTuple):
    """A run was told to leave, for this cause."""

    at: int
    job: str
    cause: StopCause


class Stopped(NamedTuple):
    """The engine reports that the run ended.

    ``requeue``: the job goes back to the queue instead of ending. ``exit_code`` is None where there was
    no process to ask, 128 + n where signal n ended it. ``detail`` is the engine's account of what went
    wrong, for people; empty where the cause says it all.
    """

    at: int
    job: str
    cause: StopCause
    requeue: bool
    exit_code: int | None = None
    detail: str = ""


class SlotHeld(NamedTuple):
    """A plan gave a queued gang a dated slot: (node name, devices) pairs, due at a time."""

    at: int
    job: str
    placement: tuple[tuple[str, int], ...]
    due: int


class SlotLapsed(NamedTuple):
    """A dated slot was given up."""

    at: int
    job: str


class Reassigned(NamedTuple):
    """Another of the accounts that a waiting job names is to pay for it."""

    at: int
    job: str
    account: str


class Withdrawn(NamedTuple):
    """A job that was not running left the queue."""

    at: int
    job: str
    cause: StopCause = StopCause.CANCELLED


class NodeChanged(NamedTuple):
    """A node appeared, or its size, model or health changed."""

    at: int
    node: Node


class MaintenanceSet(NamedTuple):
    """Maintenance of a node is announced, from ``start`` to ``end`` (0: until it is ended)."""

    at: int
    node: str
    start: int
    end: int
    cause: str


class MaintenanceEnded(NamedTuple):
    """The maintenance of a node is over, or is called off."""

    at: int
    node: str


class NodeFaulted(NamedTuple):
    """Node health reports a fault; reported again, it is the same fault, at most a worse one."""

    at: int
    node: str
    code: str
    fatal: bool = False


class NodeCleared(NamedTuple):
    """Node health reports a node well again."""

    at: int
    node: str


class BudgetChanged(NamedTuple):
    """A new version of the budget document holds from now on (the document in its nested form)."""

    at: int
    document: dict[str, Any]
    author: str
    reason: str


class Adjusted(NamedTuple):
    """Charge added to an account by hand or by a rule (refund: negative), with its cause."""

    at: int
    account: str
    charge: int
    cause: str


Event = (
    Submitted
    | Placed
    | Started
    | Stopping
    | Stopped
    | SlotHeld
    | SlotLapsed
    | Withdrawn
    | Reassigned
    | NodeChanged
    | MaintenanceSet
    | MaintenanceEnded
    | NodeFaulted
    | NodeCleared
    | BudgetChanged
    | Adjusted
)

_KINDS: dict[str, type[Event]] = {
    "submitted": Submitted,
    "placed": Placed,
    "started": Started,
    "stopping": Stopping,
    "stopped": Stopped,
    "slot_held": SlotHeld,
    "slot_lapsed": SlotLapsed,
    "withdrawn": Withdrawn,
    "reassigned": Reassigned,
    "node_changed": NodeChanged,
    "maintenance_set": MaintenanceSet,
    "maintenance_ended": MaintenanceEnded,
    "node_faulted": NodeFaulted,
    "node_cleared": NodeCleared,
    "budget_changed": BudgetChanged,
    "adjusted": Adjusted,
}
_NAMES: dict[type[Event], str] = {kind: name for name, kind in _KINDS.items()}


def to_document(event: Event) -> dict[str, Any]:
    """Return an event as plain JSON values."""
    document: dict[str, Any] = {"event": _NAMES[type(event)], **event._asdict()}
    if isinstance(event, Submitted):
        document["spec"] = event.spec._asdict()
    elif isinstance(event, NodeChanged):
        node = event.node
        document["node"] = {name: getattr(node, name) for name in Node.__slots__}
    elif isinstance(event, Placed | SlotHeld | Started):
        document["placement"] = [list(pair) for pair in event.placement]
    return document


def from_document(document: dict[str, Any]) -> Event:
    """Return the event that `to_document` wrote.

    Raises:
        ValueError: If the document is not of a known kind or lacks a field.
    """
    fields = dict(document)
    kind = _KINDS.get(fields.pop("event", ""))
    if kind is None:
        raise ValueError(f"unknown event {document.get('event')!r}; known: {', '.join(_KINDS)}")
    try:
        if kind is Submitted:
            spec = dict(fields["spec"])
            lists = {name: tuple(spec[name]) for name in ("budgets", "clusters") if name in spec}
            fields["spec"] = JobSpec(**{**spec, **lists, "kind": JobKind(spec["kind"])})
        elif kind is NodeChanged:
            node = dict(fields["node"])
            fields["node"] = Node(**{**node, "state": NodeState(node["state"])})
        elif kind in (Placed, SlotHeld, Started):
            pairs = fields.get("placement", ()) if kind is Started else fields["placement"]
            fields["placement"] = tuple((str(name), int(gpus)) for name, gpus in pairs)
        if "cause" in fields and kind in (Stopping, Stopped, Withdrawn):
            fields["cause"] = StopCause(fields["cause"])
        return kind(**fields)
    except (KeyError, TypeError) as error:
        raise ValueError(f"damaged event {document.get('event')!r}: {error}") from error
