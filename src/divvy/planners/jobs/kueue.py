"""`kueue`: instantaneous quotas in one cohort, borrowing, and reclaim of what was lent.

The documented rule, re-implemented. Source: kueue.sigs.k8s.io/docs/concepts/cluster_queue and
kueue.sigs.k8s.io/docs/concepts/preemption (classic preemption), with

    queueingStrategy: BestEffortFIFO      borrowingLimit: none      nominalQuota: share x devices
    preemption: {reclaimWithinCohort: Any, borrowWithinCohort: Never, withinClusterQueue: LowerPriority}

- Of the first jobs of all queues, those that fit their nominal quota go first, then by priority, then age.
  A job that does not fit blocks nobody behind it.
- Any queue may borrow what the cohort does not use.
- A job that would stay within nominal quota may preempt: jobs of queues that borrow, the lowest priority
  and the latest admitted first, and jobs of lower priority of its own queue; as many as needed, then, from
  the last back, those that are not needed stay.
- A job that would borrow may only preempt jobs of lower priority of its own queue.

What the rule does not know: the past (usage counts at this instant), a minimum runtime, unallocated work.
Where it is simpler than Kueue: leaf accounts of any depth are queues of one cohort, and a workload is
admitted only where its gang can be placed, as with topology-aware scheduling.
"""

from __future__ import annotations

from collections.abc import Callable

from divvy.fleet.reason import Reason
from divvy.planners.jobs.backfill import Shape
from divvy.planners.jobs.quota import Ask, Place, QuotaPlanner, Running

_RECLAIM = (Reason.PREEMPTED_RECLAIM, Reason.STARTED_BY_RECLAIM)
_SWAP = (Reason.PREEMPTED_SWAP, Reason.STARTED_BY_SWAP)


class KueuePlanner(QuotaPlanner):
    """Plans by nominal quotas; see the module's text."""

    name = "kueue"

    def _decide(self) -> None:
        vain: set[tuple[int, Ask]] = set()
        while any(self._turn(entry, vain) for entry in self._entries(vain)):
            pass

    def _entries(self, vain: set[tuple[int, Ask]]) -> list[tuple[tuple[bool, Place], int, Ask]]:
        """Return the first jobs in the order in which they are considered; those without any hope left out.

        Within quota first, then priority, then age.
        """
        free = self._room.total
        lent = any(team.held > self._quota[leaf] for leaf, team in self._teams.items())
        found: list[tuple[tuple[bool, Place], int, Ask]] = []
        for leaf in self._asking:
            team, quota = self._teams[leaf], self._quota[leaf]
            for ask, queue in team.queues.items():
                gpus = ask.shape.gpus
                borrows = team.held + gpus > quota
                hope = gpus <= free or self._ranked or (lent and not borrows)
                if hope and self._fits[ask.shape] and (leaf, ask) not in vain:
                    found.append(((borrows, queue[0]), leaf, ask))
        return sorted(found)

    def _turn(self, entry: tuple[tuple[bool, Place], int, Ask], vain: set[tuple[int, Ask]]) -> bool:
        (borrows, place), leaf, ask = entry
        if self._admit(leaf, ask.shape, place, borrows=borrows):
            return True
        vain.add((leaf, ask))
        return False

    def _admit(self, leaf: int, shape: Shape, place: Place, *, borrows: bool) -> bool:
        placement = self._find(shape)
        if placement is not None:
            self._start(place[2], placement, Reason.STARTED_FREE)
            return True
        own = [run for run in self._runs((leaf,)) if run.priority < -place[0]]
        own.sort(key=_gives_way)
        if not borrows:
            borrowers = [
                other
                for other, team in self._teams.items()
                if other != leaf and team.held > self._quota[other]
            ]
            others = sorted(self._runs(borrowers), key=_gives_way)
            if self._enough(shape, others + own):
                found = self._make_room(shape, others + own, self._borrows_still(leaf))
                if found is not None:
                    self._replace(place[2], found, _RECLAIM, self._ratio)
                    return True
        if own and self._enough(shape, own):
            found = self._make_room(shape, own, lambda _run, _taken: True)
            if found is not None:
                self._replace(place[2], found, _SWAP, self._ratio)
                return True
        return False

    def _enough(self, shape: Shape, runs: list[Running]) -> bool:
        return bool(runs) and self._room.total + sum(run.gpus for run in runs) >= shape.gpus

    def _borrows_still(self, leaf: int) -> Callable[[Running, dict[int, int]], bool]:
        """Return whether a run's queue still borrows after what it gives up already; own jobs always may."""

        def may(run: Running, taken: dict[int, int]) -> bool:
            if run.leaf == leaf:
                return True
            return self._teams[run.leaf].held - taken.get(run.leaf, 0) > self._quota[run.leaf]

        return may

    def _ratio(self, leaf: int) -> float:
        quota = self._quota[leaf]
        return self._teams[leaf].held / quota if quota else float("inf")


def _gives_way(run: Running) -> tuple[int, int, int]:
    """Order of preemption: the lowest priority, then the latest admitted."""
    return run.priority, -run.started, -run.row
