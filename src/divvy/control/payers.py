"""Which account pays for a job that names several: the first that is under-served.

Asked while the job waits, once a tick: balances stand still in between. Where none of its accounts is
under-served the first pays. Once a job runs, its run is paid for by whoever was to pay when it started.
"""

from __future__ import annotations

from collections.abc import Iterator

from divvy.fleet.event import Reassigned
from divvy.fleet.job import Phase
from divvy.fleet.snapshot import Snapshot
from divvy.planners.jobs.balance import Balances, balances_at, tick_length, tick_of
from divvy.planners.jobs.feasible import shares_of

NEVER = 1 << 62


class Payers:
    """Remembers which jobs were asked about in the present tick."""

    def __init__(self) -> None:
        self._tick = -1
        self._asked: dict[str, None] = {}
        self._waiting = False

    def due(self, snapshot: Snapshot, now: int) -> Iterator[Reassigned]:
        """Yield the changes of payer that are due."""
        jobs = snapshot.jobs
        self._waiting = False
        if not jobs.several:
            return
        tick = tick_of(now, snapshot.policy.lookback)
        if tick != self._tick:
            self._tick, self._asked = tick, {}
        waiting = [name for name in jobs.several if jobs.phase[jobs.row[name]] is Phase.QUEUED]
        self._waiting = bool(waiting)
        new = [name for name in waiting if name not in self._asked]
        if not new:
            return
        balances = balances_at(snapshot, tick, snapshot.capacity.rate, shares_of(snapshot))
        self._asked |= dict.fromkeys(new)
        for name in new:
            row = jobs.row[name]
            payer = first_under_served(snapshot, balances, jobs.spec[row].budgets)
            if payer is not None and payer != jobs.spec[row].account:
                yield Reassigned(now, name, payer)

    def next(self, now: int, lookback: int) -> int:
        """Return when balances are read again, a large number where nobody waits for it."""
        return tick_of(now, lookback) + tick_length(lookback) if self._waiting else NEVER


def first_under_served(snapshot: Snapshot, balances: Balances, accounts: tuple[str, ...]) -> str | None:
    """Return the first account with a balance below 1, else the first that there is; None: none is there."""
    tree = snapshot.tree
    leaves = [tree.row[path] for path in accounts if path in tree.row and not tree.children[tree.row[path]]]
    chosen = next((leaf for leaf in leaves if balances.of[leaf] < 1.0), leaves[0] if leaves else None)
    return None if chosen is None else tree.paths[chosen]
