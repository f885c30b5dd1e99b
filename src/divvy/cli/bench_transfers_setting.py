"""What the parts of the transfer benchmark share: turns, labs, rows of contenders."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from divvy.adapters.rails import lab
from divvy.adapters.rails.fabric import Fabric, read_fabric
from divvy.adapters.rails.lab import RailsLab
from divvy.cli.bench_row import Row, figure, median
from divvy.cli.bench_transfers_crew import Contender, Crew, CrewError, Move, Moved, crews, makespan

MIB: Final = 1 << 20
TURNS: Final = 7
_WARM_TURNS: Final = 2
_QUICK_TURNS: Final = 2
_PIDS: Final = 100_000
_OURS: Final = re.compile(r"b(\d{5})\d\d", re.ASCII)


@dataclass(slots=True)
class Setting:
    """How a benchmark is run.

    Attributes:
        quick: Whether to stay within a minute.
        announce: Told what is being measured.
        names: Labs that were built, so that each has a name of its own.
    """

    quick: bool
    announce: Callable[[str], None]
    names: list[str] = field(default_factory=list)

    @property
    def turns(self) -> int:
        """Return how often each contender moves the bytes, after two turns that do not count."""
        return _QUICK_TURNS if self.quick else TURNS

    @contextlib.contextmanager
    def lab(self, rates: str, hosts: int, rails: int = 2) -> Iterator[RailsLab]:
        """Build a lab for a part; it is removed when the benchmark is ended by a signal, too."""
        _sweep()
        name = f"b{os.getpid() % _PIDS:05d}{len(self.names):02d}"
        self.names.append(name)
        with _ending(), RailsLab.up(read_fabric(name, hosts, rails, rates)) as stands:
            yield stands


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    """Let SIGTERM end the block as an exception does, so that what it built is removed."""
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _sweep() -> None:
    """Remove the labs of benchmarks that were killed."""
    alive = {int(path.name) % _PIDS for path in Path("/proc").glob("[0-9]*")}
    for name in lab.standing():
        match = _OURS.fullmatch(name)
        if match is not None and int(match.group(1)) not in alive:
            lab.remove(name)


Results = dict[str, list[list[Moved]]]


def in_turns(
    setting: Setting, running: Mapping[str, Crew], moves: Sequence[Move], lacking: dict[str, str], what: str
) -> Results:
    """Return what each contender made of the same moves, turn by turn; the first two do not count.

    A contender that fails is left out from then on, and `lacking` says why. Who begins changes from turn to
    turn.
    """
    out: Results = {label: [] for label in running}
    for turn in range(setting.turns + _WARM_TURNS):
        setting.announce(f"{what}, turn {turn + 1} of {setting.turns + _WARM_TURNS}")
        order = [label for label in running if label not in lacking]
        for label in order[turn % len(order) :] + order[: turn % len(order)] if order else []:
            try:
                moved = running[label].turn(moves)
            except CrewError as error:
                lacking[label] = str(error)
                continue
            if turn >= _WARM_TURNS:
                out[label].append(moved)
    return {label: found for label, found in out.items() if found and label not in lacking}


@contextlib.contextmanager
def contest(
    fabric: Fabric, contenders: Sequence[Contender], size_bytes: int
) -> Iterator[tuple[dict[str, Crew], dict[str, str]]]:
    """Yield resting crews of those that can be run, and why the others cannot."""
    with crews(fabric, contenders, size_bytes) as (running, lacking):
        yield running, lacking


def rates(results: Results, total_bytes: int) -> dict[str, float]:
    """Return GB/s of each contender: all bytes over the median makespan."""
    return {
        label: total_bytes / median([makespan(moved) for moved in turns]) / 1e9
        for label, turns in results.items()
    }


def spans(turns: Sequence[Sequence[Moved]]) -> list[float]:
    """Return the makespan of each turn."""
    return [makespan(moved) for moved in turns]


def missing_rows(case: str, lacking: Mapping[str, str]) -> Iterator[Row]:
    """Yield a row for each contender that could not be run."""
    for label, why in lacking.items():
        yield figure(case, "not measured", None, "", contender=label, note=why)
