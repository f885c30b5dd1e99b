"""What would help: advice that follows from the reason and the numbers, never from guesses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from divvy.control.board import JobSight
from divvy.control.view import AccountSight, View, WaitSight
from divvy.fleet.budget import Policy
from divvy.fleet.node import NodeState
from divvy.fleet.reason import Reason
from divvy.units import format_duration, format_instant, gpu_hours


def balance_text(account: AccountSight) -> str:
    """Return one sentence on where an account stands."""
    if account.balance < 0:
        return f"{account.path} is owed nothing (its share is 0)"
    had = f"{account.path} has had {account.balance:.1%} of what it was owed in the window"
    if account.rank < 0:
        return f"{had} and asks for nothing more"
    holds = f"{had}; it holds {account.held} devices"
    if account.held < account.floor:
        return f"{holds}, below its floor of {account.floor:.1f}, so it goes first"
    return f"{holds} (floor {max(account.floor, 0):.1f}) and is number {account.rank + 1} to be served"


def help_waiting(
    job: JobSight,
    wait: WaitSight | None,
    view: View,
    policy: Policy,
    now: int,
    *,
    release: int | None,
    own_ahead: int,
) -> list[str]:
    """Return what the author of a waiting job, or an owner, could do; the most useful first."""
    found: list[str] = []
    if wait is not None:
        found += _by_reason(job, wait, view)
        if wait.reason is Reason.WAIT_PATIENCE:
            found += _patience(job, policy, now)
    if own_ahead:
        found.append(
            f"{own_ahead} jobs of its own account are ahead: a higher --priority passes them, it changes "
            "nothing between accounts"
        )
    found += _debug(job, policy)
    if release is not None and release > now and wait is not None:
        found.append(
            f"enough devices leave their protection at {format_instant(release)} at the earliest "
            f"(in {format_duration(release - now)}), if nobody ahead takes them"
        )
    if job.spec.allocated and (wait is None or wait.reason not in _NEVER_NOW):
        found.append(
            "--min-runtime 0 runs it unallocated on devices that nobody claims: free, unprotected, at once "
            "if there are any"
        )
    return found


_NEVER_NOW = (Reason.WAIT_MODEL, Reason.WAIT_TOO_LARGE)


def _by_reason(job: JobSight, wait: WaitSight, view: View) -> list[str]:
    advise = _ADVICE.get(wait.reason)
    return advise(job, wait, view) if advise is not None else []


def _other_model(_job: JobSight, _wait: WaitSight, view: View) -> list[str]:
    models = sorted({s.node.model for s in view.nodes if s.node.state is not NodeState.DOWN})
    return [f"ask for another model ({', '.join(models) or 'none is healthy now'}), or leave --model away"]


def _smaller(_job: JobSight, _wait: WaitSight, view: View) -> list[str]:
    healthy = sum(s.node.gpus for s in view.nodes if s.node.state is not NodeState.DOWN)
    return [f"ask for at most {healthy} devices, or wait until nodes come back"]


def _other_shape(job: JobSight, _wait: WaitSight, view: View) -> list[str]:
    largest = max((s.free for s in view.nodes if job.spec.model in ("", s.node.model)), default=0)
    return [f"at most {largest} devices are free on one node: a smaller gang, or a smaller --per-node, fits"]


def _within_floors(job: JobSight, _wait: WaitSight, view: View) -> list[str]:
    healthy = sum(s.node.gpus for s in view.nodes if s.node.state is not NodeState.DOWN)
    kept = sum(
        min(account.held, max(account.floor, 0))
        for path, account in view.standing.items()
        if path != job.spec.account and account.rank >= 0
    )
    room = max(healthy - kept, 0)
    return [
        f"others hold {kept:.0f} devices within their floors, and keep them while they have work",
        f"a gang of at most {room:.0f} can come together before that, a larger one when they have less to do",
    ]


def _what_fits(_job: JobSight, wait: WaitSight, _view: View) -> list[str]:
    room = wait.free + wait.reclaimable
    return [f"a job of at most {room} devices could start now"] if 0 < room < wait.needed else []


def _fade(job: JobSight, _wait: WaitSight, view: View) -> list[str]:
    account = view.standing.get(job.spec.account)
    if account is None or account.usage <= account.entitlement:
        return []
    over = gpu_hours(round(account.usage - account.entitlement)) / view.mean_weight
    return [f"its account is {over:.1f} GPU-hours over what it was owed; that fades as the window slides"]


_ADVICE: Final[dict[Reason, Callable[[JobSight, WaitSight, View], list[str]]]] = {
    Reason.WAIT_MODEL: _other_model,
    Reason.WAIT_TOO_LARGE: _smaller,
    Reason.WAIT_SHAPE: _other_shape,
    Reason.WAIT_FLOORS: _within_floors,
    Reason.WAIT_CAPACITY: _what_fits,
    Reason.WAIT_PROTECTED: _what_fits,
    Reason.WAIT_OVERSERVED: _fade,
    Reason.WAIT_SLOT: lambda *_: [
        "a shorter --min-runtime, one that ends before the date, could start there now"
    ],
    Reason.WAIT_LIMIT: lambda *_: ["it starts when a run of its account or author ends"],
}


def _patience(job: JobSight, policy: Policy, now: int) -> list[str]:
    left = job.queued + (policy.debug_patience if job.debug else policy.patience) - now
    return [f"it may take devices back in {format_duration(left)}"] if left > 0 else []


def _debug(job: JobSight, policy: Policy) -> list[str]:
    spec = job.spec
    if job.debug or not spec.allocated:
        return []
    if spec.gpus > policy.debug_max_gpus:
        return []
    if spec.min_runtime <= policy.debug_max_min_runtime:
        allowed = gpu_hours(policy.debug_gpu_time_per_day)
        return [f"its author has used the {allowed:g} GPU-hours per day that the debug rule favours"]
    short = format_duration(policy.debug_max_min_runtime)
    return [f"a declared minimum runtime of at most {short} puts it first in its account (debug rule)"]


def help_running(job: JobSight, account: AccountSight | None, now: int) -> list[str]:
    """Return what its author should know about a job that has devices."""
    if not job.spec.allocated:
        return ["a declared minimum runtime would charge and protect it"]
    if job.protected_until > now:
        return []
    found = []
    if account is not None and 0 <= account.balance < 1:
        found.append("its account is still owed time, so others do not preempt it for theirs")
    if not job.spec.resumable:
        found.append(
            "it is not resumable: a preemption would lose its work; checkpoints and --resumable keep it"
        )
    return found
