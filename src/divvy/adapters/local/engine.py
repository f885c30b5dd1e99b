"""The local engine: the port `Engine` over real processes of this machine.

All truth about a run is in its directory and its shim; what this object holds is a cache of it, and can
be lost at any instant (see docs/adr/0010-local-shim.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

from divvy.adapters.local import cgroup, outcome
from divvy.adapters.local.backoff import Backoff
from divvy.adapters.local.devices import Book, LocalNode, announce, faded, fading
from divvy.adapters.local.meter import Busy, Holding, Meter
from divvy.adapters.local.moment import Timekeeper
from divvy.adapters.local.order import Treatment, read_assignment, run_key
from divvy.adapters.local.runs import Shelf, Standing
from divvy.adapters.local.shim.clocks import boot_id, steady_ms
from divvy.adapters.local.starter import MachineError, Starter, SubmissionError
from divvy.adapters.local.switchboard import Switchboard
from divvy.control.launch import LaunchSpec
from divvy.control.ports import Clock, Halt, Launch, Order
from divvy.fleet.event import Event, Started, Stopped
from divvy.fleet.job import StopCause
from divvy.fleet.node import Node

_LOG: Final = logging.getLogger(__name__)
_LOOK_AGAIN_MS: Final = 50
_LOOKS: Final = 40
_LOOK_SELDOM_MS: Final = 1_000


class Stage(IntEnum):
    """How far a run has come, as this engine sees it."""

    WAITING = 0
    """For devices, or for a machine that can start runs."""
    STARTING = 1
    """Its shim lives; the command is not known to run yet."""
    RUNNING = 2
    SWEEPING = 3
    """Its shim is gone and what it left is being killed."""


@dataclass(slots=True)
class Run:
    """A run that is not over.

    Attributes:
        key: Name of the run.
        shelf: Its directory.
        launch: The order; None for a run that was found at the start and that no order claimed yet.
        stage: How far it has come.
        asked: Why it was told to leave; None while it was not.
        lost_at: When it was lost, in stage SWEEPING.
    """

    key: str
    shelf: Shelf
    launch: Launch | None
    stage: Stage = Stage.WAITING
    asked: StopCause | None = None
    lost_at: int = 0


class LocalEngine:
    """Runs jobs as processes of this machine. One object, one thread, one directory.

    Args:
        directory: State directory; ``jobs/`` and ``live/`` in it belong to this engine.
        details: Returns what a job runs; raises `NotFoundError` where there is no such thing.
        nodes: What this machine is offered as.
        clock: Time of the events that this engine makes up; the shims bring their own.
        known: Nodes as the state knows them at the start.
        containment: What cgroups can do here; found out where not given.
        treatment: How every run is treated.

    Raises:
        UnavailableError: If the directory cannot be written.
        ConflictError: If another engine works in it.
    """

    def __init__(
        self,
        directory: Path,
        details: Callable[[str], LaunchSpec],
        nodes: Sequence[LocalNode],
        clock: Clock,
        *,
        known: Iterable[Node] = (),
        containment: cgroup.Containment | None = None,
        treatment: Treatment | None = None,
    ) -> None:
        self.directory = directory.resolve()
        self._clock = clock
        self._book = Book(nodes)
        self._runs: dict[str, Run] = {}
        self._backoff = Backoff()
        self._told = False
        self._leaving = False
        self._looks = 0
        self._rubbish: set[str] = set()
        self._times = Timekeeper(clock, boot_id())
        self._switchboard = Switchboard(self.directory)
        if containment is None:
            gpus = any(device.minor >= 0 for node in nodes for device in node.devices)
            name = f"divvy-{hashlib.sha256(bytes(self.directory)).hexdigest()[:8]}"
            containment = cgroup.detect(name, devices=gpus)
        self.containment = containment
        self._meter = Meter(containment)
        self._starter = Starter(
            details, containment, self._book, treatment or Treatment(), self._switchboard.address
        )
        self._events: list[Event] = []
        self._find()
        changes = announce(nodes, known, self._book.busy(), clock.now())
        self._fading = fading(changes)
        self._events += changes

    # -- the port -------------------------------------------------------------------------------------

    def submit(self, orders: Sequence[Order]) -> list[Event]:
        """Take orders; return what is known at once."""
        asked = {(order.job, order.attempt): order.cause for order in orders if isinstance(order, Halt)}
        for order in orders:
            if isinstance(order, Launch):
                self._launch(order, asked.get((order.job, order.attempt)))
            else:
                self._halt(order)
        self._told = True
        self._begin_waiting()
        return self._take()

    def poll(self) -> list[Event]:
        """Return what happened since the last call."""
        calls = self._switchboard.calls()
        for key in calls.news:
            run = self._runs.get(key)
            if run is not None and run.stage is Stage.STARTING:
                self._report_start(run)
        for key in calls.gone:
            self._hang_up(self._runs[key])
        self._clear_up()
        if self._told:
            self._evict()
        self._begin_waiting()
        self._fade()
        return self._take()

    def _clear_up(self) -> None:
        """See to what dead shims left behind."""
        lost = [run for run in self._runs.values() if run.stage is Stage.SWEEPING]
        for run in lost:
            self._sweep(run)
        self._leaving = self._switchboard.reap()
        self._rubbish = {key for key in self._rubbish if not self.containment.discard(key)}
        self._looks = self._looks + 1 if lost or self._leaving or self._rubbish else 0

    def _take(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    # -- for the process around it --------------------------------------------------------------------

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when `poll` has something to report."""
        return self._switchboard.fileno()

    def pause_ms(self) -> int | None:
        """Return after how many ms to call `poll` even if nothing becomes readable; None: no need."""
        if self._events:
            return 0
        stages = {run.stage for run in self._runs.values()}
        if Stage.SWEEPING in stages or self._leaving or self._rubbish:
            # Usually a matter of milliseconds; a process that hangs in the kernel may take hours.
            return _LOOK_AGAIN_MS if self._looks < _LOOKS else _LOOK_SELDOM_MS
        return self._backoff.pause(steady_ms()) if Stage.WAITING in stages else None

    def holdings(self) -> list[Holding]:
        """Return every device of this machine with the run that holds it."""
        found: list[Holding] = []
        for name, holders in self._book.holders().items():
            for place, key in enumerate(holders):
                device = self._book.nodes[name].devices[place]
                run = self._runs.get(key)
                job, attempt = (run.shelf.job, run.shelf.attempt) if run else ("", 0)
                found.append(Holding(name, place, device.ordinal, device.uuid, job, attempt))
        return found

    def measure(self) -> list[tuple[Holding, Busy]]:
        """Return every device with its run and how busy it was lately."""
        holdings = self.holdings()
        return list(zip(holdings, self._meter.read(holdings), strict=True))

    def close(self) -> None:
        """Let go of everything; the runs go on, and the next engine in this directory adopts them."""
        self._switchboard.close()
        self.containment.close()

    # -- finding --------------------------------------------------------------------------------------

    def _find(self) -> None:
        """Look at the runs that the last engine left marked, so that no device is given away twice."""
        for shelf in Shelf.marked(self.directory):
            run = Run(run_key(shelf.job, shelf.attempt), shelf, None)
            standing, line = shelf.look()
            if standing is Standing.ALIVE:
                self._hold(run, Stage.STARTING)
                self._switchboard.connect(run.key, line)
            elif standing is Standing.LOST:
                self._hold(run, Stage.SWEEPING)
                run.lost_at = self._times.of_file(shelf.last_sign())
            else:
                shelf.unmark()

    def _fade(self) -> None:
        """Report nodes that are offered no more and on which nothing runs any longer."""
        if self._fading:
            busy = self._book.busy()
            self._events += (faded(node, self._clock.now()) for node in self._fading if node.name not in busy)
            self._fading = [node for node in self._fading if node.name in busy]

    def _hold(self, run: Run, stage: Stage) -> None:
        """Note a run that was begun earlier, and the devices that it holds."""
        run.stage = stage
        self._runs[run.key] = run
        order = run.shelf.order()
        if order is not None:
            self._book.claim(run.key, read_assignment(order))

    def _launch(self, launch: Launch, asked: StopCause | None) -> None:
        """Take the order to begin a run; `asked`: why it was told to leave, if it was."""
        key = run_key(launch.job, launch.attempt)
        run = self._runs.get(key)
        if run is not None:
            if run.launch is None:
                self._adopt(run, launch)
            return
        run = Run(key, Shelf(self.directory, launch.job, launch.attempt), launch, asked=asked)
        standing, line = run.shelf.look()
        if standing is Standing.ALIVE:
            self._hold(run, Stage.STARTING)
            self._switchboard.connect(key, line)
            self._adopt(run, launch)
        elif standing is Standing.LOST:
            self._lose(run, self._times.of_file(run.shelf.last_sign()))
        elif standing is Standing.ENDED:
            self._report_end(run)
        elif asked is not None:
            self._events.append(outcome.withdrawn(launch.spec, self._clock.now(), asked))
        else:
            self._runs[key] = run

    def _adopt(self, run: Run, launch: Launch) -> None:
        run.launch = launch
        self._report_start(run)

    def _evict(self) -> None:
        """Stop what was found running and no order claimed: nobody pays for it, and it holds devices."""
        for run in self._runs.values():
            if run.launch is None and run.asked is None:
                _LOG.warning("run %s is not known to the state and is stopped", run.key)
                run.asked = StopCause.CANCELLED
                self._switchboard.say(run.key, run.asked.name)

    # -- beginning ------------------------------------------------------------------------------------

    def _begin_waiting(self) -> None:
        """Start what waits, in order, as far as devices are free and the machine can start runs."""
        for run in [run for run in self._runs.values() if run.stage is Stage.WAITING]:
            if run.launch is not None and self._backoff.open(steady_ms()):
                self._begin(run, run.launch)

    def _begin(self, run: Run, launch: Launch) -> None:
        misfit = self._book.misfit(launch.placement)
        if misfit:
            self._fail(run, misfit)
            return
        assignment = self._book.take(run.key, launch.placement)
        if assignment is None:
            return
        self._rubbish.discard(run.key)
        self._backoff.trying(run.key, steady_ms())
        try:
            line, pid = self._starter.start(launch, assignment, run.shelf)
        except SubmissionError as error:
            self._drop(run, outcome.refused(launch.spec, self._clock.now(), str(error)))
        except MachineError as error:
            self._fail(run, str(error))
        else:
            run.stage = Stage.STARTING
            self._switchboard.connect(run.key, line, pid)

    def _fail(self, run: Run, message: str) -> None:
        """The machine could not start a run: its job goes back, and the next start waits a little."""
        if not self.containment.discard(run.key):
            self._rubbish.add(run.key)
        if run.launch is None:
            self._drop(run, None)
            return
        self._backoff.failed(steady_ms())
        _LOG.warning("run %s could not be started: %s", run.key, message)
        stopped = outcome.not_started(
            run.launch.spec, self._clock.now(), message, run.asked, retry_ms=self._backoff.wait_ms
        )
        self._drop(run, stopped)

    def _report_start(self, run: Run) -> None:
        """Report that a run began, if it did."""
        started = run.shelf.started()
        if started is None or run.launch is None:
            return
        if run.stage is Stage.STARTING:
            run.stage = Stage.RUNNING
            self._backoff.worked()
        self._events.append(Started(self._times.of(started, "started"), run.launch.job))

    # -- ending ---------------------------------------------------------------------------------------

    def _halt(self, halt: Halt) -> None:
        run = self._runs.get(run_key(halt.job, halt.attempt))
        if run is None:
            return  # over, and reported
        if run.asked is None or halt.cause is StopCause.CANCELLED:
            run.asked = halt.cause
        if run.stage is Stage.WAITING and run.launch is not None:
            self._drop(run, outcome.withdrawn(run.launch.spec, self._clock.now(), run.asked))
        else:
            self._switchboard.say(run.key, halt.cause.name)

    def _hang_up(self, run: Run) -> None:
        """The shim is gone: its records say how the run ended, or that it was lost."""
        self._switchboard.disconnect(run.key)
        if run.shelf.ended() is not None:
            self._report_end(run)
        elif run.shelf.started() is not None:
            self._lose(run, self._clock.now())
        else:
            self._fail(run, run.shelf.complaint() or "its shim died at once")

    def _report_end(self, run: Run) -> None:
        ended = run.shelf.ended()
        if run.launch is None or ended is None:
            self._drop(run, None)
            return
        if ended["began"] and run.stage is not Stage.RUNNING:
            self._events.append(Started(self._times.of(ended, "started"), run.launch.job))
        if ended["fault"] == outcome.ENGINE:
            run.asked = StopCause[ended["cause"]] if ended["cause"] else None
            self._fail(run, ended["message"])
            return
        self._backoff.worked()
        at, order = self._times.of(ended, "ended"), run.shelf.order() or {}
        self._drop(run, outcome.stopped(run.launch.spec, at, ended, order.get("memory_bytes", 0)))

    def _lose(self, run: Run, at: int) -> None:
        """The shim died without an end record: what it left must be gone before the devices are free."""
        if run.stage is not Stage.RUNNING:
            self._report_start(run)
        run.lost_at = at
        self._hold(run, Stage.SWEEPING)

    def _sweep(self, run: Run) -> None:
        order = run.shelf.order()
        if order is not None and not run.shelf.sweep(order):
            return
        if run.launch is not None:
            rebooted = (run.shelf.started() or {}).get("boot_id") != self._times.boot
            self._drop(run, outcome.lost(run.launch.spec, run.lost_at, run.asked, rebooted=rebooted))
        elif self._told:  # no order claimed it
            self._drop(run, None)

    def _drop(self, run: Run, stopped: Stopped | None) -> None:
        """Forget a run that is over, and report it."""
        self._switchboard.disconnect(run.key)
        self._book.release(run.key)
        self._backoff.dropped(run.key)
        self._runs.pop(run.key, None)
        with contextlib.suppress(OSError):  # a mark that stays is cleared by the next engine
            run.shelf.unmark()
        if stopped is not None:
            self._events.append(stopped)
