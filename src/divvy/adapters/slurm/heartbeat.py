"""The heartbeat: a file whose age tells others whether Divvy looks after the jobs that it holds back.

It is written after each look at Slurm in mode enforce, never otherwise: when Divvy is down, or does not
reach Slurm, it grows old. ``job_submit.lua`` then holds no more jobs, and ``divvy slurm fail-open`` frees
those that are held. See docs/adr/0111-fail-open.md.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path

from divvy.adapters.slurm.record import SlurmJob


def beat(path: Path, now_seconds: int) -> None:
    """Write the time (s since the Unix epoch), whole or not at all; on a full disk the file grows old."""
    with contextlib.suppress(OSError):
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(f"{now_seconds}\n", encoding="ascii")
        fresh.chmod(0o644)
        fresh.replace(path)


def age_seconds(path: Path, now_seconds: float | None = None) -> float | None:
    """Return how old the heartbeat is; None where there is none that can be read."""
    try:
        beaten = int(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return None
    return max((time.time() if now_seconds is None else now_seconds) - beaten, 0.0)


def to_free(jobs: Iterable[SlurmJob]) -> list[str]:
    """Return the jobs that Divvy holds back: held, marked, and not held by their user."""
    return [job.id for job in jobs if job.held and job.ours]
