"""`fairshare`: Slurm's multifactor priority with Fair Tree, and backfill; no preemption for fairness.

The documented rule, re-implemented (slurm.schedmd.com/priority_multifactor.html, fair_tree.html,
sched_config.html), with the weights of the documentation's sample configuration:

    PriorityType=priority/multifactor    PriorityDecayHalfLife=7-0    PriorityCalcPeriod=5
    PriorityWeightFairshare=10000        PriorityWeightAge=1000       PriorityMaxAge=7-0
    PriorityWeightJobSize=1000           PriorityFavorSmall=NO        SchedulerType=sched/backfill

Where it is simpler than Slurm: all usage counts, also that of jobs that declare no minimum runtime;
factors are those of the last full calculation period; one reservation is held, for the first blocked job
(EASY), where Slurm's backfill tries to hold one for each of the jobs that it gets to.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import Final

import numpy as np

from divvy.fleet.job import JobSpec, Phase
from divvy.fleet.snapshot import NEVER, JobTable, Snapshot
from divvy.planners.jobs.backfill import LimitQueue, Shape, shape_of
from divvy.planners.jobs.backfilling import BackfillingPlanner
from divvy.planners.jobs.fairtree import DecayedUsage, FairTree, Floats
from divvy.units import DAY, MINUTE

HALF_LIFE: Final = 7 * DAY
CALC_PERIOD: Final = 5 * MINUTE
MAX_AGE: Final = 7 * DAY
WEIGHT_FAIRSHARE: Final = 10_000.0
WEIGHT_AGE: Final = 1_000.0
WEIGHT_JOB_SIZE: Final = 1_000.0

_NOBODY: Final = -1
_Rank = tuple[float, int]
_Head = tuple[_Rank, int, LimitQueue]


class FairsharePlanner(BackfillingPlanner[_Rank]):
    """Order of Slurm's priority, highest first, then of submission."""

    name = "fairshare"

    # -- usage ----------------------------------------------------------------------------------------

    def _clear(self) -> None:
        super()._clear()
        self._usage = DecayedUsage(HALF_LIFE)
        self._association: dict[tuple[str, str], int] = {}
        self._leaf: list[int] = []
        self._using: set[int] = set()
        self._changes: list[tuple[int, int, int]] = []
        self._period = NEVER
        self._used: Floats = np.zeros(0)
        self._leaves: dict[str, int] = {}
        self._tree: FairTree | None = None
        self._table: JobTable | None = None
        self._base: list[float] = []
        self._size = 0.0
        self._order: dict[Shape, list[_Head]] = {}
        self._head_of: dict[LimitQueue, _Head] = {}
        self._waiting: dict[Shape, dict[LimitQueue, None]] = {}
        self._stale = True

    def _begin(self, snapshot: Snapshot) -> None:
        tree = snapshot.tree
        self._tree = FairTree(tree)
        self._leaves = {tree.paths[leaf]: leaf for leaf in tree.leaves}
        self._table = snapshot.jobs

    def _who(self, spec: JobSpec) -> int:
        """Return the association of a job, `_NOBODY` where its account has left the tree."""
        who = self._association.get((spec.account, spec.author))
        if who is None:
            leaf = self._leaves.get(spec.account)
            if leaf is None:
                return _NOBODY
            who = self._association[spec.account, spec.author] = self._usage.grow()
            self._leaf.append(leaf)
            self._stale = True
        return who

    def _key(self, spec: JobSpec) -> tuple[int, Shape]:
        return self._who(spec), shape_of(spec)

    def _ran(self, jobs: JobTable, row: int) -> None:
        """Collect when devices came into and went out of use; they are applied in order of time."""
        spec, phase = jobs.spec[row], jobs.phase[row]
        who = self._who(spec)
        if who == _NOBODY:
            return
        if phase in (Phase.RUNNING, Phase.STOPPING):
            if row not in self._using:
                self._using.add(row)
                self._changes.append((jobs.started[row], who, spec.gpus))
        elif phase.terminal or phase is Phase.QUEUED:
            ended = jobs.stopped[row] if phase.terminal else jobs.queued[row]
            if row in self._using:
                self._using.remove(row)
                self._changes.append((ended, who, -spec.gpus))
            elif phase.terminal and jobs.started[row] != NEVER:  # began and ended since the last pass
                self._changes += [(jobs.started[row], who, spec.gpus), (ended, who, -spec.gpus)]

    def _moved(self) -> None:
        self._stale = True

    def _synced(self, snapshot: Snapshot, now: int) -> None:
        """Apply what ran; at the end of a period, take the usage from which its priorities follow."""
        changes = sorted(self._changes)
        self._changes = []
        period = now // CALC_PERIOD
        if period != self._period:
            self._period = period
            early = bisect_right(changes, (period * CALC_PERIOD + 1,))
            self._apply(changes[:early])
            del changes[:early]
            self._used = self._usage.at(period * CALC_PERIOD)
            self._stale = True
        self._apply(changes)
        if self._stale:
            self._size = WEIGHT_JOB_SIZE / max(snapshot.healthy_gpus(), 1)

    def _apply(self, changes: Sequence[tuple[int, int, int]]) -> None:
        for at, who, devices in changes:
            self._usage.change(who, at, devices)

    # -- priority -------------------------------------------------------------------------------------

    def _rank(self, queue: LimitQueue, row: int) -> _Rank:
        assert self._table is not None  # noqa: S101 - set by the first pass
        at, boundary = self._table.submitted[row], self._period * CALC_PERIOD
        if at >= boundary:
            age = 0.0
        elif at <= boundary - MAX_AGE:
            age = WEIGHT_AGE
        else:
            age = (boundary - at) * (WEIGHT_AGE / MAX_AGE)
        return -(self._base[queue.key[0]] + age + self._size * queue.shape.gpus), row

    def _heads(self, shape: Shape) -> Sequence[_Head]:
        if self._stale:
            self._stale = False
            self._calculate()
        return self._order.get(shape, ())

    def _calculate(self) -> None:
        """Take the fair-share factors of this period and order the queues anew."""
        assert self._tree is not None  # noqa: S101 - set by the first pass
        assert self._table is not None  # noqa: S101 - same
        used = np.zeros(len(self._usage))
        used[: len(self._used)] = self._used
        base = self._base = (WEIGHT_FAIRSHARE * self._tree.factors(self._leaf, used)).tolist()
        submitted, boundary = self._table.submitted, self._period * CALC_PERIOD
        oldest, per_ms = boundary - MAX_AGE, WEIGHT_AGE / MAX_AGE
        self._order, self._head_of = {}, {}
        for shape, queues in self._waiting.items():
            size = self._size * shape.gpus
            heads: list[_Head] = []
            for queue in queues:
                row = queue.head()
                at = submitted[row]
                # The arithmetic of _rank, without its calls: this is the hot loop of the policy.
                age = 0.0 if at >= boundary else WEIGHT_AGE if at <= oldest else (boundary - at) * per_ms
                heads.append(((-(base[queue.key[0]] + age + size), row), row, queue))
            heads.sort(key=_first)
            self._order[shape] = heads
            self._head_of.update((head[2], head) for head in heads)

    def _touched(self, queue: LimitQueue) -> None:
        waiting = self._waiting.setdefault(queue.shape, {})
        if queue.waiting:
            waiting[queue] = None
        else:
            waiting.pop(queue, None)
        if self._stale:
            return
        order = self._order.setdefault(queue.shape, [])
        known = self._head_of.pop(queue, None)
        if known is not None:
            del order[bisect_left(order, known[0], key=_first)]
        if queue.waiting:
            row = queue.head()
            head = self._head_of[queue] = (self._rank(queue, row), row, queue)
            insort(order, head, key=_first)


def _first(head: _Head) -> _Rank:
    return head[0]
