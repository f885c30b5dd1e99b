"""Answers as plain dictionaries, in the shapes of `divvy.service.schemas`.

Times become Unix seconds, durations seconds, charge GPU-hours of an average device. No model object is made
per row: a list of a thousand jobs is a thousand dictionaries and one pass of ``json.dumps``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from divvy.control.board import Board, JobSight, Lane
from divvy.control.explain import Explanation, reason_in_queue
from divvy.control.view import View
from divvy.fleet.account import ROOT, AccountTree
from divvy.fleet.job import JobKind, Phase
from divvy.service.identity import within
from divvy.service.ports import JobRecord
from divvy.units import HOUR, SECOND

_AHEAD_IN_QUEUE: Final = 3


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
    # While it is only promised devices, the store holds when that was; nothing has started yet.
    promised = phase is Phase.PLACED
    started = None if promised or (waiting and not record.attempt) else record.started
    end = record.stopped if record.stopped is not None else now
    return {
        "id": spec.id,
        "name": spec.name if private else "",
        "account": spec.account,
        "accounts": list(spec.budgets or (spec.account,)),
        "author": spec.author,
        "gpus": spec.gpus,
        "model": spec.model,
        "clusters": list(spec.clusters),
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
    rows = _queue_rows(board, view, now, account, author)
    return [
        {**row, "name": row["name"] if admin or row["author"] == me else ""} for row in islice(rows, limit)
    ]


def _queue_rows(board: Board, view: View, now: int, account: str, author: str) -> Iterator[dict[str, Any]]:
    """Yield rows; accounts and authors that are not asked for are counted, not looked at."""
    before = 0
    heads: list[str] = []
    for path, lane in board.lanes(view):
        usage = view.authors.get(path, {})
        first = list(islice(lane.ordered(usage), _AHEAD_IN_QUEUE))
        if not account or within(path, account):
            for place, name in _of_lane(board, lane, usage, author):
                ahead = first[:place] or heads[-_AHEAD_IN_QUEUE:]
                yield _queue_row(board.jobs[name], view, now, before + place, ahead, first=place == 0)
        before += lane.count
        heads.append(first[0])


def _of_lane(board: Board, lane: Lane, usage: Mapping[str, float], author: str) -> Iterator[tuple[int, str]]:
    """Yield jobs of a lane, all or one author's, with their place in it."""
    if not author:
        yield from enumerate(lane.ordered(usage))
        return
    for name in lane.of_author(author):
        yield lane.before(board.jobs[name], usage), name


def _queue_row(
    job: JobSight, view: View, now: int, before: int, ahead: list[str], *, first: bool
) -> dict[str, Any]:
    spec = job.spec
    return {
        "position": before + 1,
        "id": spec.id,
        "name": spec.name,
        "account": spec.account,
        "author": spec.author,
        "gpus": spec.gpus,
        "min_runtime_seconds": spec.min_runtime / SECOND,
        "state": job.label(now),
        "waiting_seconds": max(now - job.queued, 0) / SECOND,
        "reason": reason_in_queue(job, view, first=first)._asdict(),
        "ahead": ahead,
        "ahead_count": before,
    }


def explanation(
    found: Explanation, tree: AccountTree, view: View, account_path: str, start: Mapping[str, Any] | None
) -> dict[str, Any]:
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
        "start": start,
        "help": found.remedies,
        "history": [
            {"at": line.at / SECOND, "event": line.event, "text": line.text} for line in found.history
        ],
    }
