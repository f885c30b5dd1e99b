"""How a run ended, in the words of the state: cause, whether the job goes back, exit code, what to tell."""

from __future__ import annotations

import os
import signal
from typing import Any, Final

from divvy.control.loop import goes_back
from divvy.fleet.event import Stopped
from divvy.fleet.job import JobSpec, StopCause
from divvy.units import SECOND, format_duration

#: Who is at fault when a command does not begin (see `shim.child.Fault`).
ENGINE: Final = "engine"
JOB: Final = "job"


def stopped(spec: JobSpec, at: int, ended: dict[str, Any], memory_bytes: int = 0) -> Stopped:
    """Return the event that an end record means; `at` is its end in the state's time.

    A run that was told to leave ended for that cause, whatever its exit code; with one exception: a job
    that could not go back to the queue and exits with 0 while it is only being warned has finished.
    """
    cause = _cause(spec, ended)
    return Stopped(
        at,
        spec.id,
        cause,
        goes_back(spec, cause),
        ended["exit_code"],
        _detail(spec, ended, cause, memory_bytes),
    )


def _cause(spec: JobSpec, ended: dict[str, Any]) -> StopCause:
    asked = ended["cause"]
    if asked:
        cause = StopCause[asked]
        done = ended["exit_code"] == 0 and ended["rung"] in ("RUN", "WARN")
        gentle = cause in (StopCause.PREEMPTED, StopCause.DRAINED)
        return StopCause.FINISHED if done and gentle and not goes_back(spec, cause) else cause
    if ended["fault"] == ENGINE:
        return StopCause.START_FAILED
    return StopCause.FINISHED if ended["exit_code"] == 0 else StopCause.FAILED


def _detail(spec: JobSpec, ended: dict[str, Any], cause: StopCause, memory_bytes: int) -> str:
    """Return what went wrong, for people; empty where nothing did."""
    if ended["message"]:
        return str(ended["message"])
    if ended["oom_kills"]:
        return (
            f"out of memory: the kernel killed {ended['oom_kills']} of its processes at the limit of "
            f"{memory_bytes} bytes; ask for more"
        )
    if cause is StopCause.TIME_LIMIT:
        return f"its time limit of {format_duration(spec.time_limit)} was reached"
    if cause is StopCause.NODE_LOST:
        return "the machine went down"
    return _exit_text(ended) if cause is StopCause.FAILED else ""


def _exit_text(ended: dict[str, Any]) -> str:
    if ended["status"] is None:
        return ""
    if not os.WIFSIGNALED(ended["status"]):
        return f"exit code {ended['exit_code']}"
    number = os.WTERMSIG(ended["status"])
    names = {each.value: each.name for each in signal.Signals}
    return f"ended by {names.get(number, f'signal {number}')}"


def lost(spec: JobSpec, at: int, asked: StopCause | None, *, rebooted: bool) -> Stopped:
    """Return the event of a run whose shim died without an end record.

    Args:
        spec: The job.
        at: Last sign of life, or when the loss was noticed.
        asked: Why it had been told to leave, if it had.
        rebooted: Whether the machine was restarted meanwhile.
    """
    cause = StopCause.NODE_LOST if asked is None else asked
    detail = "the machine was restarted" if rebooted else "the process that supervised it was killed"
    return Stopped(at, spec.id, cause, goes_back(spec, cause), None, detail)


def not_started(spec: JobSpec, at: int, message: str, asked: StopCause | None, *, retry_ms: int) -> Stopped:
    """Return the event of a run that the engine could not start; the job is not lost."""
    cause = StopCause.START_FAILED if asked is None else asked
    wait = f"; the engine tries its next start in {retry_ms / SECOND:g} s"
    return Stopped(at, spec.id, cause, goes_back(spec, cause), None, message + wait)


def refused(spec: JobSpec, at: int, message: str) -> Stopped:
    """Return the event of a job that can never start as it was submitted; it fails, and is not retried."""
    return Stopped(at, spec.id, StopCause.FAILED, requeue=False, exit_code=None, detail=message)


def withdrawn(spec: JobSpec, at: int, cause: StopCause) -> Stopped:
    """Return the event of a run that was told to leave before it began."""
    return Stopped(at, spec.id, cause, goes_back(spec, cause), None, "it had not begun")
