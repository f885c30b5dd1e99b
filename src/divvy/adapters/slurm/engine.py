"""The Slurm engine: the port `Engine` over a Slurm that stays the truth about its jobs.

Orders are not passed on one by one. Each look at Slurm is compared with the state in both directions: what
Slurm shows and the state does not know becomes events (`truth`), what the state wants and Slurm does not show
becomes commands (`commands`). See docs/adr/0110-slurm-stays-the-truth.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from divvy.adapters.courier import Controller, Courier
from divvy.adapters.slurm import advise, heartbeat
from divvy.adapters.slurm.commands import Steward, overdue
from divvy.adapters.slurm.record import PastRun, View
from divvy.adapters.slurm.settings import SlurmSettings
from divvy.adapters.slurm.slots import Slots, naming
from divvy.adapters.slurm.truth import Truth
from divvy.control.ports import Clock, Order
from divvy.fleet.decision import Plan
from divvy.fleet.event import Event, Stopping
from divvy.fleet.job import StopCause
from divvy.fleet.snapshot import Snapshot
from divvy.units import HOUR, MINUTE, SECOND

_log = structlog.get_logger("slurm")

_FRESH_LOOKS: Final = 4
_FRESH_LEAST: Final = 10 * SECOND
_BENCH: Final = 30 * SECOND
_OVERLAP: Final = 24 * HOUR
_LONGEST_BENCH: Final = 30 * MINUTE


class Mode(StrEnum):
    """How much Divvy may do to a Slurm."""

    OBSERVE = "observe"
    ADVISE = "advise"
    ENFORCE = "enforce"


class Slurm(Controller[View, tuple[str, ...]], Protocol):
    """Slurm, as far as the engine needs it."""

    def history(self, ago_seconds: int) -> Mapping[str, tuple[PastRun, ...]]:
        """Return every run in the accounting of the last so many seconds; none where it cannot be asked."""


class SlurmEngine:
    """Runs jobs through Slurm. One object, one thread besides its courier's.

    Args:
        controller: Slurm.
        snapshot: The state, read only.
        settings: How this Slurm is treated.
        mode: How much may be done to it.
        clock: Time.
        known: Says which of some job ids the store has seen before.
    """

    def __init__(
        self,
        controller: Slurm,
        snapshot: Snapshot,
        settings: SlurmSettings,
        mode: Mode,
        clock: Clock,
        known: Callable[[Iterable[str]], set[str]],
    ) -> None:
        self.mode = mode
        self._snapshot = snapshot
        self._settings = settings
        self._clock = clock
        self._truth = Truth(snapshot, settings, known)
        self._steward = Steward(snapshot, settings)
        self._slots = Slots(snapshot)
        unseen = self._unseen_seconds()
        complete = partial(_with_history, controller, unseen) if unseen else None
        self._courier = Courier(controller, clock.now, settings.poll / 1000, "Slurm", complete)
        self._view: View | None = None
        self._absorbed: View | None = None
        self._acted: View | None = None
        self._since: dict[str, int] = {}
        self._benches: dict[str, int] = {}
        self._heartbeat = Path(settings.heartbeat) if settings.heartbeat else None

    # -- the port -------------------------------------------------------------------------------------

    def submit(self, orders: Sequence[Order]) -> list[Event]:
        """Act on the state as it is after the decisions; single orders say nothing that it does not."""
        if orders:
            self._acted = None
            self._act()
        return []

    def poll(self) -> Iterator[Event]:
        """Yield what happened; each event must be applied before the next is asked for."""
        view = self._courier.take()
        now = self._clock.now()
        if view is None:
            self._act()
            return
        self._view = view
        yield from self._truth.events(view, now)
        if self.mode is Mode.ENFORCE:
            yield from self._take_back(view, now)
            if self._heartbeat is not None:
                heartbeat.beat(self._heartbeat, int(time.time()))
        self._absorbed = view

    # -- for the process around it --------------------------------------------------------------------

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when `poll` has something to report."""
        return self._courier.fileno()

    def pause_ms(self) -> int | None:
        """Return after how many ms to call `poll`: at once where a view has not been acted on."""
        return 0 if self._absorbed is not None and self._acted is not self._absorbed else None

    def may_act(self) -> bool:
        """Return whether decisions may be carried out: in mode enforce, on a view that is fresh."""
        return self.mode is Mode.ENFORCE and self._fresh()

    def devices(self) -> dict[str, list[list[Any]]] | None:
        """Return nothing: which device is whose is Slurm's to tell."""
        return None

    def heed(self, plan: Plan) -> None:
        """Order Slurm's queue as a plan would; in mode advise only."""
        view = self._absorbed
        if self.mode is not Mode.ADVISE or view is None or self._acted is view:
            return
        self._acted = view
        if not self._fresh():
            return
        wanted = advise.order(self._snapshot, plan)
        commands = advise.nice_commands(wanted, view.jobs, self._settings.nice_step)
        if commands or self._truth.wanted:
            self._courier.send(commands, frozenset(self._truth.wanted))

    @property
    def problem(self) -> str:
        """Return why Slurm cannot be seen; empty where it can."""
        return self._courier.problem

    def close(self) -> None:
        """Let go; what runs goes on."""
        self._courier.close()

    # -- inside ---------------------------------------------------------------------------------------

    def _unseen_seconds(self) -> int:
        """Return for how long nobody may have looked, at most the window that counts; 0 for a new state."""
        snapshot, now = self._snapshot, self._clock.now()
        known = (snapshot.jobs.submitted, snapshot.jobs.started, snapshot.jobs.stopped)
        last = max((at for column in known for at in column), default=0)
        first = max(snapshot.epochs[0].since, last - _OVERLAP, now - snapshot.policy.lookback)
        return max(now - first, 0) // SECOND if now - first > MINUTE else 0

    def _fresh(self) -> bool:
        """Return whether what is known of Slurm is young enough to act on."""
        if self._view is None:
            return False
        age = self._clock.now() - self._view.at
        return age <= max(_FRESH_LOOKS * self._settings.poll, _FRESH_LEAST) + self._settings.timeout * bool(
            not self._courier.problem
        )

    def _act(self) -> None:
        """Tell Slurm what it does not do yet; once per view, and again when there are decisions."""
        view = self._absorbed
        if view is None or self._acted is view:
            return
        wanted = frozenset(self._truth.wanted)
        if self.mode is not Mode.ENFORCE:
            if self.mode is Mode.OBSERVE:
                self._acted = view
                if wanted:
                    self._courier.send((), wanted)
            return
        self._acted = view
        if not self._fresh():
            return
        now, truth = self._clock.now(), self._truth
        live = truth.rows()
        slots, names = self._slots.commands(view, now, live, truth.managed)
        orders = self._steward.commands(view, now, live, truth.managed, truth.doomed, truth.strangers)
        commands = [*slots, *naming(names, truth.managed), *orders]
        if commands or wanted:
            self._courier.send(commands, wanted)

    def _take_back(self, view: View, now: int) -> Iterator[Event]:
        """Yield what ends the promise to a job that Slurm does not start; it waits longer each time."""
        late = overdue(
            self._snapshot, view, self._truth.live, self._since, now, self._settings.start_patience
        )
        for name, row, reason in late:
            spec = self._snapshot.jobs.spec[row]
            bench = self._benches[name] = min(self._benches.get(name, _BENCH // 2) * 2, _LONGEST_BENCH)
            self._truth.benched[name] = now + bench
            self._since.pop(name, None)
            _log.info("taken back", job=spec.id, slurm_says=reason, again_in_s=bench // SECOND)
            yield Stopping(now, spec.id, StopCause.START_FAILED)
        for name in [name for name in self._benches if name not in self._truth.live]:
            del self._benches[name]


def _with_history(slurm: Slurm, seconds: int, view: View) -> View:
    """Return a view with the accounting of the time in which nobody may have looked."""
    return replace(view, history=slurm.history(seconds))
