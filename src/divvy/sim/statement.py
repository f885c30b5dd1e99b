"""The statement of a replay: the one that `divvy statement` gives live, made from a record."""

from __future__ import annotations

from divvy.control.facts import Adjustment, Capacity, Demand, Epoch, Occupancy
from divvy.control.hourly import mean_weight
from divvy.control.statement import Statement, make_statement
from divvy.fleet.job import StopCause
from divvy.fleet.ledger import OCCUPANCY, LedgerEntry
from divvy.sim.measures import Window
from divvy.sim.recorder import OPEN
from divvy.sim.replay import Replay

#: Ledger numbers of a replay are those of its runs, from 1, in the order of their starts; adjustments follow.
FIRST = 1


def replay_statement(replay: Replay, window: Window, *, listed: bool = False) -> tuple[Statement, list[str]]:
    """Return the statement of the part of a replay that counts, and what to know about it.

    Unlike live, checkpoints are simulated here: work lost since the last one, and time spent restoring, is
    known, counts as lost, and is not delivered.
    """
    record, spec = replay.record, replay.workload.spec
    over = [replay.end if at == OPEN else at for at in record.over]
    payers = record.payers()
    demands = [
        Demand(
            payers.get(row, job.account), replay.workload.submit[row], over[row], job.gpus, job.id, job.model
        )
        for row, job in enumerate(spec)
        if job.allocated and record.submitted[row]
    ]
    made = make_statement(
        window.start,
        window.end,
        [Epoch(0, replay.budget.tree), *(Epoch(at, tree) for at, tree in replay.record.trees)],
        [Capacity(capacity.at, capacity.gpus, capacity.models) for capacity in record.capacity],
        demands,
        _occupancies(replay),
        [
            Adjustment(
                entry.account,
                entry.start,
                entry.charge,
                f"{entry.cause} of {entry.job}" if entry.job else entry.cause,
                number,
            )
            for number, entry in adjustments(replay)
        ],
        mean_weight(((step.at, step.gpus, step.rate) for step in record.capacity), window.start, window.end),
        listed=listed,
    )
    return made, ["replayed: checkpoints are simulated, so lost work is known to the millisecond"]


def adjustments(replay: Replay) -> list[tuple[int, LedgerEntry]]:
    """Return every charge besides occupancy with its number, which goes on where those of the runs end."""
    # The last run ends with the replay: its price is due at that very instant, which no period would hold.
    last = replay.end - 1
    found = [
        entry._replace(start=min(entry.start, last)) for entry in replay.ledger if entry.cause != OCCUPANCY
    ]
    return list(enumerate(found, len(replay.record.job) + FIRST))


def _occupancies(replay: Replay) -> list[Occupancy]:
    record, spec = replay.record, replay.workload.spec
    weights = {
        (entry.job, entry.attempt): entry.weight for entry in replay.ledger if entry.cause == OCCUPANCY
    }
    attempts = [0] * len(spec)
    found: list[Occupancy] = []
    for run, row in enumerate(record.job):
        attempts[row] += 1
        job = spec[row]
        ended = record.over[row] != OPEN or record.cause[run] is not StopCause.FINISHED
        found.append(
            Occupancy(
                record.payer[run] or job.account,
                record.start[run],
                record.end[run],
                job.gpus,
                weights.get((job.id, attempts[row]), job.gpus),
                job.allocated,
                record.lost[run],
                job.min_runtime,
                protected=job.min_runtime if record.protected[run] else 0,
                restore=record.restore[run],
                entry=run + FIRST if ended else 0,
                job=job.id,
                attempt=attempts[row],
            )
        )
    return found
