"""What the journal and the loop of `divvy up` cost: append, restart, submission to order, memory.

    PYTHONPATH=src python benchmarks/live.py [--quick]

Prints one JSON document (``divvy.bench/1``). The jobs are pretended: an engine that only takes orders ends
each at once, so that nothing but Divvy's own work is measured. Wants an idle machine and a directory on the
disk that counts (TMPDIR); takes about two minutes, or half a minute with --quick.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import random
import select
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil
import structlog

from divvy.adapters.store import archive
from divvy.adapters.store.intake import IntakeWriter
from divvy.adapters.store.wake import wake
from divvy.bootstrap.api import open_for_api
from divvy.bootstrap.loop import live_loop
from divvy.bootstrap.settings import LiveSettings, default_database, open_store
from divvy.control.launch import LaunchSpec
from divvy.control.ports import Clock, Launch, Order
from divvy.fleet.budget import read_budget
from divvy.fleet.event import Event, NodeChanged, Started, Stopped
from divvy.fleet.job import JobSpec, StopCause
from divvy.fleet.node import Node
from divvy.service.app import create_app
from divvy.service.ports import Backend
from divvy.service.server import serve

BUDGET = {
    "accounts": {"lab": {"share": 100, **{f"team{n}": {"share": 12} for n in range(8)}}},
}
LAUNCH = LaunchSpec(("/bin/true",), "/", (), "ada", 1, 1).to_document()


class PretendEngine:
    """Takes orders, notes when they came, and ends every run at once, or never."""

    def __init__(self, clock: Clock, gpus: int, *, ends: bool, heard: int = -1) -> None:
        self._clock = clock
        self._ends = ends
        self._heard = heard
        self._ear, self._mouth = os.pipe2(os.O_NONBLOCK)
        self._news: list[Event] = [NodeChanged(clock.now(), Node("n", gpus))]

    def submit(self, orders: Sequence[Order]) -> Iterable[Event]:
        """Take orders."""
        now = self._clock.now()
        for order in orders:
            if not isinstance(order, Launch):
                continue
            if self._heard >= 0:
                os.write(self._heard, f"{order.job} {time.monotonic_ns()}\n".encode())
            self._news.append(Started(now, order.job))
            if self._ends:
                self._news.append(Stopped(now + 1, order.job, StopCause.FINISHED, requeue=False, exit_code=0))
        if self._news:
            os.write(self._mouth, b"!")
        return ()

    def poll(self) -> Iterable[Event]:
        """Return what happened."""
        if select.select([self._ear], [], [], 0)[0]:
            os.read(self._ear, 65_536)
        news, self._news = self._news, []
        return news

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._ear

    def pause_ms(self) -> int | None:
        """Return that it will call."""
        return None

    def devices(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._ear)
        os.close(self._mouth)


def found(home: Path) -> LiveSettings:
    """Make a state directory and return the settings of a loop on it."""
    settings = LiveSettings(str(home), default_database(home))
    database = open_store(settings.database)
    archive.found(database, read_budget(BUDGET), time.time_ns() // 1_000_000, "bench", "bench")
    database.dispose()
    return settings


def submit(writer: IntakeWriter, draw: random.Random, gpus: int = 1) -> str:
    """Store a job."""
    spec = JobSpec("", f"lab.team{draw.randrange(8)}", f"u{draw.randrange(40)}", gpus, 3_600_000)
    return writer.submit(spec, LAUNCH, debug=False, actor="ada").job


def fork(settings: LiveSettings, gpus: int, *, ends: bool, heard: int = -1) -> int:
    """Run a loop in a process of its own; return its id."""
    pid = os.fork()
    if pid == 0:
        try:
            make = lambda _s, _d, clock, _k: PretendEngine(clock, gpus, ends=ends, heard=heard)  # noqa: E731
            with live_loop(settings, make) as (driver, _):
                driver.run()
        finally:
            os._exit(1)
    return pid


def end(pid: int) -> None:
    """Kill a loop."""
    os.kill(pid, 9)
    os.waitpid(pid, 0)


def append_ms(home: Path, count: int) -> list[float]:
    """Return how long the commits of small passes take: an event or two, a decision, the ledger."""
    settings, draw, taken = found(home), random.Random(1), []  # noqa: S311
    make = lambda _s, _d, clock, _k: PretendEngine(clock, 64, ends=True)  # noqa: E731
    with live_loop(settings, make) as (driver, _):
        journal, loop = driver._record, driver._loop  # noqa: SLF001 - measured from inside
        flush = journal.flush

        def timed() -> None:
            began = time.perf_counter_ns()
            flush()
            taken.append((time.perf_counter_ns() - began) / 1e6)

        journal.flush = timed  # type: ignore[method-assign]
        database = open_store(settings.database)
        writer = IntakeWriter(database, lambda: None)
        while len(taken) < count:
            submit(writer, draw)
            loop.step()
        database.dispose()
    return taken


def restart_ms(home: Path, jobs: int) -> float:
    """Return how long it takes to load a state of so many live jobs: a base snapshot and what came after."""
    settings, draw = found(home), random.Random(2)  # noqa: S311
    database = open_store(settings.database)
    writer = IntakeWriter(database, lambda: None)
    for _ in range(jobs):
        submit(writer, draw, gpus=4)
    make = lambda _s, _d, clock, _k: PretendEngine(clock, 512, ends=False)  # noqa: E731
    with live_loop(settings, make) as (driver, _):
        for _ in range(jobs // 1_000 + 3):
            driver._loop.step()  # noqa: SLF001 - no waiting in between
        driver._checkpoint()  # noqa: SLF001
        for _ in range(1_000):
            submit(writer, draw, gpus=4)
        for _ in range(5):
            driver._loop.step()  # noqa: SLF001
    began = time.perf_counter()
    loaded = archive.load(database)
    taken = (time.perf_counter() - began) * 1000
    assert len(loaded.state.snapshot.jobs.live) == jobs + 1_000
    database.dispose()
    return taken


def order_ms(home: Path, count: int) -> list[float]:
    """Return the time from the call that stores a submission to the order that reaches the engine."""
    settings, draw, taken = found(home), random.Random(3), []  # noqa: S311
    ear, mouth = os.pipe()
    pid = fork(settings, count + 1, ends=False, heard=mouth)
    database = open_store(settings.database)
    writer = IntakeWriter(database, lambda: wake(home / "wake"))
    while not (home / "wake").exists():
        time.sleep(0.01)
    time.sleep(0.5)
    for _ in range(count):
        began = time.monotonic_ns()
        name = submit(writer, draw)
        told = os.read(ear, 200).split()
        assert told[0].decode() == name
        taken.append((int(told[1]) - began) / 1e6)
        time.sleep(draw.uniform(0.01, 0.05))
    end(pid)
    database.dispose()
    os.close(ear)
    os.close(mouth)
    return taken


def fork_api(settings: LiveSettings) -> int:
    """Run an API in a process of its own, which keeps up with the loop; return its id."""
    pid = os.fork()
    if pid == 0:
        try:
            store, home = open_for_api(settings), Path(settings.home)
            backend = Backend(store.reader, store.intake, store.tokens, store.now, home, 0, store.health)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(home / "socket"))
            listener.listen()
            serve(create_app(backend), [listener], lambda: None)
        finally:
            os._exit(1)
    return pid


def bytes_per_job(home: Path, jobs: int) -> dict[str, tuple[float, float]]:
    """Return by how much loop and API grow per finished job, and their sizes in the end, bytes."""
    settings, draw = found(home), random.Random(4)  # noqa: S311
    pids = {"loop process": fork(settings, 64, ends=True), "API process": fork_api(settings)}
    database = open_store(settings.database)
    writer = IntakeWriter(database, lambda: wake(home / "wake"))
    sizes: dict[str, list[int]] = {name: [] for name in pids}
    for part in range(4):
        for _ in range(jobs // 4):
            submit(writer, draw)
        while writer_waits(database):
            time.sleep(0.2)
        time.sleep(1.5)
        for name, pid in pids.items():
            sizes[name].append(psutil.Process(pid).memory_info().rss)
        told = ", ".join(f"{name} {size[-1] / 1e6:.1f} MB" for name, size in sizes.items())
        print(f"  {(part + 1) * jobs // 4} jobs: {told}", flush=True, file=sys.stderr)
    for pid in pids.values():
        end(pid)
    database.dispose()
    return {n: ((size[-1] - size[0]) / (jobs * 3 // 4), float(size[-1])) for n, size in sizes.items()}


def writer_waits(database: Any) -> bool:
    """Return whether jobs are not over yet."""
    with database.read() as connection:
        return bool(connection.exec_driver_sql("SELECT 1 FROM job WHERE phase < 4 LIMIT 1").first())


def row(
    case: str, measure: str, values: Sequence[float], target: float | None, unit: str = "ms"
) -> dict[str, Any]:
    """Return one figure: the median, or the 99th percentile, with the smallest and the largest value."""
    ordered = sorted(values)
    value = statistics.median(ordered) if measure != "p99" else ordered[int(0.99 * (len(ordered) - 1))]
    return {
        "case": case,
        "contender": "divvy",
        "measure": measure,
        "value": round(value, 3),
        "unit": unit,
        "interval": [round(ordered[0], 3), round(ordered[-1], 3)],
        "n": len(ordered),
        "target": target,
        "met": None if target is None else value <= target,
        "note": "",
    }


def within(work: Callable[[Path], Any]) -> Any:
    """Run something in a state directory of its own."""
    home = Path(tempfile.mkdtemp(prefix="bl"))
    try:
        return work(home)
    finally:
        shutil.rmtree(home)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    logging.disable(logging.WARNING)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    appends = within(lambda home: append_ms(home, 300 if quick else 2_000))
    orders = within(lambda home: order_ms(home, 50 if quick else 300))
    restarts = [within(lambda home: restart_ms(home, 10_000)) for _ in range(1 if quick else 3)]
    jobs = 4_000 if quick else 20_000
    grown = within(lambda home: bytes_per_job(home, jobs))
    rows = [
        row("one small pass", "p50", appends, None),
        row("one small pass", "p99", appends, None),
        row("submission to order", "p50", orders, 50.0),
        row("submission to order", "p99", orders, 50.0),
        row("state of 10,000 live jobs and 1,000 events after it", "load", restarts, None),
    ]
    for name, (per_job, size) in grown.items():
        rows += [
            {**row(name, "growth per finished job", [per_job], 2_048.0, "B"), "n": jobs * 3 // 4},
            row(name, "resident size in the end", [size], None, "B"),
        ]
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()}
    print(json.dumps({"schema": "divvy.bench/1", "name": "live", "machine": machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
