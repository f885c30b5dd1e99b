"""Start intervals in a replay: asked at moments drawn over it, and held against what then happened."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from divvy.control.codec import state_document
from divvy.control.state import FleetState
from divvy.fleet.job import Phase, StopCause
from divvy.planners.base import JobPlanner
from divvy.sim.contracts import Workload
from divvy.sim.foresight.interval import StartInterval, start_intervals
from divvy.sim.foresight.past import Arrival, Ended, Past
from divvy.sim.measures import Window
from divvy.sim.recorder import OPEN, Entry, Recorder
from divvy.units import DAY, SECOND

PER_MOMENT: Final = 12
_FUTURES: Final = 10
_HORIZON: Final = DAY // 2
_LOOKBACK: Final = 7 * DAY


@dataclass(frozen=True, slots=True)
class Watch:
    """How start intervals are measured.

    Attributes:
        moments: How many moments of a replay are drawn.
        per_moment: How many of the jobs waiting at each are asked for.
        futures: How many futures are run for each moment.
        horizon: How far each runs at most, ms.
    """

    moments: int
    per_moment: int = PER_MOMENT
    futures: int = _FUTURES
    horizon: int = _HORIZON


class Asked(NamedTuple):
    """One interval that was given, with what else was known then; times are ms."""

    job: int
    at: int
    given: StartInterval
    mean_wait: float
    """Of the jobs that had started within the lookback."""


@dataclass(slots=True)
class Watcher:
    """Asks for start intervals while a replay runs; everything it uses was known at that moment.

    Args:
        watch: How.
        window: What counts; moments are drawn from it.
        planner: Makes the planner of the futures.
        seed: Draws moments and jobs.
    """

    watch: Watch
    window: Window
    planner: Callable[[], JobPlanner]
    seed: int
    asked: list[Asked] = field(default_factory=list)
    _moments: list[int] = field(default_factory=list)
    _ran: dict[int, int] = field(default_factory=dict)
    _ended: list[Ended] = field(default_factory=list)
    _read: int = 0

    def __post_init__(self) -> None:
        generator = self._generator(0)
        drawn = generator.integers(self.window.start, self.window.end, self.watch.moments)
        self._moments = sorted((int(at) for at in drawn), reverse=True)

    def _generator(self, number: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, 13, number])))

    def __call__(self, now: int, state: FleetState, record: Recorder, workload: Workload) -> None:
        """Take the end of an instant; at the first one after a drawn moment, ask."""
        if not self._moments or now < self._moments[-1]:
            return
        while self._moments and now >= self._moments[-1]:
            self._moments.pop()
        self._learn(record, workload)
        jobs = state.snapshot.jobs
        waiting = [row for row in jobs.live if jobs.phase[row] is Phase.QUEUED]
        if not waiting:
            return
        generator = self._generator(1 + len(self.asked))
        size = min(self.watch.per_moment, len(waiting))
        chosen = [jobs.spec[waiting[int(n)]].id for n in generator.choice(len(waiting), size, replace=False)]
        found = start_intervals(
            state_document(state.snapshot),
            self.planner,
            self._past(now, workload),
            chosen,
            futures=self.watch.futures,
            horizon=self.watch.horizon,
            seed=self.seed * 1_000_003 + len(self.asked) * 1_009,
        )
        mean = _mean_wait(now, record, workload)
        self.asked += [Asked(workload.index[job], now, given, mean) for job, given in found.items()]

    def _learn(self, record: Recorder, workload: Workload) -> None:
        """Add the jobs that ended since the last moment."""
        for entry, run in record.log[self._read :]:
            if entry is not Entry.STOP:
                continue
            job = record.job[run]
            self._ran[job] = self._ran.get(job, 0) + record.end[run] - record.start[run]
            if record.cause[run] in (StopCause.FINISHED, StopCause.TIME_LIMIT):
                self._ended.append(Ended(workload.spec[job], self._ran.pop(job)))
        self._read = len(record.log)

    def _past(self, now: int, workload: Workload) -> Past:
        since = max(now - _LOOKBACK, 0)
        first = int(np.searchsorted(workload.submit, since, side="left"))
        last = int(np.searchsorted(workload.submit, now, side="right"))
        arrivals = [
            Arrival(workload.submit[n], workload.spec[n], workload.debug[n]) for n in range(first, last)
        ]
        return Past(self._ended, arrivals, since, now)

    def judge(self, record: Recorder) -> dict[str, Any]:
        """Return how the intervals that were given compare with what happened."""
        return judge(self.asked, record, self.watch)


def _mean_wait(now: int, record: Recorder, workload: Workload) -> float:
    """Return the mean wait of the jobs that started for the first time within the lookback, ms."""
    first = np.asarray(record.first_start, dtype=np.int64)
    submit = np.asarray(workload.submit, dtype=np.int64)
    recent = (first != OPEN) & (first > now - _LOOKBACK) & (first <= now)
    return float((first[recent] - submit[recent]).mean()) if recent.any() else 0.0


def judge(asked: list[Asked], record: Recorder, watch: Watch) -> dict[str, Any]:
    """Return coverage and width of start intervals, beside ``submit time + mean wait``.

    The comparison is made as kind as can be: the mean wait of the last seven days, and added to it, known
    only afterwards, what it needs to hold as often as the p90 does.
    """
    happened = _happened(asked, record)
    n = len(asked)
    held = sum(at <= one.given.p90 for one, at in zip(asked, happened, strict=True))
    plain = [record.submit[one.job] + one.mean_wait for one in asked]
    late = sorted(at - by for by, at in zip(plain, happened, strict=True))
    return {
        "coverage": held / n if n else math.nan,
        "median_width_seconds": _median([one.given.p90 - one.given.p50 for one in asked]) / SECOND,
        "median_bound_seconds": _median([one.given.p90 - one.at for one in asked]) / SECOND,
        "p50_coverage": _share(at <= one.given.p50 for one, at in zip(asked, happened, strict=True)),
        "n": n,
        "started_within_horizon": _share(one.given.seen == one.given.futures for one in asked),
        "futures": watch.futures,
        "horizon_seconds": watch.horizon / SECOND,
        "mean_wait": {
            "coverage": _share(at <= by for by, at in zip(plain, happened, strict=True)),
            "width_at_same_coverage_seconds": late[max(held - 1, 0)] / SECOND if n else math.nan,
        },
    }


def _happened(asked: list[Asked], record: Recorder) -> list[float]:
    """Return when each job started after it was asked for, ms; infinite where it never did."""
    starts: dict[int, list[int]] = {}
    for run, job in enumerate(record.job):
        starts.setdefault(job, []).append(record.start[run])
    return [next((at for at in starts.get(one.job, ()) if at > one.at), math.inf) for one in asked]


def _median(values: list[int]) -> float:
    return float(np.median(values)) if values else math.nan


def _share(values: Any) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else math.nan
