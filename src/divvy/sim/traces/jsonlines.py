"""Read Divvy's own trace format: one JSON object per line, a job or a change of the fleet.

Times and durations are seconds (a number) or text with a unit ("15m"); see docs/reference/simulate.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from divvy.fleet.device import GENERIC, weight_of
from divvy.fleet.job import JobKind
from divvy.fleet.node import Node, NodeState
from divvy.sim.traces.incidents import KINDS, NEEDS, incident, readers_of
from divvy.sim.traces.trace import (
    LARGEST_GANG,
    LONGEST_MS,
    CapacityChange,
    Findings,
    Incident,
    OnError,
    Trace,
    TraceJob,
    assemble,
    lines_of,
)
from divvy.units import DURATION_HELP, SECOND, parse_duration, parse_json

_DURATION: Final = f"seconds, or {DURATION_HELP}"


def _duration(value: Any) -> int:
    """Return the milliseconds of a number of seconds or of a text with a unit."""
    if isinstance(value, str):
        return _bounded(parse_duration(value))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a duration ({_DURATION})")
    return _bounded(round(value * SECOND))


def _bounded(milliseconds: int) -> int:
    if not 0 <= milliseconds <= LONGEST_MS:
        raise ValueError(f"{milliseconds / SECOND:g} s is out of range (0 s or more)")
    return milliseconds


def _runtime(value: Any) -> int:
    runtime = _duration(value)
    if runtime <= 0:
        raise ValueError(f"{value!r}: a job runs longer than 0 s")
    return runtime


def _instant(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a time in seconds")
    if abs(value) * SECOND > LONGEST_MS:
        raise ValueError(f"{value!r} s is out of range; are these milliseconds?")
    return round(value * SECOND)


def _count(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{value!r} is not a whole number from {low} to {high}")
        return value

    return read


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError(f"{value!r} is not a printable text")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(set(map(str, value))) != len(value):
        raise ValueError(f"{value!r} is not a list of different names")
    return tuple(_text(item) for item in value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is not true or false")
    return value


def _kind(value: Any) -> JobKind:
    known = {kind.name.lower(): kind for kind in JobKind}
    if value not in known:
        raise ValueError(f"{value!r} is not a job kind ({', '.join(known)})")
    return known[value]


def _state(value: Any) -> NodeState:
    known = {state.name.lower(): state for state in NodeState}
    if value not in known:
        raise ValueError(f"{value!r} is not a node state ({', '.join(known)})")
    return known[value]


_JOB: Final[dict[str, Callable[[Any], Any]]] = {
    "submit": _instant,
    "runtime": _runtime,
    "gpus": _count(1, LARGEST_GANG),
    "account": _text,
    "id": _text,
    "author": _text,
    "min_runtime": _duration,
    "resumable": _flag,
    "restart": _flag,
    "priority": _count(-1_000_000, 1_000_000),
    "kind": _kind,
    "model": _text,
    "per_node": _count(0, LARGEST_GANG),
    "time_limit": _duration,
    "name": _text,
    "or_accounts": _texts,
    "clusters": _texts,
}
_JOB_NEEDS: Final = ("submit", "runtime", "gpus", "account")
_NODE: Final[dict[str, Callable[[Any], Any]]] = {
    "event": _text,
    "at": _instant,
    "node": _text,
    "gpus": _count(0, LARGEST_GANG),
    "state": _state,
    "cause": _text,
    "model": _text,
    "domain": _text,
    "cluster": _text,
}
_NODE_NEEDS: Final = ("at", "node", "gpus")
_INCIDENT: Final[dict[str, Callable[[Any], Any]]] = {
    "event": _text,
    "at": _instant,
    "node": _text,
    "from": _instant,
    "until": _instant,
    "cause": _text,
    "code": _text,
    "fatal": _flag,
}


def read_jsonlines(data: bytes, source: str, on_error: OnError = OnError.FAIL) -> Trace:
    """Return the jobs and fleet changes of a file in Divvy's own format.

    Raises:
        InputError: If no job is left, or a row is malformed and that is fatal.
    """
    findings = Findings(source)
    incidents: list[Incident] = []
    rows, changes = _rows(data, findings, incidents)
    return assemble(rows, changes, findings, on_error, lambda at: f"{at / SECOND:g} s", incidents)


def _rows(
    data: bytes, findings: Findings, incidents: list[Incident]
) -> tuple[list[tuple[int, TraceJob]], list[CapacityChange]]:
    """Return the jobs of a file, each with its line, and the changes of the fleet; collect the incidents."""
    rows: list[tuple[int, TraceJob]] = []
    changes: list[CapacityChange] = []
    ids: dict[str, int] = {}
    for number, line in lines_of(data, findings):
        document = _object(number, line, findings)
        if document is None:
            continue
        if document.get("event") in KINDS:
            reported = _incident(number, document, findings)
            if reported is not None:
                incidents.append(reported)
            continue
        if "event" in document:
            change = _change(number, document, findings)
            if change is not None:
                changes.append(change)
            continue
        values = _read(number, document, _JOB, _JOB_NEEDS, findings)
        if values is None:
            continue
        if values.get("per_node") and values["gpus"] % values["per_node"]:
            findings.fault(
                number,
                "trace-value",
                f"per_node: {values['gpus']} devices do not divide into nodes of {values['per_node']}",
                f"a divisor of {values['gpus']}, or 0",
            )
            continue
        known = ids.setdefault(values.setdefault("id", f"d{number}"), number)
        if known != number:
            findings.fault(number, "trace-duplicate", f"id {values['id']!r} was used in line {known}", "once")
            continue
        rows.append((number, TraceJob(**values)))
    return rows, changes


def _object(number: int, line: str, findings: Findings) -> dict[str, Any] | None:
    """Return the object of a line, or None after noting why there is none."""
    try:
        document = parse_json(line)
    except ValueError as error:
        findings.fault(number, "trace-json", f"not JSON: {error}; cut off or damaged: {line[:80]!r}")
        return None
    if not isinstance(document, dict):
        findings.fault(number, "trace-json", f"{line[:80]!r} is not an object", "one object per line")
        return None
    return document


def _read(
    number: int,
    document: Mapping[str, Any],
    readers: Mapping[str, Callable[[Any], Any]],
    needed: tuple[str, ...],
    findings: Findings,
) -> dict[str, Any] | None:
    """Return the fields of a row, or None after noting everything that is wrong with it."""
    before = len(findings.faults)
    for name in needed:
        if name not in document:
            findings.fault(number, "trace-field", f"{name} is missing", f"needed: {', '.join(needed)}")
    values: dict[str, Any] = {}
    for name, value in document.items():
        reader = readers.get(name)
        if reader is None:
            findings.fault(number, "trace-field", f"unknown field {name!r}", ", ".join(readers))
            continue
        try:
            values[name] = reader(value)
        except (ValueError, OverflowError) as error:
            findings.fault(number, "trace-value", f"{name}: {error}")
    return values if len(findings.faults) == before else None


def _incident(number: int, document: Mapping[str, Any], findings: Findings) -> Incident | None:
    """Return the incident that a row describes."""
    kind = document["event"]
    values = _read(number, document, readers_of(kind, _INCIDENT), NEEDS[kind], findings)
    return None if values is None else incident(kind, values, number, findings)


def _change(number: int, document: Mapping[str, Any], findings: Findings) -> CapacityChange | None:
    """Return the change of the fleet that a row describes."""
    if document["event"] != "capacity":
        allowed = ", ".join(("capacity", *KINDS))
        findings.fault(number, "trace-event", f"unknown event {document['event']!r}", allowed)
        return None
    values = _read(number, document, _NODE, _NODE_NEEDS, findings)
    if values is None:
        return None
    model = values.get("model", GENERIC.name)
    return CapacityChange(
        values["at"],
        Node(
            values["node"],
            values["gpus"],
            model,
            weight_of(model),
            values.get("domain", ""),
            values.get("state", NodeState.UP),
            values.get("cause", ""),
            values.get("cluster", ""),
        ),
    )
