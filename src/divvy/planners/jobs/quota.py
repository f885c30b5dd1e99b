"""What the baselines with quotas share: who holds and who waits per account, and victims in a given order.

The rules themselves are in `kueue`, `kai` and `priority`. Devices are counted, not weighed, and work that
declares no minimum runtime is work like any other unless a rule says otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from divvy.fleet.decision import Decision, Placement, Plan, Preempt, Start, Wait
from divvy.fleet.job import JobSpec, Phase
from divvy.fleet.node import NodeState
from divvy.fleet.reason import Reason
from divvy.fleet.snapshot import Change, JobTable, Snapshot
from divvy.planners.base import Context
from divvy.planners.jobs.backfill import Shape, fitting
from divvy.planners.jobs.placement import FreeMap

#: Order inside an account: priority, then age, then row.
Place = tuple[int, int, int]


class Ask(NamedTuple):
    """What a queued job asks for; jobs of one account that ask the same differ only in their order.

    Attributes:
        shape: Of the gang.
        kept: Whether it asks not to be preempted; always false where the baseline knows no such thing.
    """

    shape: Shape
    kept: bool


class Running(NamedTuple):
    """A run as the rules see it.

    Attributes:
        row: The job.
        leaf: Its account.
        gpus: Devices.
        placement: Where.
        priority: Of the job.
        started: When the run began, ms.
        protected: Whether it declared a minimum runtime.
    """

    row: int
    leaf: int
    gpus: int
    placement: Placement
    priority: int
    started: int
    protected: bool


class Team:
    """One leaf account: queued jobs by what they ask for, in order, and runs."""

    __slots__ = ("held", "queues", "runs", "waiting")

    def __init__(self) -> None:
        self.queues: dict[Ask, list[Place]] = {}
        self.runs: dict[int, Running] = {}
        self.held = 0
        """Devices that it holds."""
        self.waiting = 0
        """Devices that its queued jobs ask for."""


class QuotaPlanner(ABC):
    """Follows the change log, asks the rule of the baseline, and keeps trial changes out of its memory.

    What a pass did on trial is read again from the snapshot in the next one, so that a planner made anew
    gives the same plan.
    """

    name: str

    def __init__(self) -> None:
        self._version = -1
        self._dirty: set[int] = set()
        self._clear()

    def plan(self, snapshot: Snapshot, context: Context) -> Plan:
        """Return what starts and what gives way now."""
        self._follow(snapshot)
        self._now = context.now
        self._snapshot = snapshot
        self._decisions: list[Decision] = []
        self._full: set[Shape] = set()
        if self._asking:
            self._decide()
        waits = tuple(sorted(self._waits())) if context.explain else ()
        return Plan(snapshot.version, context.now, tuple(self._decisions), (), waits, (), self._look_again())

    # -- the rule, given by the baseline --------------------------------------------------------------

    @abstractmethod
    def _decide(self) -> None:
        """Start and preempt by the rule."""

    def _ask(self, spec: JobSpec) -> Ask:
        """Return what a job asks for."""
        return Ask(Shape(spec.gpus, spec.per_node, spec.model), kept=False)

    def _look_again(self) -> int:
        """Return when time alone could change the answer, ms; 0 for never."""
        return 0

    # -- indices ----------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._room = FreeMap()
        self._teams: dict[int, Team] = {}
        self._where: dict[int, tuple[int, Ask, Place]] = {}
        self._fits: dict[Shape, bool] = {}
        self._capacity = 0
        self._due: list[float] = []
        """Share of the devices per tree row."""
        self._quota: dict[int, int] = {}
        """The same per account, in whole devices."""
        self._asking: dict[int, None] = {}
        #: Whether any job had another priority than 0: else nobody is preempted for priority.
        self._ranked = False

    def _follow(self, snapshot: Snapshot) -> None:
        """Bring the indices up to the snapshot's version."""
        changes = snapshot.changes_since(self._version) if self._version >= 0 else None
        nodes, jobs = snapshot.nodes, snapshot.jobs
        if changes is None or any(change is Change.TREE for change, _ in changes):
            self._clear()
            self._teams = {leaf: Team() for leaf in snapshot.tree.leaves}
            changed_nodes, rows = set(range(len(nodes))), set(jobs.live)
        else:
            changed_nodes = {row for change, row in changes if change is Change.NODE}
            rows = self._dirty | {row for change, row in changes if change is Change.JOB}
        for row in sorted(rows):
            self._sync(jobs, row)
        for row in sorted(changed_nodes):
            self._room.set_node(row, nodes.node[row], nodes.free[row])
        if changed_nodes:
            self._capacity = snapshot.healthy_gpus()
            shares = snapshot.tree.share
            self._due = [float(share) * self._capacity for share in shares]
            self._quota = {leaf: int(shares[leaf] * self._capacity) for leaf in self._teams}
            self._fits = {}
        if self._room.free != nodes.free:
            for row, free in enumerate(nodes.free):
                if self._room.free[row] != free:
                    self._room.set_free(row, free)
        shapes = {ask.shape for team in self._teams.values() for ask in team.queues}
        if not shapes <= self._fits.keys():
            self._fits = fitting(shapes, nodes.node)
        self._dirty = set()
        self._version = snapshot.version
        self._asking = {leaf: None for leaf, team in self._teams.items() if team.waiting}

    def _sync(self, jobs: JobTable, row: int) -> None:
        """Take a job out of the indices and put it in where it is now."""
        self._forget(row)
        phase, spec, leaf = jobs.phase[row], jobs.spec[row], jobs.account[row]
        team = self._teams[leaf]
        self._ranked = self._ranked or spec.priority != 0
        if phase is Phase.QUEUED:
            ask, place = self._ask(spec), (-spec.priority, jobs.submitted[row], row)
            insort(team.queues.setdefault(ask, []), place)
            team.waiting += spec.gpus
            self._where[row] = (leaf, ask, place)
        elif phase in (Phase.PLACED, Phase.RUNNING):
            self._hold(leaf, row, spec, jobs.placement[row], jobs.started[row])

    def _hold(self, leaf: int, row: int, spec: JobSpec, placement: Placement, started: int) -> None:
        team = self._teams[leaf]
        team.runs[row] = Running(row, leaf, spec.gpus, placement, spec.priority, started, spec.allocated)
        team.held += spec.gpus
        self._where[row] = (leaf, self._ask(spec), (-spec.priority, 0, row))

    def _forget(self, row: int) -> None:
        known = self._where.pop(row, None)
        if known is None:
            return
        leaf, ask, place = known
        team = self._teams[leaf]
        run = team.runs.pop(row, None)
        if run is not None:
            team.held -= run.gpus
            return
        queue = team.queues[ask]
        del queue[bisect_left(queue, place)]
        team.waiting -= ask.shape.gpus
        if not queue:
            del team.queues[ask]

    # -- for the rules ----------------------------------------------------------------------------------

    def _find(self, shape: Shape) -> Placement | None:
        """Return where a shape fits on free devices; what did not fit once is not tried again."""
        if shape in self._full or shape.gpus > self._room.total:
            return None
        placement = self._room.find(*shape)
        if placement is None:
            self._full.add(shape)
        return placement

    def _make_room(
        self,
        shape: Shape,
        candidates: Iterable[Running],
        may: Callable[[Running, dict[int, int]], bool],
    ) -> tuple[Placement, list[Running]] | None:
        """Return where a gang fits if some runs leave, and which: the first that suffice, then no more.

        Candidates are taken in order until the gang fits; then, from the last back, each that is not
        needed stays.

        Args:
            shape: What is asked for.
            candidates: Runs in the order in which they give way.
            may: Whether a run may leave, given the devices that its account and others already give up.
        """
        room, targets = self._room, list[Running]()
        taken: dict[int, int] = {}
        before = dict[int, int]()
        placement = None
        for run in candidates:
            if not may(run, taken):
                continue
            targets.append(run)
            taken[run.leaf] = taken.get(run.leaf, 0) + run.gpus
            self._shift(run, +1, before)
            placement = room.find(*shape)
            if placement is not None:
                break
        if placement is not None:
            for run in reversed(targets[:-1]):
                self._shift(run, -1, before)
                without = room.find(*shape)
                if without is None:
                    self._shift(run, +1, before)
                else:
                    placement = without
                    targets.remove(run)
        for node, free in before.items():
            room.set_free(node, free)
        return None if placement is None else (placement, targets)

    def _shift(self, run: Running, sign: int, before: dict[int, int]) -> None:
        """Give (+1) a run's devices back on trial, or (-1) take them again; note how it was."""
        nodes = self._snapshot.nodes.node
        for node, gpus in run.placement:
            if nodes[node].state is NodeState.UP:
                before.setdefault(node, self._room.free[node])
                self._room.set_free(node, self._room.free[node] + sign * gpus)

    def _start(self, row: int, placement: Placement, reason: Reason) -> None:
        """Give devices to a queued job."""
        spec, leaf = self._snapshot.jobs.spec[row], self._where[row][0]
        self._dirty.add(row)
        self._forget(row)
        self._hold(leaf, row, spec, placement, self._now)
        self._room.take(placement)
        if not self._teams[leaf].waiting:
            self._asking.pop(leaf, None)
        self._decisions.append(Start(row, placement, spec.allocated, reason))

    def _replace(
        self,
        row: int,
        found: tuple[Placement, list[Running]],
        reasons: tuple[Reason, Reason],
        ratio: Callable[[int], float],
    ) -> None:
        """Preempt runs and start a job in their place.

        Args:
            row: The job.
            found: Where, and who leaves.
            reasons: Of the preemptions, of the start.
            ratio: What an account holds over what it is due; written into the decisions.
        """
        placement, victims = found
        nodes = self._snapshot.nodes.node
        mine = ratio(self._where[row][0])
        for run in victims:
            self._decisions.append(Preempt(run.row, row, reasons[0], ratio(run.leaf), mine))
            self._dirty.add(run.row)
            self._forget(run.row)
            for node, gpus in run.placement:
                if nodes[node].state is NodeState.UP:
                    self._room.set_free(node, self._room.free[node] + gpus)
        self._full.clear()
        self._start(row, placement, reasons[1])

    def _runs(self, leaves: Iterable[int]) -> list[Running]:
        """Return the runs of some accounts that are not of this pass."""
        return [run for leaf in leaves for run in self._teams[leaf].runs.values() if run.started < self._now]

    def _waits(self) -> Sequence[tuple[int, Wait]]:
        """Return why the first job of every account waits."""
        found: list[tuple[int, Wait]] = []
        for leaf, team in self._teams.items():
            if not team.waiting:
                continue
            place, gpus = min((queue[0], ask.shape.gpus) for ask, queue in team.queues.items())
            free = self._room.total
            reason = Reason.WAIT_SHAPE if free >= gpus else Reason.WAIT_CAPACITY
            found.append((place[2], Wait(reason, gpus, free, 0, 0, leaf)))
        return found
