"""The driver: runs the loop in real time, and keeps it harmless when the record cannot be written.

It sleeps until somebody asks for something, the engine reports something, or the plan wants to look again.
When the store cannot take an entry, nothing more is observed, planned or ordered; the entry waits in memory
and is tried again every second. When it is written at last, the engine is told again whatever the state
says should be so, exactly as after a restart.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from divvy.control.loop import Loop
from divvy.control.ports import Clock
from divvy.control.state import FleetState
from divvy.errors import DivvyError, UnavailableError
from divvy.fleet.decision import Hold, Plan, Preempt
from divvy.fleet.event import Event, Started

#: The longest sleep. A wake-up may be lost; the view that readers see is never older than this.
LONGEST_SLEEP_SECONDS: Final = 1.0
_SHORTEST_SLEEP_SECONDS: Final = 0.002
_RETRY_SECONDS: Final = 1.0
_BASE_EVENTS: Final = 2_000
_CHANGES_PER_EVENT: Final = 8

_log = structlog.get_logger("loop")


class Record(Protocol):
    """What the driver needs of a journal besides `append`."""

    since_base: int

    @property
    def behind(self) -> int:
        """Return how many entries could not be written yet."""

    def flush(self) -> None:
        """Write what could not be written before."""

    def checkpoint(self, state: FleetState, now: int) -> int:
        """Compact the state and record it whole."""


class Requests(Protocol):
    """What the driver needs of an intake besides `poll`."""

    @property
    def more(self) -> bool:
        """Return whether the last poll left requests for the next."""

    def refuse(self, event: Event, error: DivvyError) -> bool:
        """Note that the state refused an event; return whether it came from a request."""

    def settle(self) -> None:
        """Tell those who asked what was refused."""


class Outlet(Protocol):
    """What the driver needs of a publisher besides `publish`."""

    def tick(self) -> None:
        """Publish what is due."""

    def due_seconds(self) -> float:
        """Return how long until something is due."""


class Sleeper(Protocol):
    """How the driver sleeps."""

    @property
    def stopped(self) -> bool:
        """Return whether somebody asked for the end."""

    def wait(self, seconds: float) -> bool:
        """Sleep at most so long; return whether something happened that a pass should see."""

    def rest(self, seconds: float) -> None:
        """Sleep so long whatever happens; only a call to end cuts it short."""


class Driver:
    """Runs a loop until it is told to stop.

    Args:
        loop: The loop.
        record: Its journal.
        requests: Its intake.
        outlet: Its publisher.
        clock: Its clock.
        sleeper: Sleeps; a request or the engine may wake it.
        engine_pause: Returns after how many ms the engine wants to be asked again; None: it will call.
        report: Receives the present problem (empty: none) and the duration of the last pass in ms.
        housekeep: Does a small piece of work on old data, at the given time; called about once a second.
    """

    def __init__(
        self,
        loop: Loop,
        record: Record,
        requests: Requests,
        outlet: Outlet,
        clock: Clock,
        sleeper: Sleeper,
        engine_pause: Callable[[], int | None],
        report: Callable[[str, float], None],
        housekeep: Callable[[int], object],
    ) -> None:
        self._loop = loop
        self._record = record
        self._requests = requests
        self._outlet = outlet
        self._clock = clock
        self._sleeper = sleeper
        self._engine_pause = engine_pause
        self._report = report
        self._housekeep = housekeep
        self._problem = ""
        self._pass_ms = 0.0
        self._next_check = 0
        self._base_after = self._worth()
        self._kept_at = time.monotonic()

    def run(self) -> None:
        """Run passes until the sleeper is told to stop.

        Raises:
            ConflictError: If another loop has taken over the database.
        """
        self._attempt(self._loop.recover)
        while not self._sleeper.stopped:
            self._attempt(self._resume if self._problem else self._pass)
            self._report(self._problem, self._pass_ms)
            self._sleep()
        if not self._problem:
            self._attempt(self._checkpoint)

    def _attempt(self, work: Callable[[], None]) -> None:
        """Do something that ends with a record; note the problem if that could not be written.

        Any other failure leaves a state that the journal does not know: it ends the process, and the next
        one begins with what is recorded.
        """
        try:
            work()
        except UnavailableError as error:
            if not self._record.behind:
                raise
            if self._problem != str(error):
                _log.error("stalled", code=error.code, problem=str(error))
            self._problem = str(error)

    def _resume(self) -> None:
        self._record.flush()
        self._loop.recover()
        self._problem = ""
        _log.info("resumed")

    def _pass(self) -> None:
        began = time.perf_counter_ns()
        try:
            plan = self._loop.step()
        finally:
            self._refusals()
        self._pass_ms = (time.perf_counter_ns() - began) / 1e6
        self._next_check = self._loop.wake_at(plan)
        self._tell(plan)
        self._settle()
        if self._record.since_base >= self._base_after:
            self._checkpoint()

    def _settle(self) -> None:
        try:
            self._requests.settle()
        except UnavailableError as error:  # those who asked wait a little longer
            _log.warning("refusals not written yet", error=str(error))

    def _worth(self) -> int:
        """Return after how many events a base snapshot is worth its price: in proportion to its size."""
        snapshot = self._loop.state.snapshot
        histories = (*snapshot.usage, *snapshot.unallocated, *snapshot.author_usage.values())
        changes = sum(history.changes for history in histories)
        return max(_BASE_EVENTS, len(snapshot.jobs.live) + changes // _CHANGES_PER_EVENT)

    def _checkpoint(self) -> None:
        began = time.perf_counter_ns()
        forgotten = self._record.checkpoint(self._loop.state, self._clock.now())
        self._base_after = self._worth()
        took = (time.perf_counter_ns() - began) / 1e6
        _log.info("base snapshot", forgotten=forgotten, took_ms=round(took, 1))

    def _refusals(self) -> None:
        for refusal in self._loop.refused:
            if not self._requests.refuse(refusal.event, refusal.error):
                # An engine that adopts a run, or is told of it again, reports its start again.
                level = logging.DEBUG if isinstance(refusal.event, Started) else logging.WARNING
                _log.log(level, "event refused", refused=str(refusal.event), error=str(refusal.error))
        self._loop.refused.clear()

    def _sleep(self) -> None:
        """Sleep until there is a reason for a pass; meanwhile publish what is due."""
        if self._problem:
            self._sleeper.rest(_RETRY_SECONDS)
            return
        if time.monotonic() - self._kept_at > LONGEST_SLEEP_SECONDS:
            self._kept_at = time.monotonic()
            self._housekeep(self._clock.now())
        limit = time.monotonic() + (0.0 if self._requests.more else LONGEST_SLEEP_SECONDS)
        if self._next_check:
            wanted = (self._next_check - self._clock.now()) / 1000
            limit = min(limit, time.monotonic() + max(wanted, _SHORTEST_SLEEP_SECONDS))
        pause_ms = self._engine_pause()
        if pause_ms is not None:
            limit = min(limit, time.monotonic() + max(pause_ms / 1000, _SHORTEST_SLEEP_SECONDS))
        while not self._sleeper.stopped:
            left = limit - time.monotonic()
            if self._sleeper.wait(max(min(left, self._outlet.due_seconds()), 0.0)):
                return
            self._outlet.tick()
            if limit - time.monotonic() <= 0:
                return

    def _tell(self, plan: Plan) -> None:
        """Write one line per decision."""
        snapshot = self._loop.state.snapshot
        jobs, nodes = snapshot.jobs, snapshot.nodes.node
        for slot in plan.slots:
            if isinstance(slot, Hold):
                held = {nodes[node].name: gpus for node, gpus in slot.placement}
                _log.info("hold", job=jobs.spec[slot.job].id, nodes=held, due=slot.due)
            else:
                _log.info("lapse", job=jobs.spec[slot.job].id)
        for decision in plan.decisions:
            spec = jobs.spec[decision.job]
            if isinstance(decision, Preempt):
                _log.info(
                    "preempt",
                    job=spec.id,
                    account=spec.account,
                    gpus=spec.gpus,
                    by=jobs.spec[decision.by].id if decision.by >= 0 else None,
                    reason=decision.reason.name.lower(),
                    victim_balance=round(decision.victim_balance, 4),
                    balance=round(decision.balance, 4),
                )
            else:
                _log.info(
                    "start",
                    job=spec.id,
                    account=spec.account,
                    gpus=spec.gpus,
                    nodes={nodes[node].name: gpus for node, gpus in decision.placement},
                    protected=decision.protected,
                    reason=decision.reason.name.lower(),
                )
