"""Latencies of the local engine: from the order to the running process, from its end to the report.

    PYTHONPATH=src python benchmarks/launch_latency.py [RUNS]

Prints one JSON document (``divvy.bench/1``). Wants an idle machine; takes about half a minute for 50 runs.
"""

from __future__ import annotations

import json
import os
import platform
import select
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from divvy.adapters.local.devices import offer_slots
from divvy.adapters.local.engine import LocalEngine
from divvy.adapters.local.shim.clocks import steady_ms
from divvy.control.launch import LaunchSpec, run_directory
from divvy.control.ports import Launch
from divvy.fleet.event import Event, Started, Stopped
from divvy.fleet.job import JobSpec

SCRIPT = "import time; print(time.clock_gettime_ns(time.CLOCK_BOOTTIME)); time.sleep(0.02)"
OLD_RUNS = 2_000
POLLS = 2_000


class SteadyClock:
    """Milliseconds that nobody sets."""

    def now(self) -> int:
        """Return the time."""
        return steady_ms()


def detail(_job: str) -> LaunchSpec:
    """Return the job of the benchmark: it says when its first line ran, and ends."""
    argv = (sys.executable, "-I", "-S", "-c", SCRIPT)
    return LaunchSpec(argv, "/", (), "root", os.getuid(), os.getgid())


def wait_for(engine: LocalEngine, kind: type[Event]) -> Event:
    """Sleep as the loop does until an event of a kind comes."""
    while True:
        select.select([engine], [], [], 1.0)
        for event in engine.poll():
            if isinstance(event, kind):
                return event


def measure(directory: Path, runs: int) -> dict[str, list[float]]:
    """Return the samples per measure, ms."""
    samples: dict[str, list[float]] = {"first line": [], "start known": [], "end known": []}
    engine = LocalEngine(directory, detail, offer_slots("here", 1, 1), SteadyClock())
    engine.submit([])
    for number in range(runs):
        job = f"j{number}"
        spec = JobSpec(job, "lab", "ada", 1, 0)
        begin = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        engine.submit([Launch(job, 1, spec, (("here", 1),))])
        wait_for(engine, Started)
        known = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        stopped = wait_for(engine, Stopped)
        assert isinstance(stopped, Stopped)
        samples["end known"].append(time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6 - stopped.at)
        first_line = int((run_directory(directory, job, 1) / "stdout").read_text())
        samples["first line"].append((first_line - begin) / 1e6)
        samples["start known"].append((known - begin) / 1e6)
    began = time.perf_counter_ns()
    for _ in range(POLLS):
        engine.poll()
    samples["poll, nothing happened"] = [(time.perf_counter_ns() - began) / 1e6 / POLLS]
    engine.close()
    template = run_directory(directory, "j0", 1)
    for number in range(OLD_RUNS):
        shutil.copytree(template, run_directory(directory, f"old{number}", 1), ignore=lambda *_: ["control"])
    began = time.perf_counter_ns()
    LocalEngine(directory, detail, offer_slots("here", 1, 1), SteadyClock()).close()
    samples[f"open, {OLD_RUNS} ended runs on disk"] = [(time.perf_counter_ns() - began) / 1e6]
    return samples


def rows(samples: dict[str, list[float]]) -> list[dict[str, object]]:
    """Return the rows of the report: median and p99 of each measure."""
    targets = {"first line": 300.0, "start known": 300.0, "end known": 50.0}
    found: list[dict[str, object]] = []
    for case, values in samples.items():
        values.sort()
        figures = {"median": statistics.median(values)}
        if len(values) > 1:
            figures["p99"] = values[min(len(values) - 1, int(0.99 * len(values)))]
        for measure_name, value in figures.items():
            target = targets.get(case)
            found.append(
                {
                    "case": case,
                    "contender": "local engine",
                    "measure": measure_name,
                    "value": round(value, 3),
                    "unit": "ms",
                    "interval": [round(values[0], 3), round(values[-1], 3)],
                    "n": len(values),
                    "target": target,
                    "met": None if target is None else value <= target,
                    "note": "interval: least and greatest",
                }
            )
    return found


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    directory = Path(tempfile.mkdtemp(prefix="divvy-bench-"))
    try:
        samples = measure(directory, runs)
    finally:
        shutil.rmtree(directory)
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}"
    machine += f", load {os.getloadavg()[0]:.1f}"
    report = {"schema": "divvy.bench/1", "name": "launch", "machine": machine, "rows": rows(samples)}
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
