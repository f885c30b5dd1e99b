"""The loop process: state from the journal, planner by name, ports over the store and an engine."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import structlog

from divvy.adapters.clock import SteadyClock, read_instant, resume_at
from divvy.adapters.local.retention import Clearing
from divvy.adapters.store import archive
from divvy.adapters.store.database import Database
from divvy.adapters.store.health import HealthFile, LoopHealth
from divvy.adapters.store.inbox import Inbox
from divvy.adapters.store.journal import StoreJournal
from divvy.adapters.store.ownership import sole_loop
from divvy.adapters.store.publisher import StorePublisher
from divvy.adapters.store.reader import Reader
from divvy.adapters.store.retention import Keep, Retention
from divvy.adapters.store.wake import Wake
from divvy.adapters.waiting import Waiter
from divvy.bootstrap.engines import EngineMaker, launch_details
from divvy.bootstrap.settings import LiveSettings, open_store
from divvy.control.driver import Driver
from divvy.control.loop import Loop
from divvy.control.state import FleetState
from divvy.fleet.ledger import LedgerEntry
from divvy.planners.jobs import registry
from divvy.units import DAY

_HEALTH_SECONDS: Final = 0.25

_log = structlog.get_logger("bootstrap")


@contextlib.contextmanager
def live_loop(
    settings: LiveSettings,
    make_engine: EngineMaker,
    lifeline: int = -1,
    first_pass: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Driver, Waiter]]:
    """Make a loop over the store and an engine, ready to run; everything is let go at the end of the block.

    Args:
        settings: What to run.
        make_engine: Makes the engine.
        lifeline: Descriptor whose end asks for the end of the loop; -1: none.
        first_pass: Called after the first pass.

    Raises:
        DivvyError: If the store cannot be used, another loop works on it, or the engine cannot start.
    """
    with contextlib.ExitStack() as stack:
        health = HealthFile(Path(settings.home) / "health")
        stack.callback(health.close)
        health.write(LoopHealth("starting", _wall(), os.getpid(), restarts=settings.restarts))
        database = open_store(settings.database)
        stack.callback(database.dispose)
        stack.enter_context(sole_loop(database))
        driver, waiter, report = _assemble(settings, database, health, make_engine, lifeline, stack)
        report.first_pass = first_pass
        yield driver, waiter


def _assemble(
    settings: LiveSettings,
    database: Database,
    health: HealthFile,
    make_engine: EngineMaker,
    lifeline: int,
    stack: contextlib.ExitStack,
) -> tuple[Driver, Waiter, _Reporter]:
    tenure = archive.take_over(database, f"{socket.gethostname()} {os.getpid()}")
    clock = _clock(tenure, trust_wall=settings.trust_wall_clock)
    charges: list[LedgerEntry] = []
    state, seq, since_base = _load(database, charges)
    reader, planner = Reader(database), registry.create(settings.policy)
    budget = reader.budget()
    inbox = Inbox(database, state, clock.now, budget.version if budget else 0)
    journal = StoreJournal(
        database,
        inbox,
        charges,
        planner.name,
        settings.seed,
        stamp=clock.stamp,
        seq=seq,
        since_base=since_base,
        term=tenure.term,
    )
    engine = make_engine(settings, launch_details(reader), clock, tuple(state.snapshot.nodes.node))
    stack.callback(engine.close)
    publisher = StorePublisher(database, planner.name, engine.devices)
    stack.callback(publisher.close)
    call = Wake(Path(settings.home) / "wake")
    stack.callback(call.close)
    waiter = Waiter([(call.fileno(), call.drain), (engine.fileno(), _nothing)], lifeline)
    stack.callback(waiter.close)
    report = _Reporter(health, journal, state, clock, settings.restarts)
    stack.callback(report.ended)
    keep = Keep(round(settings.keep_jobs_days * DAY), round(settings.keep_journal_days * DAY))
    loop = Loop(state, planner, clock, engine, inbox, journal, publisher, seed=settings.seed)
    rows, runs = Retention(database, keep), Clearing(Path(settings.home), keep.jobs)

    def housekeep(now: int) -> None:
        rows.sweep(now)
        runs.sweep(now)

    return (
        Driver(loop, journal, inbox, publisher, clock, waiter, engine.pause_ms, report, housekeep),
        waiter,
        report,
    )


def _load(database: Database, charges: list[LedgerEntry]) -> archive.Loaded:
    began = time.perf_counter()
    loaded = archive.load(database, charges.append)
    _log.info(
        "loaded",
        seq=loaded.seq,
        jobs=len(loaded.state.snapshot.jobs.live),
        events=loaded.since_base,
        took_ms=round((time.perf_counter() - began) * 1000),
    )
    return loaded


def _clock(tenure: archive.Tenure, *, trust_wall: bool) -> SteadyClock:
    here = read_instant()
    boot = "" if trust_wall else tenure.boot
    start = resume_at(tenure.at, boot, tenure.uptime, here)
    if abs(start - here.wall) > 2_000:
        _log.warning("the wall clock differs from the journal's time", seconds=(here.wall - start) / 1000)
    return SteadyClock(start, here)


def _wall() -> int:
    return time.time_ns() // 1_000_000


def _nothing() -> None:
    """Leave what is readable to the pass that follows."""


class _Reporter:
    """Writes the loop's health a few times a second, and what became of the wall clock into the log."""

    def __init__(
        self, health: HealthFile, journal: StoreJournal, state: FleetState, clock: SteadyClock, restarts: int
    ) -> None:
        self._health = health
        self._journal = journal
        self._state = state
        self._clock = clock
        self._restarts = restarts
        self._written = float("-inf")
        self._said = ""
        self.first_pass: Callable[[], None] | None = None

    def __call__(self, problem: str, pass_ms: float) -> None:
        """Take the driver's word."""
        if self.first_pass is not None and not problem:
            self.first_pass()
            self.first_pass = None
        now = time.monotonic()
        if problem == self._said and now - self._written < _HEALTH_SECONDS:
            return
        self._written, self._said = now, problem
        step = self._clock.jumped()
        if step:
            _log.warning("the wall clock was set; Divvy's clock goes on as before", by_seconds=step / 1000)
        self._write("stalled" if problem else "running", problem, pass_ms)

    def ended(self) -> None:
        """Say that the loop was stopped."""
        self._write("stopped", "", 0.0)

    def _write(self, word: str, problem: str, pass_ms: float) -> None:
        self._health.write(
            LoopHealth(
                word,
                _wall(),
                os.getpid(),
                self._state.snapshot.version,
                self._journal.seq,
                self._clock.now(),
                round(pass_ms, 3),
                problem,
                self._clock.offset(),
                self._restarts,
            )
        )
