"""The loop process: state from the journal, planner by name, ports over the store and an engine."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
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
from divvy.adapters.store.known import known_jobs
from divvy.adapters.store.ownership import sole_loop
from divvy.adapters.store.publisher import StorePublisher
from divvy.adapters.store.reader import Reader
from divvy.adapters.store.retention import Keep, Retention
from divvy.adapters.store.wake import Wake
from divvy.adapters.waiting import Waiter
from divvy.bootstrap.engines import EngineMaker, LiveEngine, World, launch_details
from divvy.bootstrap.settings import LiveSettings, open_store
from divvy.control.driver import Driver
from divvy.control.loop import Loop
from divvy.control.ports import Publisher
from divvy.control.state import FleetState
from divvy.fleet.decision import Plan
from divvy.fleet.ledger import LedgerEntry
from divvy.fleet.snapshot import Snapshot
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
    known = partial(known_jobs, database)
    engine = make_engine(settings, World(launch_details(reader), clock, state.snapshot, known))
    stack.callback(engine.close)
    publisher = StorePublisher(database, planner.name, engine.devices)
    stack.callback(publisher.close)
    call = Wake(Path(settings.home) / "wake")
    stack.callback(call.close)
    waiter = Waiter([(call.fileno(), call.drain), (engine.fileno(), _nothing)], lifeline)
    stack.callback(waiter.close)
    report = _Reporter(health, journal, state, clock, settings.restarts, lambda: engine.problem)
    stack.callback(report.ended)
    keep = Keep(round(settings.keep_jobs_days * DAY), round(settings.keep_journal_days * DAY))
    told, seed = _Told(publisher, engine), settings.seed
    loop = Loop(state, planner, clock, engine, inbox, journal, told, seed=seed, may_act=engine.may_act)
    tidy = _Tidy(Retention(database, keep), Clearing(Path(settings.home), keep.jobs))
    driver = Driver(loop, journal, inbox, publisher, clock, waiter, engine.pause_ms, report, tidy)
    return driver, waiter, report


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


class _Tidy:
    """Removes what is too old to keep."""

    def __init__(self, rows: Retention, runs: Clearing) -> None:
        self._rows = rows
        self._runs = runs

    def __call__(self, now: int) -> None:
        """Remove a little."""
        self._rows.sweep(now)
        self._runs.sweep(now)


class _Told:
    """Offers plans to the engine, too, where they are published."""

    def __init__(self, publisher: Publisher, engine: LiveEngine) -> None:
        self._publisher = publisher
        self._engine = engine

    def publish(self, snapshot: Snapshot, plan: Plan, now: int) -> None:
        """Tell the engine, then the readers."""
        self._engine.heed(plan)
        self._publisher.publish(snapshot, plan, now)


class _Reporter:
    """Writes the loop's health a few times a second, and what became of the wall clock into the log."""

    def __init__(
        self,
        health: HealthFile,
        journal: StoreJournal,
        state: FleetState,
        clock: SteadyClock,
        restarts: int,
        engine_problem: Callable[[], str],
    ) -> None:
        self._engine_problem = engine_problem
        self._health = health
        self._journal = journal
        self._state = state
        self._clock = clock
        self._restarts = restarts
        self._written = float("-inf")
        self._said = ""
        self.first_pass: Callable[[], None] | None = None

    def __call__(self, problem: str, pass_ms: float) -> None:
        """Take the driver's word, and the engine's."""
        if self.first_pass is not None and not problem:
            self.first_pass()
            self.first_pass = None
        problem = problem or self._engine_problem()
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
