"""The API's latency with 10,000 jobs stored and a scheduler that never rests beside it.

Three processes on this machine, as `divvy up` runs them: the loop (with an engine that pretends, so that
passes follow each other without a pause and runs end and start all the time), the API, and one client that
asks over the Unix socket, one request after the other. What is measured is what a client waits for.
"""

from __future__ import annotations

import http.client
import json
import logging
import multiprocessing
import os
import random
import signal
import socket
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import structlog

from divvy.adapters.store import archive
from divvy.adapters.store.database import Database
from divvy.adapters.store.intake import IntakeWriter
from divvy.adapters.store.reader import Reader
from divvy.bootstrap.api import open_for_api
from divvy.bootstrap.engines import AlwaysInSight
from divvy.bootstrap.loop import live_loop
from divvy.bootstrap.settings import LiveSettings, default_database, open_store
from divvy.control.loop import goes_back
from divvy.control.ports import Launch
from divvy.fleet.budget import read_budget
from divvy.fleet.event import NodeChanged, Started, Stopped
from divvy.fleet.job import JobSpec, Phase, StopCause
from divvy.fleet.node import Node
from divvy.service.app import create_app
from divvy.service.ports import Backend
from divvy.service.server import serve

TARGET_MS = 20.0
_PER_NODE = 8
_LIVE_PART = 0.25
_HOUR = 3_600_000


class PretendEngine(AlwaysInSight):
    """Starts what it is told and ends short jobs at once, a long one now and then; it never rests."""

    def __init__(self, clock: Any, nodes: Sequence[Node]) -> None:
        self._clock = clock
        self._news: list[Any] = [NodeChanged(clock.now(), node) for node in nodes]
        self._runs: dict[str, JobSpec] = {}
        self._long: deque[str] = deque()
        self._ear, self._mouth = os.pipe()
        os.write(self._mouth, b"!")  # readable for ever: a pass follows a pass

    def submit(self, orders: Iterable[Any]) -> list[Any]:
        """Take orders."""
        for order in orders:
            if isinstance(order, Launch):
                self._runs[order.job] = order.spec
                self._news.append(Started(self._clock.now(), order.job))
                if order.spec.name == "short":
                    self._end(order.job, StopCause.FINISHED)
                else:
                    self._long.append(order.job)
            elif order.job in self._runs:
                self._end(order.job, order.cause)
        return []

    def poll(self) -> list[Any]:
        """Return what happened; where nothing did, the oldest run ends."""
        while self._long and self._long[0] not in self._runs:
            self._long.popleft()
        if self._long and not self._news:
            self._end(self._long.popleft(), StopCause.FINISHED)
        news, self._news = self._news, []
        return news

    def _end(self, job: str, cause: StopCause) -> None:
        spec = self._runs.pop(job)
        code = 0 if cause is StopCause.FINISHED else None
        self._news.append(Stopped(self._clock.now(), job, cause, goes_back(spec, cause), code))

    def fileno(self) -> int:
        """Return a descriptor that is always readable."""
        return self._ear

    def pause_ms(self) -> int | None:
        """Return None: it calls by itself."""
        return None

    def devices(self) -> dict[str, Any]:
        """Return nothing: no device is told apart."""
        return {}

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._ear)
        os.close(self._mouth)


def _budget() -> dict[str, Any]:
    """Return 5 programs of 10 projects each."""
    return {
        "accounts": {
            f"program{p}": {"share": 20, "owners": ["owner"]}
            | {f"project{q}": {"share": 10} for q in range(10)}
            for p in range(5)
        }
    }


def settings(home: str) -> LiveSettings:
    """Return the settings of a system in a directory."""
    return LiveSettings(home=home, database=default_database(Path(home)))


def quiet() -> None:
    """Let a child process say errors only, and leave Ctrl-C to its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


def _run_loop(home: str, gpus: int) -> None:
    quiet()
    nodes = [Node(f"node{number:04}", _PER_NODE) for number in range(gpus // _PER_NODE)]
    made = live_loop(settings(home), lambda _settings, world: PretendEngine(world.clock, nodes))
    with made as (driver, waiter):
        waiter.stop_on(signal.SIGTERM)
        driver.run()


def _run_api(home: str) -> None:
    quiet()
    store = open_for_api(settings(home))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{home}/socket")
    listener.listen(64)
    reader, intake, tokens = store.reader, store.intake, store.tokens
    backend = Backend(reader, intake, tokens, store.now, Path(home), os.geteuid(), store.health)
    try:
        serve(create_app(backend), [listener], lambda: None)
    finally:
        store.close()


def found(home: str) -> None:
    """Make a store with the budget of the benchmarks."""
    database = open_store(default_database(Path(home)))
    archive.found(database, read_budget(_budget()), time.time_ns() // 1_000_000, "benchmark", "first")
    database.dispose()


class _OneTransaction:
    """A database whose writes all go into one transaction, for filling it quickly."""

    def __init__(self, database: Database, connection: Any) -> None:
        self.read = database.read
        self._connection = connection

    @contextmanager
    def write(self) -> Iterator[Any]:
        """Yield the one connection."""
        yield self._connection


def fill(home: str, name: str, jobs: int, seed: int) -> None:
    """Store jobs as the API does, without waiting for the disk each time."""
    database = open_store(default_database(Path(home)))
    draw = random.Random(f"{name} {seed}")  # noqa: S311 - a workload, not a secret
    launch: dict[str, Any] = {
        "argv": ["python", "train.py"],
        "cwd": "/home/user",
        "env": [["A", "b"]] * 20,
        "user": "u",
    }
    launch |= {"uid": 1, "gid": 1}
    with database.write() as connection:
        together = cast("Database", _OneTransaction(database, connection))
        intake = IntakeWriter(together, lambda: None)
        for _ in range(jobs):
            intake.submit(_job(draw, name), launch, debug=False, actor="benchmark")
    database.dispose()


def _job(draw: random.Random, name: str) -> JobSpec:
    return JobSpec(
        "",
        f"program{draw.randrange(5)}.project{draw.randrange(10)}",
        f"user{draw.randrange(100)}",
        draw.choice((1, 1, 1, 2, 4, 8, 16)),
        draw.choice((0, _HOUR, 2 * _HOUR)),
        resumable=True,
        priority=draw.randrange(3),
        name=name,
    )


class _Unix(http.client.HTTPConnection):
    """HTTP over the Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _ask(client: _Unix, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[float, Any]:
    """Return how long an answer took, ms, and what it was."""
    content = None if body is None else json.dumps(body)
    began = time.perf_counter()
    client.request(method, path, content, {"Content-Type": "application/json"} if body else {})
    answer = client.getresponse()
    data = answer.read()
    took = (time.perf_counter() - began) * 1000
    if answer.status >= 400:
        raise RuntimeError(f"{method} {path}: {answer.status} {data[:300]!r}")
    return took, data


def _wait(check: Any, seconds: float, what: str) -> None:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        with suppress(OSError, RuntimeError):
            if check():
                return
        time.sleep(0.1)
    raise TimeoutError(f"{what}: not within {seconds} s")


@contextmanager
def _system(home: str, gpus: int) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    loop = context.Process(target=_run_loop, args=(home, gpus))
    api = context.Process(target=_run_api, args=(home,))
    for process in (loop, api):
        process.start()
    try:
        yield
    finally:
        for process in (api, loop):
            process.terminate()
            process.join(20)
            if process.is_alive():
                process.kill()


def _cases(jobs: list[str], draw: random.Random) -> dict[str, Any]:
    """Return what is asked, by name; the first six are the mix of an open page and a few people."""
    submit = {
        "account": "program1.project1",
        "gpus": 1,
        "argv": ["true"],
        "min_runtime": "1h",
        "name": "long",
    }
    return {
        "GET status": lambda: ("GET", "/v1/status", None),
        "GET queue": lambda: ("GET", "/v1/queue?limit=50", None),
        "GET job": lambda: ("GET", f"/v1/jobs/{draw.choice(jobs)}", None),
        "GET jobs": lambda: ("GET", "/v1/jobs?limit=50", None),
        "GET explain": lambda: ("GET", f"/v1/jobs/{draw.choice(jobs)}/explain", None),
        "GET budget": lambda: ("GET", "/v1/budget", None),
        "POST job": lambda: ("POST", "/v1/jobs", submit),
        "GET metrics": lambda: ("GET", "/metrics", None),
        "GET statement 7d": lambda: ("GET", "/v1/statement", None),
    }


def measure(
    *, quick: bool = False, gpus: int = 1_024, jobs: int = 10_000, seed: int = 1
) -> list[dict[str, Any]]:
    """Return one row per kind of request, and one for the mix of reads that the target is about."""
    live = int(jobs * _LIVE_PART)
    with tempfile.TemporaryDirectory() as home:
        found(home)
        fill(home, "short", jobs - live, seed)
        with _system(home, gpus):
            database = open_store(default_database(Path(home)))
            reader, client = Reader(database), _Unix(f"{home}/socket")
            ended = [phase for phase in Phase if phase.terminal]
            _wait(lambda: reader.count(ended) >= jobs - live, 120, "the short jobs")
            fill(home, "long", live, seed)
            _wait(lambda: not reader.count([None]), 60, "the long jobs")
            _wait(lambda: json.loads(_ask(client, "GET", "/v1/health")[1])["status"] == "ok", 60, "the API")
            draw = random.Random(seed)  # noqa: S311 - same
            times, rate = _measure(client, reader, 60 if quick else 400, draw)
            client.close()
            database.dispose()
    note = f"{jobs} jobs stored, {gpus} devices, the loop journals {rate:.0f} passes a second meanwhile"
    mix = [took for name in list(times)[:6] for took in times[name]]
    return [
        *_rows("reads, mixed", mix, TARGET_MS, note),
        *(row for name, taken in times.items() for row in _rows(name, taken, None, note)),
    ]


def _measure(
    client: _Unix, reader: Reader, rounds: int, draw: random.Random
) -> tuple[dict[str, list[float]], float]:
    """Return how long each kind of request took, ms, and the passes that were journalled per second."""
    names = [row.spec.id for row in reader.jobs(limit=100_000)]
    times: dict[str, list[float]] = {}
    first, began = reader.passes(limit=1)[0].seq, time.monotonic()
    for _ in range(rounds):
        for name, make in _cases(names, draw).items():
            if name != "GET statement 7d" or draw.random() < 0.1:
                times.setdefault(name, []).append(_ask(client, *make())[0])
    last = reader.passes(limit=1)[0].seq
    return times, (last - first) / (time.monotonic() - began)


def _rows(case: str, taken: list[float], target: float | None, note: str) -> Iterator[dict[str, Any]]:
    for measured, quantile in (("p50", 50), ("p99", 99)):
        value = _quantile(taken, quantile)
        goal = target if measured == "p99" else None
        yield {
            "case": f"API: {case}",
            "contender": "divvy",
            "measure": f"latency {measured}",
            "value": round(value, 3),
            "unit": "ms",
            "interval": [round(min(taken), 3), round(max(taken), 3)],
            "n": len(taken),
            "target": goal,
            "met": None if goal is None else value <= goal,
            "note": note + "; the interval is the range",
        }


def _quantile(taken: list[float], percent: int) -> float:
    return statistics.quantiles(taken, n=100, method="inclusive")[percent - 1] if len(taken) > 1 else taken[0]
