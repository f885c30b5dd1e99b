"""The composition root: the only place that knows which adapter stands behind which port."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from divvy.adapters.clock import SteadyClock, read_instant, resume_at
from divvy.adapters.local.devices import SHAPE_HELP, LocalNode, offer_gpus, offer_slots, parse_shape
from divvy.adapters.local.engine import LocalEngine
from divvy.adapters.local.nvml import Gauge, take_census
from divvy.adapters.store import archive
from divvy.adapters.store.database import Database, open_database
from divvy.adapters.store.health import HealthFile, LoopHealth
from divvy.adapters.store.inbox import Inbox
from divvy.adapters.store.journal import StoreJournal
from divvy.adapters.store.ownership import sole_loop
from divvy.adapters.store.publisher import Devices, StorePublisher
from divvy.adapters.store.reader import Reader
from divvy.adapters.store.retention import Keep, Retention
from divvy.adapters.store.schema import check, prepare
from divvy.adapters.store.wake import Wake
from divvy.adapters.waiting import Waiter
from divvy.control.driver import Driver
from divvy.control.launch import LaunchSpec
from divvy.control.loop import Loop
from divvy.control.ports import Clock, Engine
from divvy.errors import InputError, NotFoundError
from divvy.fleet.ledger import LedgerEntry
from divvy.fleet.node import Node
from divvy.planners.jobs import registry
from divvy.units import DAY

_HEALTH_SECONDS: Final = 0.25
_GAUGE_SECONDS: Final = 1.0

_log = structlog.get_logger("bootstrap")


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """What `divvy up` was asked for, as plain values: it crosses process boundaries as JSON.

    Attributes:
        home: State directory.
        database: URL of the store.
        policy: Name of the planner.
        shape: Devices offered by the local engine, such as ``8`` or ``2x4``; empty: what the machine has.
        slots: Whether ``shape`` means CPU slots even where there are GPUs.
        seed: Passed to the planner.
        keep_jobs_days: How long jobs that are over stay readable.
        keep_journal_days: How long passes can be re-run.
        trust_wall_clock: Take the wall clock at the start even if it was set since the last run.
        restarts: How often the loop was started before, by the same `divvy up`.
    """

    home: str
    database: str
    policy: str = "budget"
    shape: str = ""
    slots: bool = False
    seed: int = 0
    keep_jobs_days: float = 90
    keep_journal_days: float = 14
    trust_wall_clock: bool = False
    restarts: int = 0


class LiveEngine(Engine, Protocol):
    """An engine that a process can wait for."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` has something to report."""

    def pause_ms(self) -> int | None:
        """Return after how many ms to call `poll` in any case; None: no need."""

    def devices(self) -> Devices:
        """Return which device is whose, per node."""

    def close(self) -> None:
        """Let go; what runs goes on."""


class EngineMaker(Protocol):
    """Makes the engine of a loop."""

    def __call__(
        self,
        settings: LiveSettings,
        details: Callable[[str], LaunchSpec],
        clock: Clock,
        known: Iterable[Node],
    ) -> LiveEngine:
        """Return the engine; ``known`` are the nodes that the state knows."""


def default_home() -> Path:
    """Return the state directory: ``$DIVVY_HOME``, else /var/lib/divvy for root, else the user's own."""
    given = os.environ.get("DIVVY_HOME")
    if given:
        return Path(given).absolute()
    return Path("/var/lib/divvy") if os.geteuid() == 0 else Path.home() / ".local/share/divvy"


def default_database(home: Path) -> str:
    """Return the URL of the embedded store."""
    return f"sqlite:///{home / 'divvy.db'}"


def open_store(url: str, *, verify: bool = False) -> Database:
    """Open a store and bring its schema up to date; if asked, read an embedded one through first.

    Raises:
        DivvyError: If it cannot be used, with the reason and what to do.
    """
    database = open_database(url)
    try:
        if verify:
            check(database)
        prepare(database)
    except BaseException:
        database.dispose()
        raise
    return database


def launch_details(reader: Reader) -> Callable[[str], LaunchSpec]:
    """Return the look-up of what a job runs."""

    def details(job: str) -> LaunchSpec:
        document = reader.launch(job)
        if document is None:
            raise NotFoundError.one("launch-unknown", f"nothing is known of what job {job} runs", path="job")
        return LaunchSpec.from_document(document)

    return details


class _LocalEngine(LocalEngine):
    """The local engine, with its devices as the publisher shows them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        gpus = any(holding.uuid for holding in self.holdings())
        self._gauge = Gauge() if gpus else None
        self._read: dict[int, tuple[float | None, str]] = {}
        self._read_at = float("-inf")

    def devices(self) -> Devices:
        """Return which device is whose, and how busy GPUs are, measured at most once a second."""
        found: dict[str, list[list[Any]]] = {}
        now = time.monotonic()
        fresh = now - self._read_at < _GAUGE_SECONDS
        if not fresh:
            self._read_at = now
        for held in self.holdings():
            if self._gauge is None:
                busy: tuple[float | None, str] = (None, "a CPU slot has no utilisation counter")
            elif fresh and held.ordinal in self._read:
                busy = self._read[held.ordinal]
            else:
                busy = self._read[held.ordinal] = self._gauge.read(held.ordinal)
            found.setdefault(held.node, []).append([held.place, held.job or None, busy[0], busy[1] or None])
        return found


def local_engine(
    settings: LiveSettings, details: Callable[[str], LaunchSpec], clock: Clock, known: Iterable[Node]
) -> LiveEngine:
    """Make the engine that runs jobs on this machine, on its GPUs, or on CPU slots where it has none.

    Raises:
        DivvyError: If the shape is not one of this machine, or its directory cannot be used.
    """
    nodes = offered_nodes(settings.shape, slots=settings.slots)
    return _LocalEngine(Path(settings.home), details, nodes, clock, known=known)


def offered_nodes(shape: str, *, slots: bool) -> tuple[LocalNode, ...]:
    """Return the nodes that this machine is offered as.

    Args:
        shape: Such as ``8`` or ``2x4``; empty: all GPUs, or a slot per CPU where there is no GPU.
        slots: Offer CPU slots even where there are GPUs.

    Raises:
        InputError: If the shape cannot be read, or asks for more GPUs than there are.
    """
    try:
        wanted = parse_shape(shape) if shape else None
    except ValueError as error:
        raise InputError.one("node-shape", str(error), path="--nodes", allowed=SHAPE_HELP) from error
    host = socket.gethostname().partition(".")[0] or "localhost"
    census = take_census()
    if census.gpus and not slots:
        return offer_gpus(host, census.gpus, wanted)
    _log.info("offering CPU slots", why="asked for" if slots else census.reason)
    return offer_slots(host, *(wanted or (1, os.cpu_count() or 1)))


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
        stamp=_stamp(clock),
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
    sweep = Retention(database, keep).sweep
    return (
        Driver(loop, journal, inbox, publisher, clock, waiter, engine.pause_ms, report, sweep),
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


def _stamp(clock: SteadyClock) -> Callable[[], tuple[int, str, int]]:
    boot = read_instant().boot
    return lambda: (clock.now(), boot, read_instant().uptime)


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
        self, health: HealthFile, journal: StoreJournal, state: Any, clock: SteadyClock, restarts: int
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
