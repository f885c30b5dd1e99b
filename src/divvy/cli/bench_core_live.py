"""A real `divvy up` with real jobs: from submission to running process, and memory per finished job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from divvy.cli.bench_row import Row, figure, median, quantile
from divvy.cli.client import Client, Target
from divvy.errors import DivvyError, EngineError
from divvy.sim.intervals import t95

_SLOTS: Final = 4
_READY_SECONDS: Final = 60.0
_JOB_SECONDS: Final = 120.0
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_CLOCK: Final = ["date", "+%s%N"]
_SAMPLES: Final = 4
_BATCH: Final = 5


class ControlPlane:
    """A running `divvy up` on a state directory of its own.

    Args:
        home: The directory.
        process: The supervisor.
    """

    def __init__(self, home: Path, process: subprocess.Popen[bytes]) -> None:
        self.home = home
        self.process = process
        self.client = Client(Target("benchmark", home / "socket"))

    def submit(self, argv: Sequence[str]) -> str:
        """Submit a job of one slot and return its id."""
        body = {"account": "default", "gpus": 1, "argv": list(argv), "cwd": "/", "min_runtime": "1m"}
        return str(self.client.post("jobs", body=body)["id"])

    def wait_over(self, job: str) -> None:
        """Wait until a job is over.

        Raises:
            EngineError: If it takes too long.
        """
        self.until(lambda: self.client.get("jobs", job)["ended_at"] is not None, _JOB_SECONDS, job)

    def until(self, check: Callable[[], Any], seconds: float, what: str) -> None:
        """Wait for something.

        Raises:
            EngineError: If it takes longer than that, or the control plane has ended.
        """
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            with suppress(DivvyError):
                if check():
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        said = (self.home.parent / "up.out").read_text(encoding="utf-8")[-2_000:]
        raise EngineError.one("bench-up", f"{what}: not within {seconds:g} s; divvy up says: {said}")

    def resident(self) -> dict[str, int]:
        """Return the resident bytes of the loop and of the API process."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(
            encoding="ascii"
        )
        found: dict[str, int] = {}
        for pid in listed.split():
            words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
            for name in ("loop", "api"):
                if f"divvy.service.{name}_process" in words:
                    statm = Path(f"/proc/{pid}/statm").read_text(encoding="ascii")
                    found[name] = int(statm.split()[1]) * _PAGE_BYTES
        return found


@contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """Start `divvy up` with four CPU slots on an empty directory; stop it and remove the directory."""
    with tempfile.TemporaryDirectory(prefix="divvy") as directory:
        home = Path(directory) / "home"
        command = [sys.executable, "-m", "divvy", "up", "--home", str(home), "--no-browser", "--port", "0"]
        with (Path(directory) / "up.out").open("wb") as out:
            process = subprocess.Popen([*command, "--slots", str(_SLOTS)], stdout=out, stderr=out)
        plane = ControlPlane(home, process)
        try:
            plane.until(lambda: plane.client.get("status")["totals"]["gpus"], _READY_SECONDS, "ready")
            yield plane
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def live_rows(
    *,
    launches: int,
    jobs: int,
    limit_seconds: float,
    announce: Callable[[str], None] = lambda _: None,
) -> Iterator[Row]:
    """Yield the figures of a real control plane.

    Args:
        launches: Submissions that are timed, one at a time.
        jobs: Jobs over which memory is watched, after as many for warming up.
        limit_seconds: When to stop the watching although jobs are missing.
        announce: Told what is being done.
    """
    announce("divvy up: starting")
    with control_plane() as plane:
        announce("divvy up: submissions")
        plane.wait_over(plane.submit(_CLOCK))
        yield from _launch_rows(plane, launches)
        announce(f"divvy up: memory over {2 * jobs} jobs")
        yield from _memory_rows(plane, jobs, limit_seconds, announce)


def _launch_rows(plane: ControlPlane, count: int) -> Iterator[Row]:
    by_call = [_launched(plane, lambda: plane.submit(_CLOCK)) for _ in range(count)]
    environment = os.environ | {"DIVVY_SERVER": f"unix:{plane.home / 'socket'}"}
    verb = [sys.executable, "-m", "divvy", "submit", "--account", "default", "--gpus", "1"]
    verb += ["--min-runtime", "1m", "-q", "--", *_CLOCK]

    def by_command() -> str:
        done = subprocess.run(verb, env=environment, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    by_verb = [_launched(plane, by_command) for _ in range(max(2, count // 3))]
    for contender, values in (("HTTP API", by_call), ("divvy submit", by_verb)):
        for measured, value in (("p50", median(values)), ("p99", quantile(values, 0.99))):
            yield figure(
                "submit to running process",
                measured,
                value,
                "ms",
                contender=contender,
                interval=(min(values), max(values)),
                n=len(values),
                target=300 if contender == "HTTP API" else None,
                note="real `divvy up`, nothing else in it; until the program itself reads the clock;"
                " interval: least and greatest",
            )


def _launched(plane: ControlPlane, submit: Callable[[], str]) -> float:
    """Return how long it takes from a submission until its program reads the clock, ms."""
    began = time.time_ns()
    job = submit()
    plane.wait_over(job)
    said = b"".join(plane.client.stream("jobs", job, "logs", stream="stdout"))
    return (int(said.split()[0]) - began) / 1e6


def _memory_rows(
    plane: ControlPlane, jobs: int, limit_seconds: float, announce: Callable[[str], None]
) -> Iterator[Row]:
    began = time.monotonic()
    done: list[int] = []
    sizes: dict[str, list[int]] = {"loop": [], "api": []}
    finished = 0
    while len(done) < _SAMPLES or (finished < 2 * jobs and time.monotonic() - began < limit_seconds):
        names = [plane.submit(["true"]) for _ in range(_BATCH)]
        for name in names:
            plane.wait_over(name)
        finished += _BATCH
        announce(f"divvy up: {finished} of {2 * jobs} jobs are over")
        if finished <= jobs and time.monotonic() - began < limit_seconds / 2:
            continue
        done.append(finished)
        for process, size in plane.resident().items():
            sizes[process].append(size)
    sizes["loop + API"] = [a + b for a, b in zip(sizes["loop"], sizes["api"], strict=True)]
    for process, values in sizes.items():
        slope, half = _slope(done, values)
        whole = process == "loop + API"
        yield figure(
            "memory of divvy up",
            f"growth per finished job, {process}",
            slope,
            "B",
            interval=(slope - half, slope + half),
            n=done[-1] - done[0],
            target=2_048 if whole else None,
            note=f"slope of resident size over jobs {done[0]} to {done[-1]}, real jobs; 95% interval of a"
            " straight line",
        )
    yield figure(
        "memory of divvy up", "resident, loop + API", sizes["loop + API"][-1] / 1e6, "MB", note="in the end"
    )


def _slope(x: Sequence[int], y: Sequence[int]) -> tuple[float, float]:
    """Return the slope of the least-squares line and half its 95% interval."""
    across, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    across -= across.mean()
    spread = float(across @ across)
    slope = float(across @ up) / spread
    rest = up - up.mean() - slope * across
    freedom = len(x) - 2
    return slope, t95(freedom) * float(np.sqrt(float(rest @ rest) / freedom / spread))
