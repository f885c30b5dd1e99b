"""Start intervals of the live system: its newest state, read from the store, run on by the same planner."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from divvy.adapters.store import archive
from divvy.adapters.store.database import open_database
from divvy.adapters.store.reader import Reader
from divvy.bootstrap.settings import LiveSettings
from divvy.control.codec import state_document
from divvy.fleet.job import Phase
from divvy.planners.jobs import registry
from divvy.sim.foresight.interval import StartInterval, start_intervals
from divvy.sim.foresight.past import REMEMBERED, Arrival, Ended, Past
from divvy.units import DAY

_LOOKBACK: Final = 7 * DAY
_ARRIVALS: Final = 20_000


def foresee(
    settings: LiveSettings, watched: Sequence[str], now: int, seconds: float
) -> dict[str, StartInterval]:
    """Return the start intervals of waiting jobs; jobs that do not wait in the newest state are left out.

    Reads the store and nothing else; give it a process of its own, since it computes all the time it has.

    Args:
        settings: Which store, which planner.
        watched: Ids.
        now: Present time by the scheduler's clock, ms.
        seconds: How long to compute at most, once the state is read.

    Raises:
        DivvyError: If the store cannot be read.
    """
    database = open_database(settings.database)
    try:
        state = archive.load(database).state
        reader = Reader(database)
        since = now - _LOOKBACK
        ended = [Ended(spec, ran) for spec, ran in reader.endings(since, REMEMBERED)]
        submitted = [Arrival(*row) for row in reader.submissions(since, _ARRIVALS)]
    finally:
        database.dispose()
    jobs = state.snapshot.jobs
    queued = {jobs.spec[row].id for row in jobs.live if jobs.phase[row] is Phase.QUEUED}
    waiting = [name for name in watched if name in queued]
    begin = submitted[0].at if len(submitted) == _ARRIVALS else since
    deadline = time.monotonic() + seconds
    return start_intervals(
        state_document(state.snapshot),
        lambda: registry.create(settings.policy),
        Past(ended, submitted, min(begin, now), now),
        waiting,
        seed=now,
        enough=lambda: time.monotonic() > deadline,
    )
