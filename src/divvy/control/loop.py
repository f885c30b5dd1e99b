"""The loop: gather what happened, plan, record, act. The same step live, in shadow and simulated.

The order makes a kill at any instant harmless. Events are journalled before anything is done about
them; decisions are journalled before the engine hears of them; orders are idempotent per attempt, so
after a restart the engine is simply told again whatever the state says should be so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from divvy.control.agenda import Agenda
from divvy.control.ports import Clock, Engine, Halt, Intake, Journal, Launch, Order, Publisher
from divvy.control.state import FleetState
from divvy.errors import ConflictError, DivvyError
from divvy.fleet.decision import Hold, Plan, Preempt
from divvy.fleet.event import Event, Placed, SlotHeld, SlotLapsed, Stopping
from divvy.fleet.job import JobSpec, Phase, StopCause
from divvy.fleet.reason import Reason
from divvy.planners.base import Context, JobPlanner


@dataclass(slots=True)
class Refusal:
    """An event that the state refused, kept for the log."""

    event: Event
    error: DivvyError


class Loop:
    """One scheduler over one state.

    Args:
        state: The state; the loop is its only writer.
        planner: Decides.
        clock: Time.
        engine: Runs jobs.
        intake: What people ask for.
        journal: The record.
        publisher: Where readers look; None in simulation.
        act: False in shadow: plans are recorded and published, nothing is ordered.
        seed: Passed to the planner.
        explain: Whether plans carry standings and waits.
        may_act: Asked before a plan is carried out, where ``act`` is set: an engine that has lost sight of
            its jobs says no, and nothing is decided until it sees them again.
    """

    def __init__(
        self,
        state: FleetState,
        planner: JobPlanner,
        clock: Clock,
        engine: Engine,
        intake: Intake,
        journal: Journal,
        publisher: Publisher | None = None,
        *,
        act: bool = True,
        seed: int = 0,
        explain: bool = True,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self.state = state
        self._planner = planner
        self._clock = clock
        self._engine = engine
        self._intake = intake
        self._journal = journal
        self._publisher = publisher
        self._act = act
        self._seed = seed
        self._explain = explain
        self._agenda = Agenda()
        self._may_act = may_act
        self._proposed: list[tuple[str, Reason]] = []
        self.refused: list[Refusal] = []

    def step(self) -> Plan:
        """Run one pass and return its plan; `wake_at` says when to come back at the latest."""
        snapshot = self.state.snapshot
        happened = self._absorb(self._engine.poll())
        happened += self._absorb(self._intake.poll())
        now = self._clock.now()
        happened += self._absorb(self._agenda.due(snapshot, now))
        plan = self._planner.plan(snapshot, Context(now, self._seed, self._explain))
        if plan.version != snapshot.version:
            raise ConflictError.one(
                "plan-stale", f"plan of version {plan.version}, state is at {snapshot.version}"
            )
        orders: list[Order] = []
        acts = self._act and self._may_act()
        if acts:
            orders += self._halts(happened)
            happened += self._absorb(self._carry_out(plan, now, orders))
        if happened or (plan.decisions and (acts or self._proposes(plan))):
            self._journal.append(happened, plan, snapshot)
        if orders:
            known = self._absorb(self._engine.submit(orders))
            if known:
                self._journal.append(known, None, snapshot)
        if self._publisher is not None:
            self._publisher.publish(snapshot, plan, now)
        return plan

    def wake_at(self, plan: Plan) -> int:
        """Return when to step again at the latest after a plan, even if nothing happens; 0: no need."""
        due = self._agenda.next()
        return min(due, plan.next_check) if due and plan.next_check else due or plan.next_check

    def recover(self) -> None:
        """Tell the engine again what the state says should be so; call once, before the first step."""
        jobs = self.state.snapshot.jobs
        orders: list[Order] = []
        for row in jobs.live:
            spec, phase, attempt = jobs.spec[row], jobs.phase[row], jobs.attempt[row]
            if phase in (Phase.PLACED, Phase.RUNNING, Phase.STOPPING):
                orders.append(Launch(spec.id, attempt, spec, self._names(row)))
            if phase is Phase.STOPPING:
                orders.append(Halt(spec.id, attempt, jobs.stop_cause[row]))
        known = self._absorb(self._engine.submit(orders))
        if known:
            self._journal.append(known, None, self.state.snapshot)

    def _proposes(self, plan: Plan) -> bool:
        """Return whether a plan that nobody carries out says anything that the last such plan did not."""
        spec = self.state.snapshot.jobs.spec
        proposed = [(spec[decision.job].id, decision.reason) for decision in plan.decisions]
        if proposed == self._proposed:
            return False
        self._proposed = proposed
        return True

    def _absorb(self, events: Iterable[Event]) -> list[Event]:
        """Apply events; one that contradicts the state is kept aside and changes nothing."""
        applied: list[Event] = []
        for event in events:
            try:
                self.state.apply(event)
            except DivvyError as error:
                self.refused.append(Refusal(event, error))
            else:
                applied.append(event)
        return applied

    def _halts(self, happened: Iterable[Event]) -> Iterable[Order]:
        """Yield the orders that follow from what people asked for: running jobs that were cancelled."""
        jobs = self.state.snapshot.jobs
        for event in happened:
            if isinstance(event, Stopping):
                yield Halt(event.job, jobs.attempt[jobs.row[event.job]], event.cause)

    def _carry_out(self, plan: Plan, now: int, orders: list[Order]) -> Iterable[Event]:
        """Yield the events of a plan's decisions and collect the orders that follow from them."""
        jobs, nodes = self.state.snapshot.jobs, self.state.snapshot.nodes.node
        for slot in plan.slots:
            if isinstance(slot, Hold):
                held = tuple((nodes[node].name, gpus) for node, gpus in slot.placement)
                yield SlotHeld(now, jobs.spec[slot.job].id, held, slot.due)
            else:
                yield SlotLapsed(now, jobs.spec[slot.job].id)
        for decision in plan.decisions:
            spec = jobs.spec[decision.job]
            if isinstance(decision, Preempt):
                cause = StopCause.DRAINED if decision.by < 0 else StopCause.PREEMPTED
                yield Stopping(now, spec.id, cause)
                orders.append(Halt(spec.id, jobs.attempt[decision.job], cause))
            else:
                placement = tuple((nodes[node].name, gpus) for node, gpus in decision.placement)
                yield Placed(now, spec.id, placement, decision.protected)
                orders.append(Launch(spec.id, jobs.attempt[decision.job], spec, placement))

    def _names(self, row: int) -> tuple[tuple[str, int], ...]:
        nodes = self.state.snapshot.nodes.node
        return tuple((nodes[node].name, gpus) for node, gpus in self.state.snapshot.jobs.placement[row])


def goes_back(spec: JobSpec, cause: StopCause) -> bool:
    """Return whether a run that ended for this cause puts its job back into the queue."""
    if cause in (StopCause.PREEMPTED, StopCause.DRAINED, StopCause.NODE_LOST):
        return spec.resumable or spec.restart
    return cause is StopCause.START_FAILED
