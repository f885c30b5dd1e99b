"""Why: explanations rendered from codes and numbers, only when somebody asks.

Pure. What is known comes from the published view (standings and waits of the last pass), from the board
(who waits and who runs) and from the job's own history; nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from divvy.control.board import Board, JobSight, is_over, is_waiting
from divvy.control.history import Happening, Line, lines, preemptions
from divvy.control.remedy import balance_text, help_running, help_waiting
from divvy.control.view import AccountSight, View, WaitSight
from divvy.fleet.budget import Policy
from divvy.fleet.job import Phase, StopCause
from divvy.fleet.reason import TEXT, Reason
from divvy.units import format_duration

AHEAD_SHOWN: Final = 5


class Because(NamedTuple):
    """One reason: a stable code, and what it means here."""

    code: str
    text: str


class Ahead(NamedTuple):
    """A job that goes first, or holds what is waited for."""

    job: str
    account: str
    gpus: int
    why: str


@dataclass(slots=True)
class Explanation:
    """What can be said about a job.

    Attributes:
        job: Id.
        state: As people know it.
        headline: The reason that matters most.
        reasons: All reasons, the most severe first.
        account: Its account's standing; None where the last pass did not know the account.
        ahead: Who goes first and what they ask for, then who holds devices; a few of each.
        ahead_count: Waiting jobs ahead in all.
        numbers: What the reasons stand on.
        remedies: What would help.
        history: What happened, oldest first.
    """

    job: str
    state: str
    headline: Because
    reasons: list[Because]
    account: AccountSight | None = None
    ahead: list[Ahead] = field(default_factory=list)
    ahead_count: int = 0
    numbers: dict[str, float | int | str | None] = field(default_factory=dict)
    remedies: list[str] = field(default_factory=list)
    history: list[Line] = field(default_factory=list)


def code_of(reason: Reason) -> str:
    """Return the code of a reason on the wire, such as ``wait-capacity``."""
    return reason.name.lower().replace("_", "-")


def explain(
    job: JobSight,
    view: View,
    board: Board,
    policy: Policy,
    history: Sequence[Happening],
    now: int,
    *,
    private: bool = True,
) -> Explanation:
    """Return why a job waits, runs, or ended as it did.

    Args:
        job: The job.
        view: The last pass.
        board: Live jobs; the job is on it unless it is over.
        policy: Settings in force.
        history: What happened to the job, oldest first.
        now: Present time, ms.
        private: Whether the reader may see what the engine said about the job's own command.
    """
    if is_over(job):
        found = _over(job, now, private=private)
    elif is_waiting(job):
        found = _waiting(job, view, board, policy, now)
    else:
        found = _running(job, view, now)
    found.account = view.standing.get(job.spec.account)
    if found.account is not None:
        found.numbers.update(_account_numbers(found.account))
    for event in preemptions(history):
        found.reasons.append(Because(event.code, event.text))
        found.numbers.update(event.numbers)
    found.history = lines(history, private=private)
    return found


def reason_in_queue(job: JobSight, view: View, *, first: bool) -> Because:
    """Return the headline of a waiting job.

    Args:
        job: A waiting job.
        view: The last pass.
        first: Whether no other job of its account and kind goes before it.
    """
    if job.phase is None:
        return Because("accepted", "stored; the scheduler has not looked at it yet")
    wait = view.waits.get(job.spec.id)
    if wait is not None:
        return Because(code_of(wait.reason), TEXT[wait.reason])
    if not job.spec.allocated and not any(sight.free for sight in view.nodes):
        return Because(code_of(Reason.WAIT_CAPACITY), "no device is free for unallocated work")
    if first:
        return Because("wait-next", "first of its account; the next pass decides")
    return Because(code_of(Reason.WAIT_BEHIND), TEXT[Reason.WAIT_BEHIND])


def _waiting(job: JobSight, view: View, board: Board, policy: Policy, now: int) -> Explanation:
    own, before = board.before(job, view)
    headline = reason_in_queue(job, view, first=own == 0)
    wait = view.waits.get(job.spec.id)
    if wait is not None:
        headline = Because(headline.code, f"{headline.text}: {_wait_text(wait)}")
    reasons = [headline]
    if own and headline.code != code_of(Reason.WAIT_BEHIND):
        reasons.append(
            Because(code_of(Reason.WAIT_BEHIND), f"{own} jobs of its account go first (priority, debug, age)")
        )
    account = view.standing.get(job.spec.account)
    if account is not None:
        reasons.append(Because("account-standing", balance_text(account)))
    numbers: dict[str, float | int | str | None] = {
        "position": before + 1,
        "ahead_in_account": own,
        "waiting_seconds": (now - job.queued) / 1000,
    }
    if wait is not None:
        numbers |= {
            "needed": wait.needed,
            "free": wait.free,
            "reclaimable": wait.reclaimable,
            "protected": wait.protected,
            "owed_by": wait.owed_by or None,
        }
    slot = view.slots.get(job.spec.id)
    if slot is not None:
        where = ", ".join(f"{gpus} on {node}" for node, gpus in slot.placement)
        when = f"in {format_duration(slot.due - now)}" if slot.due > now else "now"
        reasons.insert(1, Because("slot-held", f"a dated slot is held for it, due {when}: {where}"))
        numbers["slot_seconds"] = (slot.due - now) / 1000
    release = earliest_release(job, board, view, now)
    numbers["earliest_release_seconds"] = None if release is None else (release - now) / 1000
    return Explanation(
        job.spec.id,
        job.label(now),
        headline,
        reasons,
        ahead=[*_ahead(job, view, board), *_holders(job, wait, view, board, now)],
        ahead_count=before,
        numbers=numbers,
        remedies=help_waiting(job, wait, view, policy, now, release=release, own_ahead=own),
    )


def earliest_release(job: JobSight, board: Board, view: View, now: int) -> int | None:
    """Return when, if nothing else changed, enough devices would be free or out of protection; None: never.

    A lower bound, not a promise: a run may end sooner, and whoever is ahead takes devices first.
    """
    models = {sight.node.name: sight.node.model for sight in view.nodes}
    wanted = job.spec.model
    count = sum(sight.free for sight in view.nodes if wanted in ("", sight.node.model))
    if count >= job.spec.gpus:
        return now
    times: list[tuple[int, int]] = []
    for run in board.running.values():
        gpus = sum(n for node, n in run.placement if wanted in ("", models.get(node, "")))
        if gpus and run.phase is not Phase.STOPPING:
            times.append((max(run.protected_until, now), gpus))
    for at, gpus in sorted(times):
        count += gpus
        if count >= job.spec.gpus:
            return at
    return None


def _wait_text(wait: WaitSight) -> str:
    if wait.reason is Reason.WAIT_LIMIT:
        return f"it needs {wait.needed}, the limit of {wait.owed_by} leaves {wait.free}"
    text = f"it needs {wait.needed}, {wait.free} are free"
    if wait.reclaimable:
        text += f", {wait.reclaimable} more may be taken back"
    if wait.protected:
        text += f", {wait.protected} are protected"
    return text


def _ahead(job: JobSight, view: View, board: Board) -> list[Ahead]:
    """Return the first jobs of the own account, then the heads of the accounts ahead."""
    found: list[Ahead] = []
    for other in islice(board.in_account(job, view), AHEAD_SHOWN):
        if other.spec.id == job.spec.id:
            break
        found.append(Ahead(other.spec.id, other.spec.account, other.spec.gpus, _why_ahead(other, job, view)))
    for account in board.accounts_ahead(job, view)[:AHEAD_SHOWN]:
        standing = view.standing.get(account)
        head = board.head(account, view, allocated=job.spec.allocated)
        if head is not None:
            holds = "" if standing is None else f", holds {standing.held}, balance {standing.balance:.3f}"
            found.append(Ahead(head.spec.id, account, head.spec.gpus, f"its account goes first{holds}"))
    return found


def _why_ahead(other: JobSight, job: JobSight, view: View) -> str:
    if other.spec.priority != job.spec.priority:
        return f"priority {other.spec.priority} against {job.spec.priority}"
    if other.debug != job.debug:
        return "small and short (debug rule)"
    usage = view.authors.get(job.spec.account, {})
    if usage.get(other.spec.author, 0.0) != usage.get(job.spec.author, 0.0):
        return f"its author {other.spec.author} has had less lately"
    return "submitted earlier"


def _holders(job: JobSight, wait: WaitSight | None, view: View, board: Board, now: int) -> list[Ahead]:
    """Return who holds most of what a blocked job could use, with the end of their protection."""
    if wait is None or wait.reason not in (
        Reason.WAIT_CAPACITY,
        Reason.WAIT_PROTECTED,
        Reason.WAIT_OVERSERVED,
        Reason.WAIT_SHAPE,
    ):
        return []
    models = {sight.node.name: sight.node.model for sight in view.nodes}
    runs = [
        (gpus, run)
        for run in board.running.values()
        if (gpus := sum(n for node, n in run.placement if job.spec.model in ("", models.get(node, ""))))
    ]
    runs.sort(key=lambda pair: (-pair[0], pair[1].spec.id))
    return [Ahead(run.spec.id, run.spec.account, gpus, _held(run, now)) for gpus, run in runs[:AHEAD_SHOWN]]


def _held(run: JobSight, now: int) -> str:
    if run.protected_until > now:
        return f"holds devices, protected for another {format_duration(run.protected_until - now)}"
    return f"holds devices, {run.label(now)}"


def _running(job: JobSight, view: View, now: int) -> Explanation:
    where = ", ".join(f"{gpus} on {node}" for node, gpus in job.placement)
    if job.phase is Phase.STOPPING:
        cause = (job.stop_cause or StopCause.CANCELLED).name.lower().replace("_", " ")
        headline = Because("stopping", f"it was told to leave ({cause}) and is ending; it has {where}")
    elif job.phase is Phase.PLACED:
        reason = Reason.WAIT_VICTIMS
        headline = Because(code_of(reason), f"{TEXT[reason]}, or it is just being started: {where}")
    elif not job.spec.allocated:
        headline = Because("unallocated", f"runs on {where}; free of charge, gives way to any allocated job")
    elif job.protected_until > now:
        left = format_duration(job.protected_until - now)
        headline = Because("protected", f"runs on {where}; protected for another {left}")
    else:
        why = "past its protection" if job.protected_until else "begun without protection"
        headline = Because("interruptible", f"runs on {where}; {why}, it may be preempted")
    numbers: dict[str, float | int | str | None] = {
        "running_seconds": None if job.started is None else (now - job.started) / 1000,
        "protected_seconds": max(job.protected_until - now, 0) / 1000,
    }
    return Explanation(
        job.spec.id,
        job.label(now),
        headline,
        [headline],
        numbers=numbers,
        remedies=help_running(job, view.standing.get(job.spec.account), now),
    )


def _over(job: JobSight, now: int, *, private: bool) -> Explanation:
    state = job.label(now)
    if job.note and not job.attempt:
        headline = Because("refused", job.note if private else "the scheduler refused it")
    elif job.exit_code is not None and job.phase in (Phase.FINISHED, Phase.FAILED):
        headline = Because(state, f"it ended with exit code {job.exit_code}")
    else:
        cause = job.stop_cause.name.lower().replace("_", " ") if job.stop_cause is not None else state
        headline = Because(state, f"it is over: {cause}")
    return Explanation(job.spec.id, state, headline, [headline], numbers={"exit_code": job.exit_code})


def _account_numbers(account: AccountSight) -> dict[str, Any]:
    return {
        "rank": account.rank if account.rank >= 0 else None,
        "balance": account.balance if account.balance >= 0 else None,
        "floor": account.floor if account.floor >= 0 else None,
        "held": account.held,
    }
