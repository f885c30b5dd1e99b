"""How a run ended, from what Ray and its driver say."""

from __future__ import annotations

from typing import Any, Final

from divvy.adapters.ray.record import RayJob
from divvy.control.loop import goes_back
from divvy.fleet.event import Stopped
from divvy.fleet.job import JobSpec, StopCause
from divvy.units import format_duration

_GENTLE: Final = (StopCause.PREEMPTED, StopCause.DRAINED)
_ENDS: Final = {
    "limit": StopCause.TIME_LIMIT,
    "lost": StopCause.NODE_LOST,
    "start": StopCause.START_FAILED,
}
_SHOWN: Final = 300


def stopped(spec: JobSpec, job: RayJob, asked: StopCause | None, at: int) -> Stopped:
    """Return the event of a run that is over.

    Args:
        spec: The job.
        job: Its Ray job.
        asked: Why it was told to leave, if it was.
        at: Its end in the state's time.
    """
    said = job.verdict()
    code = said.get("exit") if said else job.exit_code
    if asked is not None:
        done = code == 0 and said.get("rung") in ("RUN", "WARN")
        finished = done and asked in _GENTLE and not goes_back(spec, asked)
        cause = StopCause.FINISHED if finished else asked
    else:
        cause = _cause(job, said)
    code = code if isinstance(code, int) and code >= 0 else None
    return Stopped(at, spec.id, cause, goes_back(spec, cause), code, _detail(spec, job, cause, code))


def _cause(job: RayJob, said: dict[str, Any]) -> StopCause:
    """Return why a run ended that was not told to leave."""
    if job.status == "SUCCEEDED":
        return StopCause.FINISHED
    if said.get("end") in _ENDS:
        return _ENDS[said["end"]]
    if job.status == "STOPPED":
        return StopCause.CANCELLED
    if said:
        return StopCause.FAILED
    return StopCause.NODE_LOST if job.began else StopCause.START_FAILED


def _detail(spec: JobSpec, job: RayJob, cause: StopCause, code: int | None) -> str:
    if cause is StopCause.CANCELLED and job.status == "STOPPED":
        return "stopped in Ray"
    if cause is StopCause.TIME_LIMIT:
        return f"its time limit of {format_duration(spec.time_limit)} was reached"
    if cause is StopCause.FAILED:
        return f"exit code {code}"
    if cause is StopCause.NODE_LOST:
        return "a node of it, or its driver, was lost"
    if cause is StopCause.START_FAILED:
        return f"Ray could not begin it: {job.error or job.message[:_SHOWN] or job.status}"
    return ""
