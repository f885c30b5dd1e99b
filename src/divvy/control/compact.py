"""Compaction: a state forgets jobs that are over, so that its memory follows what lives and not what was."""

from __future__ import annotations

from typing import Any, Final

from divvy.control.state import FleetState
from divvy.fleet.snapshot import JobTable

_COLUMNS: Final = tuple(name for name in JobTable.__slots__ if name not in ("row", "live", "several", "slot"))


def dead_rows(state: FleetState) -> int:
    """Return how many rows belong to jobs that are over."""
    jobs = state.snapshot.jobs
    return len(jobs) - len(jobs.live)


def compact(state: FleetState, now: int) -> int:
    """Forget the jobs that are over and renumber the others in their order; return how many went.

    The change log is emptied and the version raised, so that every planner finds the log too short and
    rebuilds its indices. Call it between passes only.
    """
    snapshot, jobs = state.snapshot, state.snapshot.jobs
    before = len(jobs)
    keep = list(jobs.live)
    for name in _COLUMNS:
        column: list[Any] = getattr(jobs, name)
        column[:] = [column[row] for row in keep]
    renumbered = {old: row for row, old in enumerate(keep)}
    jobs.slot = {renumbered[old]: slot for old, slot in jobs.slot.items()}
    jobs.row = {spec.id: row for row, spec in enumerate(jobs.spec)}
    jobs.live = dict.fromkeys(range(len(keep)))
    for key, usage in list(snapshot.author_usage.items()):
        if not usage.rate and not usage.windowed(now, snapshot.policy.lookback, 0):
            del snapshot.author_usage[key]
    snapshot.version += 1
    snapshot.log.clear()
    snapshot.log_start = snapshot.version
    return before - len(keep)
