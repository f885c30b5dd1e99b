"""Rows of the read model, made from events and from the columns of the state they led to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from divvy.fleet.decision import Decision, Plan, Preempt
from divvy.fleet.event import (
    Event,
    NodeChanged,
    Placed,
    Started,
    Stopped,
    Stopping,
    Submitted,
    Withdrawn,
)
from divvy.fleet.event import to_document as event_document
from divvy.fleet.job import JobKind, JobSpec, Phase, StopCause
from divvy.fleet.ledger import LedgerEntry
from divvy.fleet.node import NodeState, devices_by_model
from divvy.fleet.snapshot import NEVER, Snapshot


def dump(document: Any) -> str:
    """Return a document as compact JSON text."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def spec_values(spec: JobSpec) -> dict[str, Any]:
    """Return a job as the columns of its row."""
    lists = {name: dump(getattr(spec, name)) for name in ("budgets", "clusters")}
    return {**spec._asdict(), **lists, "kind": int(spec.kind)}


def spec_of(values: sa.RowMapping) -> JobSpec:
    """Return the job that `spec_values` wrote."""
    spec = JobSpec(**{name: values[name] for name in JobSpec._fields})
    budgets, clusters = json.loads(values["budgets"]), json.loads(values["clusters"])
    return spec._replace(kind=JobKind(spec.kind), budgets=tuple(budgets), clusters=tuple(clusters))


def subject(event: Event) -> str | None:
    """Return the id of the job that an event speaks of, None where it speaks of none."""
    if isinstance(event, Submitted):
        return event.spec.id
    return getattr(event, "job", None)


def job_rows(events: Sequence[Event], snapshot: Snapshot, seq: int) -> list[dict[str, Any]]:
    """Return the new values of every job that the events touched."""
    said = {event.job: event.detail for event in events if isinstance(event, Stopped)}
    names = dict.fromkeys(name for event in events if (name := subject(event)) is not None)
    return [_job_row(snapshot, snapshot.jobs.row[name], seq, said.get(name)) for name in names]


def _job_row(snapshot: Snapshot, row: int, seq: int, said: str | None) -> dict[str, Any]:
    jobs, nodes = snapshot.jobs, snapshot.nodes.node
    phase = jobs.phase[row]
    ran, cause = jobs.attempt[row] > 0, jobs.stop_cause[row]
    values: dict[str, Any] = {
        "id_": jobs.spec[row].id,
        "account": jobs.spec[row].account,
        "phase": int(phase),
        "submitted": jobs.submitted[row],
        "queued": jobs.queued[row],
        "protected_until": jobs.protected_until[row],
        "placement": dump([[nodes[node].name, gpus] for node, gpus in jobs.placement[row]]),
        "preemptions": jobs.preemptions[row],
        "attempt": jobs.attempt[row],
        "debug": jobs.debug[row],
        "rate": jobs.rate[row],
        "stopped": None if jobs.stopped[row] == NEVER else jobs.stopped[row],
        "stop_cause": int(cause)
        if (ran or cause is StopCause.LIFETIME) and phase not in _UNSTOPPED
        else None,
        "exit_code": jobs.exit_code[row],
        "changed": seq,
        "started": None if jobs.started[row] == NEVER else jobs.started[row],
        "note": said or None,  # None keeps what is there
    }
    return values


_UNSTOPPED = (Phase.PLACED, Phase.RUNNING)


def history_rows(
    events: Sequence[Event], plan: Plan | None, snapshot: Snapshot, seq: int
) -> list[dict[str, Any]]:
    """Return what happened to jobs; where a decision made the event, with its reason and its numbers."""
    decided = {snapshot.jobs.spec[d.job].id: d for d in plan.decisions} if plan is not None else {}
    rows: list[dict[str, Any]] = []
    for event in events:
        name = subject(event)
        if name is None:
            continue
        detail = event_document(event)
        kind = detail.pop("event")
        detail.pop("at")
        detail.pop("job", None)
        if isinstance(event, Submitted):
            detail = {"debug": event.debug}
        elif isinstance(event, Placed | Stopping) and name in decided:
            detail |= _decision(decided[name], snapshot)
        if isinstance(event, Stopping | Stopped | Withdrawn):
            detail["cause"] = event.cause.name.lower()
        if isinstance(event, Stopped):
            detail["note"] = detail.pop("detail")
        rows.append({"job": name, "at": event.at, "event": kind, "detail": dump(detail), "seq": seq})
    return rows


def _decision(decision: Decision, snapshot: Snapshot) -> dict[str, Any]:
    detail: dict[str, Any] = {"reason": decision.reason.name.lower()}
    if isinstance(decision, Preempt):
        by = snapshot.jobs.spec[decision.by] if decision.by >= 0 else None
        detail |= {
            "by": by.id if by else None,
            "by_account": by.account if by else None,
            "victim_balance": _finite(decision.victim_balance),
            "balance": _finite(decision.balance),
        }
    return detail


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def ledger_rows(entries: Sequence[LedgerEntry], snapshot: Snapshot, seq: int) -> list[dict[str, Any]]:
    """Return ledger entries with the author of their job."""
    jobs = snapshot.jobs
    rows: list[dict[str, Any]] = []
    for entry in entries:
        values = entry._asdict()
        values["started"], values["ended"] = values.pop("start"), values.pop("end")
        values["author"] = jobs.spec[row].author if (row := jobs.row.get(entry.job)) is not None else ""
        rows.append({**values, "seq": seq})
    return rows


def capacity_row(events: Sequence[Event], snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the fleet's capacity if the events changed a node, or may have emptied one that drains."""
    draining = any(node.state is NodeState.DRAINING for node in snapshot.nodes.node)
    kinds = (NodeChanged, Started, Stopped) if draining else (NodeChanged,)
    times = [event.at for event in events if isinstance(event, kinds)]
    if not times:
        return None
    return {
        "at": times[-1],
        "gpus": snapshot.healthy_gpus(),
        "rate": snapshot.capacity.rate,
        "models": dump(devices_by_model(snapshot.nodes.node, snapshot.nodes.there)),
    }
