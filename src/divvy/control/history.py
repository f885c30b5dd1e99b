"""What happened to a job, as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from divvy.fleet.job import StopCause
from divvy.fleet.reason import TEXT, Reason
from divvy.units import format_instant

#: Time (ms), event name, the event's own fields and those of the decision behind it, journal entry.
Happening = tuple[int, str, dict[str, Any], int]


class Line(NamedTuple):
    """One line of a job's history; the time is ms."""

    at: int
    event: str
    text: str


class Preempted(NamedTuple):
    """One preemption: by whom, both balances, what would have avoided it."""

    code: str
    text: str
    numbers: dict[str, float | int | str | None]


_AVOID: Final = {
    Reason.PREEMPTED_UNALLOCATED: "a declared minimum runtime would have charged and protected it",
    Reason.PREEMPTED_RECLAIM: "a longer declared minimum runtime would have protected it longer, and an "
    "account that is less over-served is asked later",
    Reason.PREEMPTED_SWAP: "a higher priority in its account, or a longer declared minimum runtime, would "
    "have kept its place",
    Reason.PREEMPTED_DRAIN: "nothing: the node leaves service",
    Reason.PREEMPTED_SLOT: "a minimum runtime that ends before the slot was due, or other devices",
}


def lines(history: Iterable[Happening], *, private: bool = True) -> list[Line]:
    """Return one sentence per event, oldest first; what an engine said about the command only if private."""
    return [
        Line(at, event, _text(event, detail if private else {**detail, "detail": "", "text": ""}))
        for at, event, detail, _seq in history
    ]


def preemptions(history: Sequence[Happening]) -> list[Preempted]:
    """Return every preemption of a job, newest first."""
    found: list[Preempted] = []
    for _at, event, detail, _seq in reversed(history):
        reason = _reason(detail)
        if event == "stopping" and reason is not None and reason >= Reason.PREEMPTED_UNALLOCATED:
            found.append(_preempted(reason, detail))
    return found


def _preempted(reason: Reason, detail: Mapping[str, Any]) -> Preempted:
    by = detail.get("by") or None
    text = TEXT[reason]
    if by is not None:
        text = f"{by} took the devices: {text}"
    victim, taker = detail.get("victim_balance"), detail.get("balance")
    balances = reason is Reason.PREEMPTED_RECLAIM and victim is not None and taker is not None
    if balances:
        text += f" (balance {victim:.3f} against {taker:.3f}, the newcomer's charge included)"
    text += f"; what would have avoided it: {_AVOID[reason]}"
    numbers: dict[str, float | int | str | None] = {"preempted_by": by}
    if balances:
        numbers |= {"victim_balance": victim, "taker_balance": taker}
    return Preempted(reason.name.lower().replace("_", "-"), text, numbers)


def _reason(detail: Mapping[str, Any]) -> Reason | None:
    value = detail.get("reason")
    if isinstance(value, int):
        return Reason(value) if value in Reason.__members__.values() else None
    name = str(value or "").upper().replace("-", "_")
    return Reason[name] if name in Reason.__members__ else None


def _cause(detail: Mapping[str, Any]) -> str:
    value = detail.get("cause")
    if isinstance(value, int):
        return StopCause(value).name.lower().replace("_", " ")
    return str(value or "").lower().replace("_", " ")


def _text(event: str, detail: Mapping[str, Any]) -> str:
    tell = _TELL.get(event)
    return tell(detail) if tell is not None else event.replace("_", " ")


def _submitted(detail: Mapping[str, Any]) -> str:
    return "submitted; the debug rule favours it" if detail.get("debug") else "submitted"


def _placed(detail: Mapping[str, Any]) -> str:
    where = ", ".join(f"{gpus} on {node}" for node, gpus in detail.get("placement", []))
    reason = _reason(detail)
    why = f": {TEXT[reason]}" if reason is not None else ""
    return f"given {where}{', protected' if detail.get('protected') else ''}{why}"


def _stopping(detail: Mapping[str, Any]) -> str:
    reason = _reason(detail)
    if reason is not None and detail.get("by"):
        return f"told to leave for {detail['by']}: {TEXT[reason]}"
    return f"told to leave: {_cause(detail)}"


def _stopped(detail: Mapping[str, Any]) -> str:
    code = detail.get("exit_code")
    text = f"ended: {_cause(detail)}" + (f", exit code {code}" if code is not None else "")
    if detail.get("detail"):
        text += f" ({detail['detail']})"
    return text + ("; back in the queue" if detail.get("requeue") else "")


def _slot_held(detail: Mapping[str, Any]) -> str:
    due = detail.get("due")
    when = f" for {format_instant(due)}" if isinstance(due, int) else ""
    where = ", ".join(f"{gpus} on {node}" for node, gpus in detail.get("placement", []))
    return f"given a dated slot{when}: {where}"


_TELL: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    "submitted": _submitted,
    "placed": _placed,
    "started": lambda _detail: "began to run",
    "stopping": _stopping,
    "stopped": _stopped,
    "refused": lambda detail: f"refused: {detail.get('text', '')}",
    "reassigned": lambda detail: f"{detail.get('account')} is to pay for it: the first that is under-served",
    "slot_held": _slot_held,
    "slot_lapsed": lambda _detail: "its dated slot was given up",
    "withdrawn": lambda detail: (
        "ended: unallocated work is not kept longer"
        if _cause(detail) == "lifetime"
        else "withdrawn from the queue"
    ),
}
