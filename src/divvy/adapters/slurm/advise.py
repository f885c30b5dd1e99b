"""Mode advise: the order in which Divvy would start the waiting jobs, as nice values that Slurm adds up.

Slurm decides everything; only the order of its queue follows the budget. Jobs are put into bands that grow
with the distance from the front, so that a queue that moves changes few values: the first job, the next, then
2, 4, 8 and so on. A nice value adds to whatever priority Slurm has computed, and setting it to 0 takes it
back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from divvy.adapters.slurm.identity import base_id, ids
from divvy.adapters.slurm.record import SlurmJob
from divvy.adapters.slurm.text import chunks
from divvy.fleet.decision import Plan, Start
from divvy.fleet.job import Phase
from divvy.fleet.snapshot import Snapshot

_BANDS: Final = 20


def order(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Return the waiting jobs as Divvy would start them: Slurm's ids, the first one first.

    First what the plan would start now. Then account by account in the order of their ranks, one job of
    each in turn, inside an account by priority and age; free work comes last.
    """
    jobs = snapshot.jobs
    first = [decision.job for decision in plan.decisions if isinstance(decision, Start)]
    chosen = set(first)
    rank = {standing.account: standing.rank for standing in plan.standings}
    waiting = [row for row in jobs.live if jobs.phase[row] is Phase.QUEUED and row not in chosen]
    waiting.sort(key=lambda row: (-jobs.spec[row].priority, not jobs.debug[row], jobs.submitted[row], row))
    turn: dict[tuple[bool, int], int] = {}
    keyed: list[tuple[bool, int, int, int]] = []
    for row in waiting:
        free, account = not jobs.spec[row].allocated, jobs.account[row]
        place = turn[free, account] = turn.get((free, account), -1) + 1
        keyed.append((free, place, rank.get(account, len(rank)), row))
    return [base_id(jobs.spec[row].id) for row in (*first, *(row for *_, row in sorted(keyed)))]


def nice_commands(wanted: list[str], present: Mapping[str, SlurmJob], step: int) -> list[tuple[str, ...]]:
    """Return the commands that give the waiting jobs their nice values, where they have others.

    Args:
        wanted: Waiting jobs in order.
        present: Jobs of the view.
        step: Points between two bands.
    """
    change: dict[int, dict[str, None]] = {}
    for place, name in enumerate(wanted):
        job = present.get(name)
        band = min(place.bit_length(), _BANDS)
        nice = -(_BANDS - band) * step
        if job is not None and job.waits and job.nice != nice:
            change.setdefault(nice, {})[name] = None
    return [
        ("scontrol", "update", f"JobId={','.join(part)}", f"Nice={nice}")
        for nice, names in sorted(change.items())
        for part in chunks(ids(names))
    ]
