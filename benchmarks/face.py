"""How fast the command line starts, and how fast the page paints and updates a fleet of 1,250 x 8 devices.

Everything is real: a `divvy up --sample --nodes 1250x8` in a directory of its own, the command line as a
process, the page in headless Chromium without a GPU. Prints one `divvy.bench/1` document:

    python benchmarks/face.py > face.json
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e" / "face"))

from browser import Visit, launch  # noqa: E402 - the same browser as the tests

RUNS = 12
VISITS = 5
WATCH_SECONDS = 20.0
DIVVY = [sys.executable, "-m", "divvy"]


@contextmanager
def control_plane(home: Path) -> Iterator[None]:
    """Run a control plane that offers this machine as 1,250 nodes; stop it at the end."""
    command = [*DIVVY, "up", "--sample", "--nodes", "1250x8", "--port", "0", "--no-browser"]
    log = home / "bench.log"
    with log.open("w") as said, subprocess.Popen(command, stderr=said, stdout=said) as process:
        try:
            deadline = time.monotonic() + 120
            while "Divvy is up" not in log.read_text():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(log.read_text())
                time.sleep(0.2)
            yield
            live = subprocess.run(
                [*DIVVY, "queue", "--state", "running", "-q"], capture_output=True, check=True
            )
            subprocess.run(
                [*DIVVY, "cancel", *live.stdout.decode().split()], capture_output=True, check=False
            )
            time.sleep(2)
        finally:
            process.terminate()
            process.wait(60)


def start_of(*args: str) -> tuple[list[float], list[float]]:
    """Return wall and CPU times of a verb, ms."""
    wall, cpu = [], []
    for _ in range(RUNS):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([*DIVVY, *args], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall.append((time.perf_counter() - began) * 1e3)
        cpu.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
    return wall, cpu


def entries(page: Page, name: str) -> list[float]:
    """Return the durations of a measure of the page, ms."""
    return list(page.evaluate(f"performance.getEntriesByName('{name}').map((entry) => entry.duration)"))


def row(case: str, measure: str, values: list[float], target: float | None, note: str = "") -> dict[str, Any]:
    """Return a row of the document: the median, with the least and the greatest value."""
    middle = round(statistics.median(values), 1)
    return {
        "case": case,
        "contender": "divvy",
        "measure": measure,
        "value": middle,
        "unit": "ms",
        "interval": [round(min(values), 1), round(max(values), 1)],
        "n": len(values),
        "target": target,
        "met": None if target is None else middle <= target,
        "note": note,
    }


def page_rows(link: str) -> list[dict[str, Any]]:
    """Return what the page takes: some visits, of which the last is watched while jobs come and go."""
    paints, ready = [], []
    first = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for number in range(VISITS):
            visit = Visit(browser, link.partition("/#")[0])
            began = time.perf_counter()
            visit.page.goto(link)
            visit.page.wait_for_selector("html[data-ready=fleet]")
            ready.append((time.perf_counter() - began) * 1e3)
            paints.append(visit.page.evaluate(first))
            if number < VISITS - 1:
                visit.close()
        visit.page.wait_for_timeout(WATCH_SECONDS * 1e3)
        updates, painting = (entries(visit.page, f"divvy:{name}")[1:] for name in ("update", "paint"))
        browser.close()
    fleet = "fleet of 1,250 x 8"
    return [
        row(fleet, "first contentful paint", paints, 1_000),
        row(fleet, "from the address to the drawn fleet", ready, None, "1.6 MB of JSON included"),
        row(fleet, "update: asked, received, parsed, painted", updates, 200),
        row(fleet, "update: painting alone", painting, None),
    ]


def main() -> None:
    """Measure and print."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        os.environ["DIVVY_HOME"] = directory
        os.environ["PYTHONPATH"] = str(ROOT / "src")
        with control_plane(Path(directory)):
            for args in (["--help"], ["status"], ["queue"], ["budget", "show"]):
                wall, cpu = start_of(*args)
                name = "divvy " + " ".join(args)
                rows.append(row(name, "wall clock, process start to end", wall, 250))
                rows.append(row(name, "CPU time", cpu, None))
            made = subprocess.run([*DIVVY, "page", "-q"], capture_output=True, check=True)
            rows += page_rows(made.stdout.decode().strip())
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]}
    print(json.dumps({"schema": "divvy.bench/1", "name": "face", "machine": machine, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
