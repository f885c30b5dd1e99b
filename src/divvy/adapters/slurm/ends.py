"""How a run ended in Slurm, in the words of the fleet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from divvy.adapters.slurm.record import PastRun, SlurmJob
from divvy.control.loop import goes_back
from divvy.fleet.event import Stopped
from divvy.fleet.job import JobSpec, StopCause

_CAUSES: Final = {
    "COMPLETED": StopCause.FINISHED,
    "CANCELLED": StopCause.CANCELLED,
    "TIMEOUT": StopCause.TIME_LIMIT,
    "DEADLINE": StopCause.TIME_LIMIT,
    "NODE_FAIL": StopCause.NODE_LOST,
    "BOOT_FAIL": StopCause.NODE_LOST,
}
_SAYS: Final = {
    "OUT_OF_MEMORY": "out of memory",
    "TIMEOUT": "its time limit was reached",
    "DEADLINE": "its deadline was reached",
    "NODE_FAIL": "a node failed",
    "BOOT_FAIL": "a node did not boot",
    "PREEMPTED": "Slurm preempted it by rules of its own",
    "REVOKED": "a sister cluster took it",
}


def ending(spec: JobSpec, job: SlurmJob, asked: StopCause | None) -> Stopped:
    """Return the event of a run that is over for good in Slurm.

    A run that was told to leave ended for that cause, with one exception: a run that exits with 0 has
    finished, and Slurm has told that to the jobs that depend on it.
    """
    cause = _CAUSES.get(job.state, StopCause.FAILED)
    detail = _SAYS.get(job.state, "")
    if asked is not None and cause is not StopCause.FINISHED:
        cause, detail = asked, ""
        if goes_back(spec, asked):
            detail = f"it could not be put back into Slurm's queue ({job.state})"
    code = job.exit_code if cause in (StopCause.FINISHED, StopCause.FAILED) else None
    return Stopped(max(job.end, job.start), spec.id, cause, requeue=False, exit_code=code, detail=detail)


def run_of(runs: Iterable[PastRun], start: int) -> PastRun | None:
    """Return the run that began at a time."""
    return next((run for run in runs if run.start == start), None)


def as_job(run: PastRun) -> SlurmJob:
    """Return a past run as the job that it was."""
    return SlurmJob(
        run.job,
        run.state,
        gpus=run.gpus,
        nodes=run.nodes,
        start=run.start,
        end=run.end,
        exit_code=run.exit_code,
        submit=run.submit,
        account=run.account,
        user=run.user,
        partition=run.partition,
        name=run.name,
        comment=run.comment,
        node_count=max(len(run.nodes), 1),
    )
