"""States and plans as canonical JSON: the same thing always gives the same bytes.

A *base snapshot* is the document of a whole state; restoring it gives a state from which the same events
and the same planner lead to byte-equal plans. Row numbers are kept, because planners may break ties by
them; the rows of jobs that are over are restored as blanks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from divvy.control.state import FleetState
from divvy.errors import DivvyError, UnavailableError
from divvy.fleet.account import ROOT, AccountSpec, AccountTree, build_tree
from divvy.fleet.account_file import rules_of, with_rules
from divvy.fleet.budget import Budget, Policy
from divvy.fleet.decision import Decision, Hold, Placement, Plan, Preempt
from divvy.fleet.health import LostRun, NodeFault, Window
from divvy.fleet.job import JobKind, JobSpec, Phase, StopCause
from divvy.fleet.ledger import LedgerEntry
from divvy.fleet.node import Node, NodeState
from divvy.fleet.snapshot import NEVER, JobTable, ShareEpoch, Slot, Snapshot
from divvy.fleet.usage import ChargeHistory

FORMAT: Final = 1

#: Columns of a job besides its spec, its account and its placement, in the order of the document.
_NUMBERS: Final = (
    "submitted",
    "queued",
    "started",
    "stopped",
    "protected_until",
    "preemptions",
    "attempt",
    "debug",
    "rate",
    "exit_code",
    "surcharge",  # bases of before it was there end here
)
_NODE: Final = tuple(item.name for item in fields(Node))


def canonical(document: Any) -> bytes:
    """Return a document of plain values as bytes: sorted keys, no spaces, UTF-8.

    Raises:
        ValueError: If it holds a number that JSON has not (see `number`).
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode(errors="surrogatepass")


def digest(data: bytes) -> str:
    """Return the SHA-256 of canonical bytes: their address."""
    return hashlib.sha256(data).hexdigest()


def number(value: float) -> float | str:
    """Return a number as JSON can hold it: infinities and NaN become words."""
    return value if isfinite(value) else str(value)


# -- states --------------------------------------------------------------------------------------------


def state_document(snapshot: Snapshot) -> dict[str, Any]:
    """Return a whole state as plain values."""
    paths = snapshot.tree.paths
    return {
        "format": FORMAT,
        "version": snapshot.version,
        "policy": {item.name: getattr(snapshot.policy, item.name) for item in fields(Policy)},
        "epochs": [
            {"since": epoch.since, "author": epoch.author, "reason": epoch.reason, "tree": _tree(epoch.tree)}
            for epoch in snapshot.epochs
        ],
        "rows": len(snapshot.jobs),
        "jobs": [_job(snapshot, row) for row in snapshot.jobs.live],
        "slots": [[row, *slot] for row, slot in snapshot.jobs.slot.items()],
        "nodes": [
            [*(getattr(node, name) for name in _NODE), free]
            for node, free in zip(snapshot.nodes.node, snapshot.nodes.free, strict=True)
        ],
        "usage": _histories(paths, snapshot.usage),
        "unallocated": _histories(paths, snapshot.unallocated),
        "authors": [
            [paths[account], author, history.to_document()]
            for (account, author), history in snapshot.author_usage.items()
        ],
        "capacity": snapshot.capacity.to_document(),
        "there": snapshot.nodes.there,
        "health": {
            "faults": [[row, *fault] for row, fault in snapshot.nodes.fault.items()],
            "windows": [[row, *window] for row, window in snapshot.nodes.window.items()],
            "lost": [list(run) for run in snapshot.lost],
        },
    }


def restore(
    document: Mapping[str, Any], on_ledger: Callable[[LedgerEntry], None] | None = None
) -> FleetState:
    """Return the state that `state_document` wrote.

    Raises:
        UnavailableError: If the document is damaged or of another format.
    """
    if document.get("format") != FORMAT:
        raise UnavailableError.one(
            "base-format", f"base snapshot of format {document.get('format')!r}", allowed=str(FORMAT)
        )
    try:
        return _restore(document, on_ledger)
    except (KeyError, TypeError, ValueError, IndexError, DivvyError) as error:
        raise UnavailableError.one("base-damaged", f"damaged base snapshot: {error!r}") from error


def _restore(document: Mapping[str, Any], on_ledger: Callable[[LedgerEntry], None] | None) -> FleetState:
    policy = Policy(**document["policy"])
    epochs = [
        ShareEpoch(e["since"], _read_tree(e["tree"]), e["author"], e["reason"]) for e in document["epochs"]
    ]
    state = FleetState(Budget(policy, epochs[-1].tree), on_ledger, epochs[-1].since)
    snapshot, row = state.snapshot, epochs[-1].tree.row
    snapshot.epochs = epochs
    snapshot.version = snapshot.log_start = int(document["version"])
    for *node, free in document["nodes"]:
        values = dict(zip(_NODE, node, strict=False))  # bases of before clusters lack the last
        snapshot.nodes.row[values["name"]] = len(snapshot.nodes)
        snapshot.nodes.node.append(Node(**{**values, "state": NodeState(values["state"])}))
        snapshot.nodes.free.append(free)
    # In bases of before a draining node counted whole until it was down.
    whole = [0 if node.state is NodeState.DOWN else node.gpus for node in snapshot.nodes.node]
    snapshot.nodes.there = [int(gpus) for gpus in document.get("there", whole)]
    _read_jobs(snapshot.jobs, document["jobs"], int(document["rows"]), row)
    for gang, held, due, since in document["slots"]:
        place = tuple((int(node), int(gpus)) for node, gpus in held)
        snapshot.jobs.slot[int(gang)] = Slot(place, int(due), int(since))
    for path, rows in document["usage"].items():
        snapshot.usage[row[path]] = ChargeHistory.from_document(rows)
    for path, rows in document["unallocated"].items():
        snapshot.unallocated[row[path]] = ChargeHistory.from_document(rows)
    for path, author, rows in document["authors"]:
        snapshot.author_usage[row[path], author] = ChargeHistory.from_document(rows)
    snapshot.capacity = ChargeHistory.from_document(document["capacity"])
    _read_health(snapshot, document.get("health", {}))
    return state


def _read_health(snapshot: Snapshot, document: Mapping[str, Any]) -> None:
    """Read what is known of the health of nodes; a base of before has nothing on it."""
    for row, *fault in document.get("faults", ()):
        snapshot.nodes.fault[int(row)] = NodeFault(*fault)
    for row, *window in document.get("windows", ()):
        snapshot.nodes.window[int(row)] = Window(*window)
    for values in document.get("lost", ()):
        run = LostRun(*values)
        snapshot.lost.append(run._replace(nodes=tuple(run.nodes)))


def _tree(tree: AccountTree) -> list[list[Any]]:
    """Return a tree as rows; shares as text, so that no digit of what was written is lost."""
    rows: list[list[Any]] = []
    for spec in tree.specs:
        aliases = [[engine, list(names)] for engine, names in spec.aliases]
        rules = rules_of(spec)
        rows.append([spec.path, str(spec.share), list(spec.owners), aliases, *([rules] if rules else [])])
    return rows


def _read_tree(rows: Sequence[Any]) -> AccountTree:
    specs: list[AccountSpec] = []
    for path, share, owners, aliases, *rules in rows:
        names = tuple((engine, tuple(listed)) for engine, listed in aliases)
        spec = AccountSpec(path, Decimal(share), tuple(owners), names)
        specs.append(with_rules(spec, rules[0]) if rules else spec)
    return build_tree(specs)


def _histories(paths: Sequence[str], histories: Sequence[ChargeHistory]) -> dict[str, Any]:
    listed = ((path, history.to_document()) for path, history in zip(paths, histories, strict=True))
    return {path: rows for path, rows in listed if rows}


def _job(snapshot: Snapshot, row: int) -> dict[str, Any]:
    jobs = snapshot.jobs
    return {
        "row": row,
        "spec": list(jobs.spec[row]),
        "account": snapshot.tree.paths[jobs.account[row]],
        "phase": int(jobs.phase[row]),
        "cause": int(jobs.stop_cause[row]),
        "placement": [list(pair) for pair in jobs.placement[row]],
        "numbers": [getattr(jobs, name)[row] for name in _NUMBERS],
    }


_BLANK: Final = JobSpec("", "", "", 0, 0)


def _read_jobs(
    jobs: JobTable, listed: Sequence[Mapping[str, Any]], rows: int, account: Mapping[str, int]
) -> None:
    blank: dict[str, Any] = dict.fromkeys(_NUMBERS, 0) | {"debug": False, "exit_code": None, "started": NEVER}
    for name, value in blank.items():
        getattr(jobs, name).extend([value] * rows)
    jobs.spec.extend([_BLANK] * rows)
    jobs.account.extend([ROOT] * rows)
    jobs.phase.extend([Phase.FINISHED] * rows)
    jobs.stop_cause.extend([StopCause.FINISHED] * rows)
    jobs.placement.extend([()] * rows)
    for job in listed:
        row = int(job["row"])
        spec = JobSpec(*job["spec"])
        budgets, clusters = tuple(spec.budgets), tuple(spec.clusters)
        jobs.spec[row] = spec._replace(kind=JobKind(spec.kind), budgets=budgets, clusters=clusters)
        if spec.budgets:
            jobs.several[spec.id] = None
        jobs.row[spec.id] = row
        jobs.live[row] = None
        jobs.account[row] = account[job["account"]]
        jobs.phase[row] = Phase(job["phase"])
        jobs.stop_cause[row] = StopCause(job["cause"])
        jobs.placement[row] = tuple((int(node), int(gpus)) for node, gpus in job["placement"])
        for name, value in zip(_NUMBERS, job["numbers"], strict=False):
            getattr(jobs, name)[row] = value


# -- plans ---------------------------------------------------------------------------------------------


def plan_document(plan: Plan, snapshot: Snapshot) -> dict[str, Any]:
    """Return a plan as plain values, with names where the plan has rows.

    Call it before rows are renumbered; that the plan has been carried out meanwhile does not matter.
    """
    spec, paths = snapshot.jobs.spec, snapshot.tree.paths
    return {
        "version": plan.version,
        "now": plan.now,
        "next_check": plan.next_check,
        "decisions": [_decision(decision, snapshot) for decision in plan.decisions],
        "slots": [
            {
                "do": "hold",
                "job": spec[slot.job].id,
                "nodes": _named(slot.placement, snapshot),
                "due": slot.due,
            }
            if isinstance(slot, Hold)
            else {"do": "lapse", "job": spec[slot.job].id}
            for slot in plan.slots
        ],
        "standings": [
            {
                **standing._asdict(),
                "account": paths[standing.account],
                "balance": number(standing.balance),
                "floor": number(standing.floor),
            }
            for standing in plan.standings
        ],
        "waits": [
            {
                **wait._asdict(),
                "job": spec[row].id,
                "reason": wait.reason.name.lower(),
                "owed_by": paths[wait.owed_by] if wait.owed_by > ROOT else None,
            }
            for row, wait in plan.waits
        ],
    }


def plan_bytes(plan: Plan, snapshot: Snapshot) -> bytes:
    """Return a plan as canonical bytes; equal plans, and only these, give equal bytes."""
    return canonical(plan_document(plan, snapshot))


def _named(placement: Placement, snapshot: Snapshot) -> list[list[Any]]:
    return [[snapshot.nodes.node[node].name, gpus] for node, gpus in placement]


def _decision(decision: Decision, snapshot: Snapshot) -> dict[str, Any]:
    spec = snapshot.jobs.spec
    job = spec[decision.job]
    told = {
        "job": job.id,
        "account": job.account,
        "gpus": job.gpus,
        "reason": decision.reason.name.lower(),
    }
    if isinstance(decision, Preempt):
        return {
            "do": "preempt",
            **told,
            "by": spec[decision.by].id if decision.by >= 0 else None,
            "victim_balance": number(decision.victim_balance),
            "balance": number(decision.balance),
        }
    return {
        "do": "start",
        **told,
        "placement": _named(decision.placement, snapshot),
        "protected": decision.protected,
    }
