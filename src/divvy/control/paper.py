"""A fleet on paper: ports behind which everything that is ordered has happened at once.

The loop runs on it as it runs live; a fleet file is carried out so, and nothing outside the state is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from divvy.control.loop import Loop, goes_back
from divvy.control.ports import Launch, Order
from divvy.control.state import FleetState
from divvy.fleet.budget import Budget
from divvy.fleet.decision import Plan
from divvy.fleet.event import (
    BudgetChanged,
    Event,
    NodeChanged,
    Started,
    Stopped,
    Stopping,
    Submitted,
    Withdrawn,
)
from divvy.fleet.job import JobSpec, Phase, StopCause
from divvy.fleet.node import Node, NodeState
from divvy.fleet.snapshot import Snapshot
from divvy.fleet.tenant import Tenants
from divvy.planners.base import JobPlanner

_AUTHOR = "fleet file"


@dataclass(frozen=True)
class Wish:
    """What a fleet file asks for.

    Attributes:
        budget: Accounts and policy.
        nodes: The machines.
        jobs: Jobs that are to run; one that is no longer here is over.
        tenants: Services and pairings.
    """

    budget: Budget
    nodes: tuple[Node, ...]
    jobs: tuple[JobSpec, ...]
    tenants: Tenants


def endings(snapshot: Snapshot, wish: Wish, now: int) -> Iterator[Event]:
    """Yield the ends of jobs that a file asks for no more, or asks for otherwise.

    They come before anything else: an account may go together with its jobs.
    """
    jobs = snapshot.jobs
    wanted = {spec.id: spec for spec in wish.jobs}
    for row in list(jobs.live):
        spec = jobs.spec[row]
        if wish.tenants.owner(spec) is None and wanted.get(spec.id) != spec:
            yield from end(snapshot, row, now)


def differences(snapshot: Snapshot, wish: Wish, now: int) -> Iterator[Event]:
    """Yield what turns a state's wishes into those of a file; apply each before the next is made.

    Args:
        snapshot: The state after `endings`, without the jobs that are over: their ids may be used again.
        wish: What the file asks for.
        now: Time, ms.
    """
    jobs = snapshot.jobs
    there = Budget(snapshot.policy, snapshot.tree).to_document()
    if there != (document := wish.budget.to_document()):
        yield BudgetChanged(now, document, _AUTHOR, "the file has changed")
    yield from _nodes(snapshot, wish, now)
    live = {jobs.spec[row].id for row in jobs.live}
    for spec in wish.jobs:
        if spec.id not in live:
            yield Submitted(now, spec)


def _nodes(snapshot: Snapshot, wish: Wish, now: int) -> Iterator[Event]:
    nodes = snapshot.nodes
    for node in wish.nodes:
        row = nodes.row.get(node.name)
        if row is None or nodes.node[row] != node:
            yield NodeChanged(now, node)
    names = {node.name for node in wish.nodes}
    for row, node in enumerate(list(nodes.node)):
        if node.name not in names and node.state is not NodeState.DOWN:
            yield from _lost(snapshot, row, now)
            yield NodeChanged(now, replace(node, state=NodeState.DOWN, cause="not in the fleet file"))


def _lost(snapshot: Snapshot, node: int, now: int) -> Iterator[Event]:
    """Yield the ends of what runs on a node that is gone."""
    jobs = snapshot.jobs
    for row in list(jobs.live):
        if any(place == node for place, _ in jobs.placement[row]):
            spec = jobs.spec[row]
            cause = StopCause.NODE_LOST
            yield Stopped(now, spec.id, cause, goes_back(spec, cause))


def end(snapshot: Snapshot, row: int, now: int) -> Iterator[Event]:
    """Yield the end of a job that nobody asks for any more."""
    jobs, name = snapshot.jobs, snapshot.jobs.spec[row].id
    if jobs.phase[row] is Phase.QUEUED:
        yield Withdrawn(now, name)
        return
    if jobs.phase[row] is not Phase.STOPPING:
        yield Stopping(now, name, StopCause.CANCELLED)
    yield Stopped(now, name, StopCause.CANCELLED, requeue=False)


def settle(snapshot: Snapshot, now: int) -> Iterator[Event]:
    """Yield the ends of runs that were told to leave: on paper nothing lingers."""
    jobs = snapshot.jobs
    for row in list(jobs.live):
        if jobs.phase[row] is Phase.STOPPING:
            spec, cause = jobs.spec[row], jobs.stop_cause[row]
            yield Stopped(now, spec.id, cause, goes_back(spec, cause))


class _Clock:
    """A time that stands still."""

    def __init__(self, now: int) -> None:
        self._now = now

    def now(self) -> int:
        """Return that time, ms."""
        return self._now


class _Engine:
    """Everything that is ordered has happened."""

    def __init__(self, now: int, snapshot: Snapshot) -> None:
        self._now, self._jobs = now, snapshot.jobs

    def submit(self, orders: Sequence[Order]) -> Iterator[Event]:
        """Yield the starts and ends that were ordered, ends first: they make room."""
        for order in orders:
            if not isinstance(order, Launch):
                spec = self._jobs.spec[self._jobs.row[order.job]]
                yield Stopped(self._now, order.job, order.cause, goes_back(spec, order.cause))
        for order in orders:
            if isinstance(order, Launch):
                yield Started(self._now, order.job)

    def poll(self) -> Iterable[Event]:
        """Return nothing: nothing happens by itself on paper."""
        return ()


class _Nobody:
    """An intake and a journal for a state that nobody else uses."""

    def poll(self) -> Iterable[Event]:
        """Return nothing."""
        return ()

    def append(self, events: Sequence[Event], plan: Plan | None, snapshot: Snapshot) -> None:
        """Keep nothing: the state itself is written afterwards."""


class _Fixed:
    """A planner that has made up its mind."""

    def __init__(self, planned: Plan, name: str) -> None:
        self._plan, self.name = planned, name

    def plan(self, snapshot: Snapshot, context: object) -> Plan:  # noqa: ARG002 - the signature of a planner
        """Return the plan that was made."""
        return self._plan


def carry_out(state: FleetState, planner: JobPlanner, planned: Plan) -> list[str]:
    """Carry out a plan on paper; return what the state refused, in words (nothing, unless a planner errs)."""
    nobody, now = _Nobody(), planned.now
    fixed = _Fixed(planned, planner.name)
    loop = Loop(state, fixed, _Clock(now), _Engine(now, state.snapshot), nobody, nobody)
    loop.step()
    return [f"{refusal.event}: {refusal.error}" for refusal in loop.refused]
