"""What time alone brings about: events that nobody asks for at the moment when they are due.

Dated shares come into force, another account pays for a job that names several, nodes leave service and come
back, and unallocated work that has reached its lifetime is ended. The loop asks before every pass, live and
in replay, so that both see the same events in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from divvy.control import upkeep
from divvy.control.payers import Payers
from divvy.fleet.account import AccountTree, build_tree
from divvy.fleet.budget import Budget, Policy
from divvy.fleet.event import BudgetChanged, Event, Stopping, Withdrawn
from divvy.fleet.job import Phase, StopCause
from divvy.fleet.snapshot import Snapshot

NEVER: Final = 1 << 62
AUTHOR: Final = "divvy"


class Agenda:
    """Remembers when something is due next, so that a pass in between costs nothing."""

    def __init__(self) -> None:
        self._tree: AccountTree | None = None
        self._policy: Policy | None = None
        self._next_share = NEVER
        self._next_end = NEVER
        self._next_upkeep = NEVER
        self._payers = Payers()
        self._next_payer = NEVER

    def due(self, snapshot: Snapshot, now: int) -> Iterator[Event]:
        """Yield what is due; each event is applied before the next one is made."""
        self._read(snapshot)
        while self._next_share <= now:
            yield new_shares(snapshot)
            self._read(snapshot)
        yield from self._payers.due(snapshot, now)
        self._next_payer = self._payers.next(now, snapshot.policy.lookback)
        yield from upkeep.due(snapshot, now)
        self._next_upkeep = upkeep.next_due(snapshot, now)
        if self._next_end <= now:
            yield from self._ends(snapshot, now)

    def next(self) -> int:
        """Return when something is due next, 0 if nothing is ahead."""
        soonest = min(self._next_share, self._next_end, self._next_upkeep, self._next_payer)
        return soonest if soonest < NEVER else 0

    def _read(self, snapshot: Snapshot) -> None:
        """Look up what is due, where another budget is in force than last time."""
        if self._tree is not snapshot.tree or self._policy is not snapshot.policy:
            self._tree, self._policy = snapshot.tree, snapshot.policy
            self._next_share = min(
                (at for spec in snapshot.tree.specs for at, _ in spec.later), default=NEVER
            )
            self._next_end = 0 if snapshot.policy.unallocated_lifetime else NEVER

    def _ends(self, snapshot: Snapshot, now: int) -> Iterator[Event]:
        """Yield the ends of unallocated jobs that are too old, and note when the next one will be."""
        jobs, lifetime = snapshot.jobs, snapshot.policy.unallocated_lifetime
        soonest = now + lifetime
        for row in list(jobs.live):
            spec, phase = jobs.spec[row], jobs.phase[row]
            if spec.allocated:
                continue
            end = jobs.submitted[row] + lifetime
            if end > now:
                soonest = min(soonest, end)
            elif phase is Phase.QUEUED:
                yield Withdrawn(now, spec.id, StopCause.LIFETIME)
            elif phase is not Phase.STOPPING:
                yield Stopping(now, spec.id, StopCause.LIFETIME)
            elif jobs.stop_cause[row] is not StopCause.LIFETIME:
                soonest = now + 1  # it is leaving, and may go back into the queue
        self._next_end = soonest


def new_shares(snapshot: Snapshot) -> BudgetChanged:
    """Return the budget in which the shares of the next date hold, as a version of its own."""
    tree = snapshot.tree
    due = min(at for spec in tree.specs for at, _ in spec.later)
    changed = [spec.path for spec in tree.specs if any(at <= due for at, _ in spec.later)]
    after = build_tree(spec.from_(due) for spec in tree.specs)
    reason = f"dated share of {', '.join(changed)}"
    document = Budget(snapshot.policy, after).to_document()
    return BudgetChanged(max(due, snapshot.epochs[-1].since), document, AUTHOR, reason)
