"""Notices: what is told of an event of a job or of a budget, as plain values. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from divvy.control.history import Line, lines
from divvy.control.statement_document import within
from divvy.control.view import AccountSight
from divvy.service.notify.receivers import Receiver
from divvy.service.notify.source import Occurrence
from divvy.units import SECOND

SCHEMA: Final = "divvy.notice/1"
#: A budget is told of again only when it has fallen so far below a threshold, percentage points.
_CALM: Final = 5


def of_job(occurrence: Occurrence, receiver: Receiver) -> dict[str, Any] | None:
    """Return what a receiver is told of something that happened to a job; None: nothing."""
    kind = _kind(occurrence)
    if kind not in receiver.events or not _concerns(receiver, occurrence.account):
        return None
    line: Line = lines([(occurrence.at, occurrence.event, dict(occurrence.detail), 0)])[0]
    return {
        "schema": SCHEMA,
        "id": f"{kind}-{occurrence.id}",
        "kind": kind,
        "at": occurrence.at / SECOND,
        "job": occurrence.job,
        "name": occurrence.name,
        "account": occurrence.account,
        "author": occurrence.author,
        "gpus": occurrence.gpus,
        "text": line.text,
        "detail": {
            key: occurrence.detail.get(key)
            for key in ("reason", "cause", "by", "by_account", "exit_code", "balance", "victim_balance")
            if occurrence.detail.get(key) is not None
        },
    }


def _kind(occurrence: Occurrence) -> str:
    """Return which kind of notice an event is; empty: none."""
    if occurrence.event == "stopping" and str(occurrence.detail.get("reason", "")).startswith("preempted"):
        return "preemption"
    ended = occurrence.event == "stopped" and not occurrence.detail.get("requeue")
    return "finished" if ended or occurrence.event in ("withdrawn", "refused") else ""


def _concerns(receiver: Receiver, account: str) -> bool:
    return not receiver.accounts or any(within(account, one) for one in receiver.accounts)


def of_budgets(
    accounts: Iterable[AccountSight], receiver: Receiver, levels: dict[str, int], at: int
) -> Iterator[dict[str, Any]]:
    """Yield a notice per account that has newly reached a threshold, and bring ``levels`` up to date.

    Args:
        accounts: As the last pass saw them.
        receiver: Who is told.
        levels: Highest threshold that was told of, per account; changed here.
        at: Time of the pass, ms.
    """
    if "budget" not in receiver.events:
        return
    for account in accounts:
        if account.balance < 0 or not _concerns(receiver, account.path):
            continue
        percent, told = account.balance * 100, levels.get(account.path, 0)
        reached = max((one for one in receiver.thresholds if percent >= one), default=0)
        if reached > told:
            levels[account.path] = reached
            yield _budget(account, reached, at)
        elif percent < told - _CALM:
            levels[account.path] = reached


def _budget(account: AccountSight, reached: int, at: int) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "id": f"budget-{account.path}-{reached}-{at}",
        "kind": "budget",
        "at": at / SECOND,
        "account": account.path,
        "threshold_percent": reached,
        "used_over_owed": account.balance,
        "held": account.held,
        "waiting": account.waiting,
        "text": f"{account.path} has had {account.balance:.0%} of what it is owed in the window",
    }


def body(notice: Mapping[str, Any]) -> bytes:
    """Return a notice as it is handed over."""
    return json.dumps(notice, separators=(",", ":"), ensure_ascii=False).encode()
