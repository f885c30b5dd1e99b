"""Answers as plain dictionaries, in the shapes of `divvy.service.schemas`.

Times become Unix seconds, durations seconds, charge GPU-hours of an average device. No model object is made
per row: a list of a thousand jobs is a thousand dictionaries and one pass of ``json.dumps``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from divvy.control.board import Board, JobSight
from divvy.control.explain import Explanation, reason_in_queue
from divvy.control.view import NodeSight, View
from divvy.fleet.account import ROOT, AccountTree
from divvy.fleet.job import JobKind, Phase
from divvy.fleet.node import NodeState
from divvy.service.mirror import DeviceSight, Mirror
from divvy.service.ports import JobRecord
from divvy.units import HOUR, SECOND

_AHEAD_IN_QUEUE: Final = 3
NOT_MEASURED: Final = "no monitor reports the utilisation of this node"


def seconds(milliseconds: int | None) -> float | None:
    """Return a time or duration in seconds; None stays None."""
    return None if milliseconds is None else milliseconds / SECOND


# -- accounts ---------------------------------------------------------------------------------------------


def accounts(tree: AccountTree, view: View | None) -> list[dict[str, Any]]:
    """Return every account of a tree with what the last pass saw of it."""
    return [account(tree, row, view) for row in range(ROOT + 1, len(tree))]


def account(tree: AccountTree, row: int, view: View | None) -> dict[str, Any]:
    """Return one account; what the pass did not see is null, or zero devices."""
    spec = tree.specs[row - 1]
    seen = view.standing.get(spec.path) if view is not None else None
    hour = HOUR * (view.mean_weight if view is not None else 1.0)
    return {
        "path": spec.path,
        "parent": tree.paths[tree.parent[row]],
        "leaf": not tree.children[row],
        "share": float(spec.share),
        "effective_share": float(tree.share[row]),
        "owners": list(spec.owners),
        "rank": seen.rank if seen is not None and seen.rank >= 0 else None,
        "balance": round(seen.balance, 6) if seen is not None and seen.balance >= 0 else None,
        "floor": round(seen.floor, 3) if seen is not None and seen.floor >= 0 else None,
        "held": seen.held if seen is not None else 0,
        "unallocated": seen.unallocated if seen is not None else 0,
        "waiting": seen.waiting if seen is not None else 0,
        "waiting_gpus": seen.waiting_gpus if seen is not None else 0,
        "entitlement_gpu_hours": round(seen.entitlement / hour, 3) if seen is not None else None,
        "usage_gpu_hours": round(seen.usage / hour, 3) if seen is not None else None,
    }


# -- jobs -------------------------------------------------------------------------------------------------


def job(record: JobRecord | JobSight, now: int, *, private: bool) -> dict[str, Any]:
    """Return a job; what its author wrote is left out unless the caller may see it."""
    spec, phase = record.spec, record.phase
    waiting = phase in (None, Phase.QUEUED)
    started = None if waiting and not record.attempt else record.started
    end = record.stopped if record.stopped is not None else now
    return {
        "id": spec.id,
        "name": spec.name if private else "",
        "account": spec.account,
        "author": spec.author,
        "gpus": spec.gpus,
        "model": spec.model,
        "per_node": spec.per_node,
        "kind": "interactive" if spec.kind is JobKind.INTERACTIVE else "batch",
        "allocated": spec.min_runtime > 0,
        "min_runtime_seconds": spec.min_runtime / SECOND,
        "time_limit_seconds": spec.time_limit / SECOND if spec.time_limit else None,
        "resumable": spec.resumable,
        "restart": spec.restart,
        "priority": spec.priority,
        "debug": record.debug,
        "state": record.label(now),
        "submitted_at": record.submitted / SECOND,
        "queued_at": seconds(record.queued),
        "started_at": seconds(started),
        "ended_at": seconds(record.stopped),
        "protected_until_at": record.protected_until / SECOND if record.protected_until else None,
        "waiting_seconds": max(now - record.queued, 0) / SECOND if waiting else None,
        "running_seconds": max(end - started, 0) / SECOND if started is not None and not waiting else None,
        "placement": [{"node": node, "gpus": gpus} for node, gpus in record.placement],
        "attempt": record.attempt,
        "preemptions": record.preemptions,
        "exit_code": record.exit_code,
        "cause": record.stop_cause.name.lower() if record.stop_cause is not None else None,
        "note": record.note if private else "",
        "argv": None,
        "cwd": None,
        "env": None,
    }


def queue_rows(
    board: Board, view: View, now: int, *, account: str, author: str, limit: int, me: str, admin: bool
) -> list[dict[str, Any]]:
    """Return waiting jobs in the order of service; positions count all of them, also those filtered out.

    Args:
        board: Live jobs.
        view: The last pass.
        now: Present time, ms.
        account: Only this subtree; empty: all.
        author: Only this author; empty: all.
        limit: At most so many.
        me: Whose names are shown.
        admin: Whether all names are shown.
    """
    return list(islice(_queue_rows(board, view, now, account, author, me=me, admin=admin), limit))


def _queue_rows(
    board: Board, view: View, now: int, account: str, author: str, *, me: str, admin: bool
) -> Iterator[dict[str, Any]]:
    below = f"{account}."
    before: list[str] = []
    lane: tuple[str, bool] | None = None
    for index, each in enumerate(board.order(view)):
        spec = each.spec
        first = lane != (spec.account, spec.allocated)
        lane = (spec.account, spec.allocated)
        ahead = before[-_AHEAD_IN_QUEUE:]
        before.append(spec.id)
        if account and spec.account != account and not spec.account.startswith(below):
            continue
        if author and spec.author != author:
            continue
        reason = reason_in_queue(each, view, first=first)
        yield {
            "position": index + 1,
            "id": spec.id,
            "name": spec.name if admin or spec.author == me else "",
            "account": spec.account,
            "author": spec.author,
            "gpus": spec.gpus,
            "min_runtime_seconds": spec.min_runtime / SECOND,
            "state": each.label(now),
            "waiting_seconds": max(now - each.queued, 0) / SECOND,
            "reason": {"code": reason.code, "text": reason.text},
            "ahead": ahead,
            "ahead_count": index,
        }


def explanation(found: Explanation, tree: AccountTree, view: View, account_path: str) -> dict[str, Any]:
    """Return an explanation."""
    row = tree.row.get(account_path)
    return {
        "schema": "divvy.explain/1",
        "job": found.job,
        "state": found.state,
        "headline": found.headline._asdict(),
        "reasons": [reason._asdict() for reason in found.reasons],
        "account": account(tree, row, view) if row else None,
        "ahead": [{"id": a.job, "account": a.account, "gpus": a.gpus, "why": a.why} for a in found.ahead],
        "ahead_count": found.ahead_count,
        "numbers": found.numbers,
        "help": found.remedies,
        "history": [
            {"at": line.at / SECOND, "event": line.event, "text": line.text} for line in found.history
        ],
    }


# -- the fleet --------------------------------------------------------------------------------------------


def status(mirror: Mirror, now: int) -> dict[str, Any]:
    """Return the fleet at a glance, without its age."""
    view, tree = mirror.seen(), mirror.in_force().budget.tree
    by_node: dict[str, list[tuple[JobSight, int]]] = {}
    held = {True: 0, False: 0}
    for run in mirror.board.running.values():
        for node, gpus in run.placement:
            by_node.setdefault(node, []).append((run, gpus))
            if run.phase is not Phase.STOPPING:
                held[run.spec.allocated] += gpus
    nodes = [
        _node(sight, by_node.get(sight.node.name, ()), mirror.devices.get(sight.node.name), mirror.board, now)
        for sight in view.nodes
    ]
    return {
        "schema": "divvy.status/1",
        "version": view.version,
        "policy": view.planner,
        "totals": {
            "gpus": sum(s.node.gpus for s in view.nodes if s.node.state is not NodeState.DOWN),
            "used": held[True] + held[False],
            "allocated": held[True],
            "unallocated": held[False],
            "free": sum(sight.free for sight in view.nodes),
            "queued": mirror.board.waiting,
            "running": len(mirror.board.running),
        },
        "nodes": nodes,
        "accounts": accounts(tree, view),
    }


def _node(
    sight: NodeSight,
    runs: Sequence[tuple[JobSight, int]],
    reported: Sequence[DeviceSight] | None,
    board: Board,
    now: int,
) -> dict[str, Any]:
    node = sight.node
    empty = {NodeState.UP: "free", NodeState.DRAINING: "draining", NodeState.DOWN: "down"}[node.state]
    if reported is None:
        reported = _in_order(node.gpus, runs)
    return {
        "name": node.name,
        "model": node.model,
        "gpus": node.gpus,
        "free": sight.free,
        "state": node.state.name.lower(),
        "cause": node.cause,
        "domain": node.domain,
        "devices": [_device(device, board.jobs, empty, now) for device in reported],
    }


def _in_order(gpus: int, runs: Sequence[tuple[JobSight, int]]) -> list[DeviceSight]:
    """Return a node's devices where the engine does not say whose is which: filled in order of start."""
    owners = [
        run.spec.id
        for run, count in sorted(runs, key=lambda pair: (pair[0].started or 0, pair[0].spec.id))
        for _ in range(count)
    ]
    owners = owners[:gpus]
    padded = [*owners, *[None] * (gpus - len(owners))]
    return [DeviceSight(index, owner, None, NOT_MEASURED) for index, owner in enumerate(padded)]


def _device(device: DeviceSight, jobs: Mapping[str, JobSight], empty: str, now: int) -> dict[str, Any]:
    run = jobs.get(device.job) if device.job is not None else None
    known = device.utilisation is not None
    return {
        "index": device.index,
        "job": run.spec.id if run is not None else None,
        "account": run.spec.account if run is not None else None,
        "state": run.label(now) if run is not None else empty,
        "utilisation": device.utilisation,
        "utilisation_reason": None if known else device.reason or NOT_MEASURED,
    }
