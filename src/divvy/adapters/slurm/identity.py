"""Which job of Slurm is which one here, and whether it could start."""

from __future__ import annotations

from collections.abc import Mapping

from divvy.adapters.slurm.record import SlurmJob


def base_id(name: str) -> str:
    """Return Slurm's id of a job here: one that came back after its end is called ``ID@SECONDS``."""
    return name.partition("@")[0]


def ids(jobs: Mapping[str, object]) -> list[str]:
    """Return job ids in their natural order."""
    return sorted(jobs, key=lambda name: [int(part) if part.isdecimal() else 0 for part in name.split("_")])


def is_ready(job: SlurmJob, now: int) -> bool:
    """Return whether a waiting job could start if it had devices: nothing else holds it back.

    A hold of the user or of an administrator is theirs; a job held so is not Divvy's to start.
    """
    if not job.waits or "unfulfilled" in job.dependency or job.eligible > now:
        return False
    return not job.held or job.ours
