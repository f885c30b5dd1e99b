"""The record of a replay: the journal port, kept as plain columns in memory.

Everything that is measured or written afterwards comes from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from divvy.control.capacity import counted
from divvy.fleet.account import AccountTree
from divvy.fleet.budget import read_budget
from divvy.fleet.decision import Plan, Preempt
from divvy.fleet.event import (
    BudgetChanged,
    Event,
    NodeChanged,
    Placed,
    Reassigned,
    Started,
    Stopped,
    Submitted,
    Withdrawn,
)
from divvy.fleet.job import StopCause
from divvy.fleet.node import Node, NodeState, devices_by_model
from divvy.fleet.snapshot import Snapshot
from divvy.sim.contracts import Workload
from divvy.sim.engine import SimulatedEngine

OPEN = -1


class Entry(IntEnum):
    """What an entry of the log speaks of; its subject is a row of jobs, runs or capacities."""

    SUBMIT = 0
    START = 1
    STOP = 2
    CAPACITY = 3
    SHARES = 4


class Capacity(NamedTuple):
    """The fleet from an instant on: the devices that count (`divvy.control.capacity`)."""

    at: int
    gpus: int
    nodes: tuple[tuple[str, int], ...]
    rate: int
    """Their charge per ms."""
    models: tuple[tuple[str, int], ...] = ()
    """Devices of each model, in order of name."""


class Recorder:
    """Columns over the runs of a replay, one entry per begun run, and the order in which things happened."""

    def __init__(self, workload: Workload, engine: SimulatedEngine) -> None:
        self._index = workload.index
        self.submit = workload.submit
        self._engine = engine
        self._current = [OPEN] * len(workload)
        self._placed: dict[str, Placed] = {}
        self._by: dict[str, str] = {}
        self._nodes: dict[str, Node] = {}
        self._draining: set[str] = set()
        self.log: list[tuple[Entry, int]] = []
        """In the order in which things were applied."""
        self.first_start = [OPEN] * len(workload)
        self.over = [OPEN] * len(workload)
        """When a job was over for good."""
        self.submitted = [False] * len(workload)
        self.job: list[int] = []
        self.start: list[int] = []
        self.end: list[int] = []
        self.restore: list[int] = []
        """Time spent restoring, ms."""
        self.lost: list[int] = []
        """Work thrown away, ms; always the last work of the run."""
        self.protected: list[bool] = []
        self.placement: list[tuple[tuple[str, int], ...]] = []
        self.cause: list[StopCause] = []
        self.by: list[str] = []
        """Id of the job that took the devices; empty where none did."""
        self.requeued: list[bool] = []
        self.payer: list[str] = []
        """Who paid for a run, where another account of its job was chosen; else empty."""
        self.trees: list[tuple[int, AccountTree]] = []
        """The account trees that came into force during the replay."""
        self._payer: dict[int, str] = {}
        self.capacity: list[Capacity] = []
        self.passes = 0
        self._moved = OPEN
        self._records: dict[type[Event], Callable[[Any], None]] = {
            Submitted: self._submitted,
            Placed: self._place,
            Started: self._started,
            Stopped: self._stopped,
            Withdrawn: self._withdrawn,
            NodeChanged: self._node,
            Reassigned: self._reassigned,
            BudgetChanged: self._budget,
        }

    def append(self, events: Sequence[Event], plan: Plan | None, snapshot: Snapshot) -> None:
        """Record what was applied."""
        if plan is not None:
            self._plan(plan, snapshot)
        for event in events:
            record = self._records.get(type(event))
            if record is not None:
                if self._moved != OPEN and not isinstance(event, NodeChanged):
                    self._capacity()  # changes at one instant are one entry
                record(event)
        if self._moved != OPEN:
            self._capacity()

    def payers(self) -> dict[int, str]:
        """Return, by row, the account whose demand a job was, where another of its accounts paid last."""
        return {row: payer for row, payer in zip(self.job, self.payer, strict=True) if payer}

    def close(self, at: int) -> None:
        """End what still runs when the replay stops; such runs keep the cause FINISHED and stay open."""
        for row, run in enumerate(self._current):
            if run != OPEN:
                start = self.start[run]
                self.end[run] = at
                self.restore[run] = min(self._engine.restored[row], at - start)

    def _plan(self, plan: Plan, snapshot: Snapshot) -> None:
        self.passes += 1
        spec = snapshot.jobs.spec
        for decision in plan.decisions:
            if isinstance(decision, Preempt):
                self._by[spec[decision.job].id] = spec[decision.by].id if decision.by >= 0 else ""

    def _started(self, event: Started) -> None:
        row = self._index[event.job]
        placed = self._placed.pop(event.job)
        run = self._current[row] = len(self.job)
        if self.first_start[row] == OPEN:
            self.first_start[row] = event.at
        self.job.append(row)
        self.start.append(event.at)
        self.end.append(OPEN)
        self.restore.append(0)
        self.lost.append(0)
        self.protected.append(placed.protected)
        self.placement.append(placed.placement)
        self.payer.append(self._payer.get(row, ""))
        self.cause.append(StopCause.FINISHED)
        self.by.append("")
        self.requeued.append(False)
        self.log.append((Entry.START, run))
        self._count(run, event.at)

    def _reassigned(self, event: Reassigned) -> None:
        self._payer[self._index[event.job]] = event.account

    def _budget(self, event: BudgetChanged) -> None:
        self.log.append((Entry.SHARES, len(self.trees)))
        self.trees.append((event.at, read_budget(event.document).tree))

    def _stopped(self, event: Stopped) -> None:
        row = self._index[event.job]
        run = self._current[row]
        self._current[row] = OPEN
        self.end[run] = event.at
        self.restore[run] = min(self._engine.restored[row], event.at - self.start[run])
        self.lost[run] = self._engine.lost[row]
        self.cause[run] = event.cause
        self.by[run] = self._by.pop(event.job, "")
        self.requeued[run] = event.requeue
        if not event.requeue:
            self.over[row] = event.at
        self.log.append((Entry.STOP, run))
        self._count(run, event.at)

    def _submitted(self, event: Submitted) -> None:
        row = self._index[event.spec.id]
        self.submitted[row] = True
        self.log.append((Entry.SUBMIT, row))

    def _place(self, event: Placed) -> None:
        self._placed[event.job] = event

    def _withdrawn(self, event: Withdrawn) -> None:
        self.over[self._index[event.job]] = event.at

    def _node(self, event: NodeChanged) -> None:
        node = event.node
        self._nodes[node.name] = node
        self._moved = event.at
        if node.state is NodeState.DRAINING:
            self._draining.add(node.name)
        else:
            self._draining.discard(node.name)

    def _count(self, run: int, at: int) -> None:
        """Count the fleet anew if a run came to a draining node, or left one."""
        if self._draining and any(name in self._draining for name, _ in self.placement[run]):
            self._moved = at

    def _held(self, name: str) -> int:
        """Return the devices of a draining node that runs hold."""
        if name not in self._draining:
            return 0
        placements = (self.placement[run] for run in self._current if run != OPEN)
        return sum(gpus for placement in placements for place, gpus in placement if place == name)

    def _capacity(self) -> None:
        nodes = [node for node in self._nodes.values() if node.state is not NodeState.DOWN]
        there = [counted(node, self._held(node.name)) for node in nodes]
        present = tuple((node.name, gpus) for node, gpus in zip(nodes, there, strict=True))
        rate = sum(gpus * node.weight for node, gpus in zip(nodes, there, strict=True))
        models = tuple(devices_by_model(nodes, there).items())
        self.capacity.append(Capacity(self._moved, sum(there), present, rate, models))
        self.log.append((Entry.CAPACITY, len(self.capacity) - 1))
        self._moved = OPEN
