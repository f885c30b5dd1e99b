"""Replays of a benchmark, one subprocess each: kept, resumable, and stopped when the time is up."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from divvy.cli.bench_kept import Figures, Kept
from divvy.sim.experiment import Experiment, perform
from divvy.sim.traces import AUTO, read_trace
from divvy.sim.traces.trace import Trace

#: Time after which a quick run begins no further replay.
_QUICK_SECONDS: Final = 45.0

#: What decides the figures of a replay: a kept result is used only by the code that made it.
_ROOMS: Final = ("fleet", "planners/jobs", "control", "sim", "units.py")


class Runs:
    """Runs experiments and keeps their figures.

    Args:
        trace: The trace's file.
        cache: Directory in which results are kept; None for none.
        minutes: Time after which no further replay is begun; none where it is infinite.
        quick: Whether all must be over within a minute.
        announce: Told what is being run.
        perform: Runs one experiment in this process.
    """

    def __init__(
        self,
        trace: Path,
        *,
        cache: Path | None = None,
        minutes: float = math.inf,
        quick: bool = False,
        announce: Callable[[str], None] = lambda _: None,
        perform: Callable[[Any, Trace, Callable[[], float]], dict[str, float]] = perform,
    ) -> None:
        self._file = trace
        seconds = min(minutes * 60, _QUICK_SECONDS) if quick else minutes * 60
        self._end = time.monotonic() + seconds
        # In this process, which saves half a second for each.
        self._inline = quick
        self._announce = announce
        self._perform = perform
        self._read: Trace | None = None
        self._known: dict[Any, Figures | None] = {}
        self._kept = Kept(cache, _ROOMS)

    def all(self, experiments: Sequence[Any]) -> None:
        """Run experiments in this order, until the time is up; those that are known cost nothing."""
        for number, experiment in enumerate(experiments, start=1):
            self._announce(f"replay {number} of {len(experiments)}: {_title(experiment)}")
            self.one(experiment)

    def one(self, experiment: Any) -> Figures | None:
        """Return the figures of an experiment, None where the time was up."""
        if experiment not in self._known:
            key = (type(experiment).__name__, experiment.to_document())
            figures = self._kept.find(key)
            if figures is None and time.monotonic() < self._end:
                figures = self._here(experiment) if self._inline else self._apart(experiment)
                self._kept.store(key, figures)
            self._known[experiment] = figures
        return self._known[experiment]

    def _here(self, experiment: Any) -> Figures:
        if self._read is None:
            self._read = read_trace(self._file.read_bytes(), AUTO, self._file.name)
        return self._perform(experiment, self._read, time.perf_counter)

    def _apart(self, experiment: Any) -> Figures:
        """Run an experiment in a process of its own, so that none starts on the heap of another."""
        order = {
            "kind": type(experiment).__name__,
            "trace": str(self._file),
            "experiment": experiment.to_document(),
        }
        done = subprocess.run(
            [sys.executable, "-m", "divvy.cli.bench_runs"],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{_title(experiment)}: {done.stderr[-2000:]}")
        figures: Figures = json.loads(done.stdout)
        return figures


def _title(experiment: Any) -> str:
    return f"{experiment.policy}, seed {experiment.seed}, {experiment.nodes}"


def main() -> None:
    """Run the experiment that standard input describes; print its figures."""
    from divvy.sim.gaming import Game, play  # noqa: PLC0415 - only one of the two is needed

    order = json.loads(sys.stdin.read())
    file = Path(order["trace"])
    trace = read_trace(file.read_bytes(), AUTO, file.name)
    if order["kind"] == "Game":
        figures = play(Game.from_document(order["experiment"]), trace, time.perf_counter)
    else:
        figures = perform(Experiment.from_document(order["experiment"]), trace, time.perf_counter)
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main()
