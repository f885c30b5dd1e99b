"""An engine, the jobs submitted to it and what it reported; without pytest, so that other programs can use it."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from pathlib import Path

from divvy.adapters.local.cgroup import Containment
from divvy.adapters.local.devices import LocalNode, offer_slots
from divvy.adapters.local.engine import LocalEngine
from divvy.control.launch import LaunchSpec, run_directory
from divvy.control.ports import Halt, Launch
from divvy.errors import NotFoundError
from divvy.fleet.event import Event, Started, Stopped
from divvy.fleet.job import JobSpec, StopCause

PATIENCE_SECONDS = 20.0


class SteadyClock:
    """As the live clock: it begins as the wall clock and never jumps, also across engines."""

    OFFSET = time.time_ns() // 1_000_000 - time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def now(self) -> int:
        return self.OFFSET + time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class World:
    """An engine in a directory, the jobs that people submitted to it, and everything it reported."""

    def __init__(self, directory: Path, nodes: int = 1, each: int = 4) -> None:
        self.directory = directory
        self.shape = (nodes, each)
        self.nodes: tuple[LocalNode, ...] = ()
        self.details: dict[str, LaunchSpec] = {}
        self.specs: dict[str, JobSpec] = {}
        self.events: list[Event] = []
        self.containment: Containment | None = None
        self.engine: LocalEngine | None = None
        self.options: dict = {}

    def open(self) -> LocalEngine:
        assert self.engine is None
        self.engine = LocalEngine(
            self.directory,
            self.detail,
            self.nodes or offer_slots("here", *self.shape),
            SteadyClock(),
            containment=self.containment,
            **self.options,
        )
        return self.engine

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()
            self.engine = None

    def detail(self, job: str) -> LaunchSpec:
        if job not in self.details:
            raise NotFoundError.one("job-unknown", f"no job {job}")
        return self.details[job]

    def job(self, job: str, *argv: str, gpus: int = 1, **options) -> None:
        """Submit a job; options of `JobSpec` and `LaunchSpec` alike."""
        of_spec = {name: options.pop(name) for name in list(options) if name in JobSpec._fields}
        self.specs[job] = JobSpec(job, "lab.vision", "ada", gpus, 60_000, **of_spec)
        launch = {"cwd": "/", "env": (), "user": "root", "uid": os.getuid(), "gid": os.getgid()}
        launch |= {"warn_seconds": 0.5, "grace_seconds": 1.0} | options
        self.details[job] = LaunchSpec(argv, **launch)

    def sh(self, job: str, script: str, **options) -> None:
        self.job(job, "/bin/sh", "-c", script, **options)

    def order(self, job: str, attempt: int = 1, *placement: tuple[str, int]) -> Launch:
        spec = self.specs[job]
        return Launch(job, attempt, spec, placement or (("here", spec.gpus),))

    def launch(self, job: str, attempt: int = 1, *placement: tuple[str, int]) -> None:
        self.submit(self.order(job, attempt, *placement))

    def halt(self, job: str, cause: StopCause, attempt: int = 1) -> None:
        self.submit(Halt(job, attempt, cause))

    def submit(self, *orders) -> None:
        assert self.engine is not None
        self.events += self.engine.submit(orders)

    def until(self, condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
        """Poll as a loop would, sleeping on the engine's descriptor."""
        assert self.engine is not None
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"nothing came of it: {self.events}"
            pause = self.engine.pause_ms()
            select.select([self.engine], [], [], 0.05 if pause is None else pause / 1000)
            self.events += self.engine.poll()

    def starts(self, job: str) -> list[Started]:
        return [event for event in self.events if isinstance(event, Started) and event.job == job]

    def stops(self, job: str) -> list[Stopped]:
        return [event for event in self.events if isinstance(event, Stopped) and event.job == job]

    def started(self, job: str, times: int = 1) -> Started:
        self.until(lambda: len(self.starts(job)) >= times)
        return self.starts(job)[-1]

    def stopped(self, job: str, times: int = 1) -> Stopped:
        self.until(lambda: len(self.stops(job)) >= times)
        return self.stops(job)[-1]

    def file(self, job: str, name: str, attempt: int = 1) -> Path:
        return run_directory(self.directory, job, attempt) / name

    def stdout(self, job: str, attempt: int = 1) -> str:
        return self.file(job, "stdout", attempt).read_text()

    @staticmethod
    def alive(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False
