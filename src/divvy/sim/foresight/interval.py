"""Start intervals: the p50 and the p90 of when a waiting job starts, over many possible futures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from divvy.fleet.job import JobSpec
from divvy.planners.base import JobPlanner
from divvy.sim.foresight.ahead import run_on
from divvy.sim.foresight.past import Durations, Past
from divvy.units import DAY

FUTURES: Final = 16
HORIZON: Final = DAY
_PICKED: Final = 200
_CROWD: Final = 0.9
_DOUBT: Final = 0.7


class StartInterval(NamedTuple):
    """When a job starts (ms): half of the futures say by ``p50``, nine in ten by ``p90``.

    Attributes:
        p50: Median.
        p90: Ninth decile.
        futures: How many futures were run.
        seen: In how many of them it started within the horizon; the rest is extrapolated.
    """

    p50: int
    p90: int
    futures: int
    seen: int


def start_intervals(
    document: Mapping[str, Any],
    planner: Callable[[], JobPlanner],
    past: Past,
    watched: Sequence[str],
    *,
    futures: int = FUTURES,
    horizon: int = HORIZON,
    seed: int = 0,
    enough: Callable[[], bool] = lambda: False,
) -> dict[str, StartInterval]:
    """Return the start intervals of jobs that wait in a state.

    A job that does not start within the horizon of a future goes on as its queue moved within it: an interval
    is always finite, and rough where ``seen`` is small.

    Args:
        document: The state, `control.codec.state_document`, of the time ``past.until``.
        planner: Makes the planner; a fresh one for every future.
        past: What happened lately.
        watched: Ids of waiting jobs.
        futures: How many to run at most.
        horizon: How far each runs at most, ms.
        seed: Draws the futures.
        enough: Asked often; True ends with what there is.
    """
    durations = Durations(past.ended)
    lines = _lines(document, watched)
    drained = drain_time(document, past, durations)
    drawn: dict[str, list[float]] = {job: [] for job in watched}
    seen: Counter[str] = Counter()
    done = 0
    for number in range(futures):
        starts = run_on(document, planner(), past, durations, watched, horizon, seed + number, enough)
        if enough():  # the last future was cut short: what has not started in it means nothing
            break
        done += 1
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed + number, 12])))
        for job in watched:
            at = starts.get(job)
            if at is not None:
                seen[job] += 1
                drawn[job].append(at - past.until)
            else:
                drawn[job].append(_beyond(lines[job], starts, horizon, drained, generator))
    return {job: _interval(past.until, drawn[job], seen[job]) for job in watched} if done else {}


def _interval(now: int, times: Sequence[float], seen: int) -> StartInterval:
    low, high = (now + int(_quantile(times, part)) for part in (0.5, 0.9))
    return StartInterval(low, high, len(times), seen)


class _Line(NamedTuple):
    """Where a waiting job stands.

    Attributes:
        lane: Jobs of its account, kind, priority, debug class and author that wait, itself included.
        place: Its place in the lane, 0 first.
        account: All waiting jobs of its account and kind.
        lanes: How many lanes these make.
    """

    lane: Sequence[str]
    place: int
    account: Sequence[str]
    lanes: int


def _lines(document: Mapping[str, Any], watched: Sequence[str]) -> dict[str, _Line]:
    """Return where the watched jobs stand."""
    accounts: dict[tuple[Any, ...], list[str]] = {}
    lanes: dict[tuple[Any, ...], list[tuple[int, str]]] = {}
    keys: dict[str, tuple[Any, ...]] = {}
    for job in document["jobs"]:
        if job["placement"]:
            continue
        spec, submitted, debug = JobSpec(*job["spec"]), job["numbers"][0], job["numbers"][7]
        key = keys[spec.id] = (job["account"], spec.allocated, spec.priority, debug, spec.author)
        accounts.setdefault(key[:2], []).append(spec.id)
        lanes.setdefault(key, []).append((submitted, spec.id))
    count = Counter(key[:2] for key in lanes)
    found: dict[str, _Line] = {}
    for job in watched:
        key = keys[job]
        lane = [name for _, name in sorted(lanes[key])]
        found[job] = _Line(lane, lane.index(job), accounts[key[:2]], count[key[:2]])
    return found


def drain_time(document: Mapping[str, Any], past: Past, durations: Durations) -> float:
    """Return how long the fleet has to do with what waits and with what still comes meanwhile, ms.

    What waits now, at the size of jobs that ended lately, and what is submitted while the crowd lasts: nobody
    knows how long that is, and what has lasted for some time is taken to last as long again.
    """
    waiting = [job for job in document["jobs"] if not job["placement"]]
    fleet = sum(node[1] for node in document["nodes"]) or 1
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([len(waiting), 14])))
    picked = [waiting[int(n)] for n in generator.integers(len(waiting), size=_PICKED)] if waiting else []
    work = [
        spec.gpus * durations.draw(spec, 0, generator) for spec in (JobSpec(*job["spec"]) for job in picked)
    ]
    ages = [past.until - job["numbers"][0] for job in waiting]
    crowd = float(np.quantile(ages, _CROWD)) if ages else 0.0
    mean = sum(work) / len(work) if work else 0.0
    span = max(past.until - past.since, 1)
    load = len(past.arrivals) * mean / span / fleet
    return len(waiting) * mean / fleet + load * crowd


def _beyond(
    line: _Line, starts: Mapping[str, int], horizon: int, drained: float, generator: np.random.Generator
) -> float:
    """Draw how long a job waits that has not started within the horizon of a future, from now.

    Those ahead of it go first, as fast as its lane moved within the horizon; where it did not move at all,
    as fast as the lanes of its account moved on average. The time for so many starts at such a rate is drawn,
    and it starts at the latest when the fleet has done what waits. Both are guesses about times that nobody
    has run: ``_DOUBT`` is the standard deviation of the logarithm of what they are wrong by.
    """
    moved = sum(job in starts for job in line.lane)
    rate = (moved or (sum(job in starts for job in line.account) + 0.5) / line.lanes) / horizon
    ahead = max(line.place + 1 - moved, 1)
    wrong = math.exp(_DOUBT * generator.standard_normal())
    return horizon + min(float(generator.gamma(ahead)) / rate, drained) * wrong


def _quantile(values: Sequence[float], part: float) -> float:
    """Return the quantile that a next value does not exceed with this probability (n + 1 in the rank)."""
    ordered = sorted(values)
    return ordered[min(math.ceil(part * (len(ordered) + 1)), len(ordered)) - 1]
