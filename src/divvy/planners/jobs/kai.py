"""`kai`: deserved quotas, what is left by weight and past use, minimum runtimes per queue.

The documented rule, re-implemented. Source: github.com/NVIDIA/KAI-Scheduler, docs/fairness, docs/timeaware,
docs/plugins/minruntime.md, docs/developer/designs/time-aware-fairness, with

    deserved quota and over-quota weight: the share     kValue: 0.5 (the example of its documentation)
    usage window: the lookback of the budget, sliding   defaultReclaimMinRuntime: 10m (as there)
    reclaimResolveMethod: lca                            reclaimerUtilizationMultiplier: 1.0

- Down the tree every queue gets its deserved quota, up to what it asks for. The rest is divided in rounds
  among those that ask for more, by P = max(0, w + k (w - u)), w its part of the weights, u its past use
  over the capacity of the window: that is its fair share.
- Queues under their quota go first, then those with the least allocation over fair share.
- Reclaim: a job may evict jobs of other queues if its queue stays within its fair share and the victim's
  queue is above its own, or the same with quotas, and if the reclaimer's ratio of allocation to fair share
  stays below the victim's afterwards. Queues are compared where the two paths part, and the reclaimer's side
  at every level below. A victim must have run for the minimum runtime of the queue one step below the lowest
  common ancestor on its side, or of the nearest above that has one.
- Preempt: a job may evict jobs of lower priority of its own queue.

The last comparison is made with what the victim's queue holds before that victim goes: the documentation says
"afterwards", the code asks it only of a reclaimer above its fair share, which no reclaimer here is.

What the rule does not know: a minimum runtime that a job declares, unallocated work. Left out: consolidation
(moving running jobs), elastic jobs, jobs that may not be preempted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from divvy.fleet.account import ROOT, AccountTree
from divvy.fleet.reason import Reason
from divvy.fleet.snapshot import Snapshot
from divvy.planners.jobs.contest import Contest
from divvy.planners.jobs.quota import Ask, Place, QuotaPlanner, Running
from divvy.units import MINUTE, SECOND

K_VALUE: Final = 0.5
MIN_RUNTIME: Final = 10 * MINUTE
SAMPLE: Final = 5 * MINUTE
"""Past use is read at these intervals, as from a time-series database."""
_SLACK: Final = 1e-9
_RECLAIM = (Reason.PREEMPTED_RECLAIM, Reason.STARTED_BY_RECLAIM)
_SWAP = (Reason.PREEMPTED_SWAP, Reason.STARTED_BY_SWAP)


def min_runtime(tree: AccountTree, mine: int, theirs: int, values: Mapping[str, int], default: int) -> int:
    """Return how long a run of leaf ``theirs`` must have run before leaf ``mine`` may reclaim it, ms.

    Args:
        tree: The queues.
        mine: Row of the reclaimer's queue.
        theirs: Row of the victim's queue.
        values: Minimum runtimes by path, where a queue has one.
        default: Where none of them has.
    """
    _, row = tree.parting(mine, theirs)
    while row != ROOT:
        value = values.get(tree.paths[row])
        if value is not None:
            return value
        row = tree.parent[row]
    return default


def divide(
    amount: float,
    deserved: Sequence[float],
    asked: Sequence[float],
    weight: Sequence[float],
    used: Sequence[float],
    k: float = K_VALUE,
) -> list[float]:
    """Return the fair shares of siblings: quota first, then rounds over the rest.

    Args:
        amount: What there is to divide.
        deserved: Quotas.
        asked: What each wants in all.
        weight: Over-quota weights.
        used: Past use over the capacity of the window, a part of 1.
        k: How much past use counts.
    """
    fair = [min(quota, want) for quota, want in zip(deserved, asked, strict=True)]
    left = amount - sum(fair)
    hungry = [n for n, want in enumerate(asked) if want > fair[n] + _SLACK and weight[n] > 0]
    while left > _SLACK and hungry:
        total = sum(weight[n] for n in hungry)
        parts = [max(0.0, (w := weight[n] / total) + k * (w - used[n])) for n in hungry]
        whole = sum(parts)
        if whole <= 0:  # all of them have used far more than their weight: by weight alone
            parts, whole = [weight[n] for n in hungry], total
        given = 0.0
        for n, part in zip(hungry, parts, strict=True):
            more = min(left * part / whole, asked[n] - fair[n])
            fair[n] += more
            given += more
        left -= given
        still = [n for n in hungry if asked[n] > fair[n] + _SLACK]
        if len(still) == len(hungry):
            break
        hungry = still
    return fair


class KaiPlanner(QuotaPlanner):
    """Plans by quota and fair share; see the module's text.

    Args:
        min_runtimes: Minimum runtimes before reclaim by path of the queue, ms.
        default: Where neither a queue nor one above it has any.
    """

    name = "kai"

    def __init__(self, min_runtimes: Mapping[str, int] | None = None, default: int = MIN_RUNTIME) -> None:
        super().__init__()
        self._min_runtimes = min_runtimes or {}
        self._default = default
        self._used: list[float] = []
        self._sampled = (-1, -1)

    def _decide(self) -> None:
        self._tree = tree = self._snapshot.tree
        self._held = [0.0] * len(tree)
        asked = [0.0] * len(tree)
        for leaf, team in self._teams.items():
            for row in tree.lineage[leaf]:
                self._held[row] += team.held
                asked[row] += team.held + team.waiting
        self._fair = self._fair_shares(asked)
        vain: set[tuple[int, Ask]] = set()
        if self._room.total:
            self._in_turn(vain, self._allocate)
        vain.clear()
        if any(self._may_gain(leaf, 1) for leaf in self._asking):
            self._in_turn(vain, self._reclaim)
        vain.clear()
        if self._ranked:
            self._in_turn(vain, self._preempt)

    def _look_again(self) -> int:
        """Return the next sample of past use, or the end of a minimum runtime if that is earlier."""
        if not self._asking:
            return 0
        sample = (self._now // SAMPLE + 1) * SAMPLE
        ends = [self._default, *self._min_runtimes.values()]
        ripe = min(
            (
                at
                for team in self._teams.values()
                for run in team.runs.values()
                for end in ends
                if (at := run.started + end) > self._now
            ),
            default=sample,
        )
        return max(min(sample, ripe), self._now + SECOND)

    # -- fair shares --------------------------------------------------------------------------------------

    def _fair_shares(self, asked: Sequence[float]) -> list[float]:
        tree, used = self._tree, self._past_use(self._snapshot)
        fair = [0.0] * len(tree)
        fair[ROOT] = float(self._capacity)
        for row, children in enumerate(tree.children):
            if children:
                weight = [self._due[child] for child in children]
                parts = divide(
                    fair[row], weight, [asked[c] for c in children], weight, [used[c] for c in children]
                )
                for child, part in zip(children, parts, strict=True):
                    fair[child] = part
        return fair

    def _past_use(self, snapshot: Snapshot) -> list[float]:
        """Return device-time used in the window over that of the fleet, per tree row, at the last sample."""
        at = self._now - self._now % SAMPLE
        if self._sampled == (at, len(self._tree)) and self._used:
            return self._used
        lookback = snapshot.policy.lookback
        offered = snapshot.capacity.windowed(at, lookback, 0)
        used = [0.0] * len(self._tree)
        for leaf in self._tree.leaves:
            both = (snapshot.usage[leaf], snapshot.unallocated[leaf])
            mine = sum(history.windowed(at, lookback, 0) for history in both)
            for row in self._tree.lineage[leaf]:
                used[row] += mine / offered if offered else 0.0
        self._used, self._sampled = used, (at, len(self._tree))
        return used

    # -- actions ------------------------------------------------------------------------------------------

    def _in_turn(self, vain: set[tuple[int, Ask]], action: Callable[[int, Ask, Place], bool]) -> None:
        """Let queues act in order, each with the first job of a kind that was not tried in vain."""
        contest = Contest(self._tree, list(self._asking), self._order)
        while (leaf := contest.first()) is not None:
            heads = sorted(
                (queue[0], ask)
                for ask, queue in self._teams[leaf].queues.items()
                if self._fits[ask.shape] and (leaf, ask) not in vain
            )
            for place, ask in heads:
                if action(leaf, ask, place):
                    contest.moved(leaf)
                    break
                vain.add((leaf, ask))
            else:
                contest.close(leaf)

    def _order(self, row: int) -> tuple[bool, float, int]:
        """Return the place of a queue among its siblings: under quota first, then the least saturated."""
        return self._held[row] >= self._due[row], self._saturation(row), row

    def _saturation(self, row: int, more: float = 0.0) -> float:
        held = self._held[row] + more
        return held / self._fair[row] if self._fair[row] > _SLACK else float("inf") if held else 0.0

    def _allocate(self, leaf: int, ask: Ask, place: Place) -> bool:
        placement = self._find(ask.shape)
        if placement is None:
            return False
        self._start(place[2], placement, Reason.STARTED_FREE)
        self._move(leaf, ask.shape.gpus)
        return True

    def _may_gain(self, leaf: int, gpus: int) -> bool:
        """Return whether a queue would stay within its fair share or its quota."""
        return self._held[leaf] + gpus <= max(self._fair[leaf], self._due[leaf]) + _SLACK

    def _reclaim(self, leaf: int, ask: Ask, place: Place) -> bool:
        gpus = ask.shape.gpus
        if not self._may_gain(leaf, gpus):
            return False
        sides = self._sides(leaf, gpus)
        if not sides:
            return False
        runs = self._reclaimable(leaf, sides)
        if self._room.total + sum(run.gpus for run in runs) < gpus:
            return False
        found = self._make_room(ask.shape, runs, self._stays_fair(gpus, sides))
        return found is not None and self._take(leaf, ask, place, found, _RECLAIM)

    def _preempt(self, leaf: int, ask: Ask, place: Place) -> bool:
        own = sorted(
            (run for run in self._runs((leaf,)) if run.priority < -place[0]),
            key=lambda run: (run.priority, -run.started, -run.row),
        )
        if self._room.total + sum(run.gpus for run in own) < ask.shape.gpus:
            return False
        found = self._make_room(ask.shape, own, lambda _run, _taken: True)
        return found is not None and self._take(leaf, ask, place, found, _SWAP)

    def _take(
        self,
        leaf: int,
        ask: Ask,
        place: Place,
        found: tuple[tuple[tuple[int, int], ...], list[Running]],
        reasons: tuple[Reason, Reason],
    ) -> bool:
        self._replace(place[2], found, reasons, self._saturation)
        for run in found[1]:
            self._move(run.leaf, -run.gpus)
        self._move(leaf, ask.shape.gpus)
        return True

    def _move(self, leaf: int, gpus: int) -> None:
        for row in self._tree.lineage[leaf]:
            self._held[row] += gpus

    # -- reclaim --------------------------------------------------------------------------------------------

    def _sides(self, leaf: int, gpus: int) -> dict[int, tuple[int, tuple[bool, bool]]]:
        """Return per victim queue the reclaimer's row where paths part, and which strategies hold for it."""
        tree, sides = self._tree, {}
        for other, team in self._teams.items():
            if other == leaf or not team.runs:
                continue
            mine, theirs = tree.parting(leaf, other)
            path = tree.lineage[leaf][tree.lineage[leaf].index(mine) :]
            by_fair = self._within(path, gpus, self._fair) and self._held[theirs] > self._fair[theirs]
            by_quota = self._within(path, gpus, self._due) and self._held[theirs] > self._due[theirs]
            if by_fair or by_quota:
                sides[other] = mine, (by_fair, by_quota)
        return sides

    def _within(self, path: Iterable[int], gpus: int, bound: Sequence[float]) -> bool:
        return all(self._held[row] + gpus <= bound[row] + _SLACK for row in path)

    def _reclaimable(self, leaf: int, sides: Mapping[int, tuple[int, tuple[bool, bool]]]) -> list[Running]:
        """Return the runs of those queues past their minimum runtime: the most saturated queue first."""
        tree = self._tree
        least = {other: min_runtime(tree, leaf, other, self._min_runtimes, self._default) for other in sides}
        over = {other: self._saturation(tree.parting(leaf, other)[1]) for other in sides}
        return sorted(
            (run for run in self._runs(sides) if run.started + least[run.leaf] <= self._now),
            key=lambda run: (-over[run.leaf], run.priority, -run.started, -run.row),
        )

    def _stays_fair(
        self, gpus: int, sides: Mapping[int, tuple[int, tuple[bool, bool]]]
    ) -> Callable[[Running, dict[int, int]], bool]:
        """Return whether a run may leave, given what has been taken from its side already."""
        tree = self._tree

        def may(run: Running, taken: dict[int, int]) -> bool:
            mine, (by_fair, by_quota) = sides[run.leaf]
            theirs = next(row for row in tree.lineage[run.leaf] if tree.parent[row] == tree.parent[mine])
            gone = sum(count for leaf, count in taken.items() if theirs in tree.lineage[leaf])
            left = self._held[theirs] - gone
            if not (by_fair and left > self._fair[theirs]) and not (by_quota and left > self._due[theirs]):
                return False
            return self._saturation(mine, gpus) < self._saturation(theirs, -gone)

        return may
