"""What the recent past tells about the future: how long jobs like these ran, and what is submitted in a week.

Nothing here is known that a scheduler would not know at that moment: true runtimes only of jobs that ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from divvy.fleet.job import JobSpec
from divvy.units import DAY, HOUR, MINUTE

#: Jobs that ended, the newest, that are looked at; and how many of them are taken to be like a given one.
REMEMBERED: Final = 3_000
ALIKE: Final = 40
_UNLIKE_ACCOUNT: Final = 0.5
_UNLIKE_AUTHOR: Final = 0.5
#: Declared times and limits that differ by less than a fourth root of 2 are taken for equal.
_STEPS: Final = 4
_UNKNOWN_RUNTIME: Final = 30 * MINUTE


class Ended(NamedTuple):
    """A job that ended by itself: what was asked for, and how long it ran in all (ms)."""

    spec: JobSpec
    ran: int


class Arrival(NamedTuple):
    """A submission (ms)."""

    at: int
    spec: JobSpec
    debug: bool


@dataclass(frozen=True, slots=True)
class Past:
    """What happened lately.

    Attributes:
        ended: Jobs that ended, oldest first.
        arrivals: Submissions since ``since``, in order.
        since: Begin of what ``arrivals`` covers, ms.
        until: The present, ms.
    """

    ended: Sequence[Ended]
    arrivals: Sequence[Arrival]
    since: int
    until: int


class Durations:
    """Draws how long a job will run, from the jobs most like it that ended.

    Likeness: declared minimum runtime and limit on a logarithmic scale, account, author. Where both have a
    limit, it is the part of the limit that is taken over: people's limits err in a similar way each time.

    Args:
        ended: Jobs that ended, oldest first.
    """

    def __init__(self, ended: Sequence[Ended]) -> None:
        recent = ended[-REMEMBERED:]
        self._ran = np.array([max(one.ran, 1) for one in recent], dtype=np.float64)
        self._declared = _logarithm([one.spec.min_runtime for one in recent])
        self._limit = _logarithm([one.spec.time_limit for one in recent])
        self._limits = np.array([one.spec.time_limit for one in recent], dtype=np.float64)
        self._accounts = np.array([one.spec.account for one in recent], dtype=object)
        self._authors = np.array([one.spec.author for one in recent], dtype=object)
        self._known: dict[tuple[str, str, int, int], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        """Jobs alike, per likeness: the part of its limit that each ran (0: none), and how long each ran."""

    def draw(self, spec: JobSpec, ran: int, generator: np.random.Generator) -> int:
        """Return the ms that a job goes on after having run for ``ran`` ms; at least 1."""
        samples = self._samples(spec)
        longer = samples[samples > ran]
        if longer.size:
            whole = float(longer[int(generator.integers(longer.size))])
        else:  # older than anything like it: the longer something lasts, the longer it goes on
            whole = max(ran, _UNKNOWN_RUNTIME if not samples.size else 1) * (1 + generator.exponential())
        if spec.time_limit:
            whole = min(whole, max(spec.time_limit, ran + 1))
        return max(int(whole) - ran, 1)

    def _samples(self, spec: JobSpec) -> NDArray[np.float64]:
        declared, limit = (float(_logarithm([value])[0]) for value in (spec.min_runtime, spec.time_limit))
        key = (spec.account, spec.author, round(declared * _STEPS), round(limit * _STEPS))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._alike(spec, declared, limit)
        parts, runs = known
        return np.where(parts > 0, parts * spec.time_limit, runs) if spec.time_limit else runs

    def _alike(
        self, spec: JobSpec, declared: float, limit: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if not self._ran.size:
            return self._ran, self._ran
        distance = np.abs(self._declared - declared) + np.abs(self._limit - limit)
        distance += _UNLIKE_ACCOUNT * (self._accounts != spec.account)
        distance += _UNLIKE_AUTHOR * (self._authors != spec.author)
        nearest = np.argsort(distance, kind="stable")[:ALIKE]
        ran, limits = self._ran[nearest], self._limits[nearest]
        return np.divide(ran, limits, out=np.zeros_like(ran), where=limits > 0), ran


def _logarithm(values: Sequence[int]) -> NDArray[np.float64]:
    return np.log2(np.array(values, dtype=np.float64) / MINUTE + 1)


def future(past: Past, horizon: int, generator: np.random.Generator) -> list[Arrival]:
    """Return what may be submitted within a horizon: the past again, from a random day on, round and round.

    The time of day is kept where the past is at least a day long.
    """
    if not past.arrivals:
        return []
    length = max(past.until - past.since, HOUR)
    if length > DAY:
        length -= length % DAY
        shift = int(generator.integers(length // DAY)) * DAY
    else:
        shift = int(generator.integers(length))
    since = past.until - length
    kept = [arrival for arrival in past.arrivals if arrival.at >= since]
    found: list[Arrival] = []
    for lap in range(horizon // length + 2):
        for place, (at, spec, debug) in enumerate(kept):
            then = past.until + (at - since - shift) % length + lap * length
            if then <= past.until + horizon:
                found.append(Arrival(then, spec._replace(id=f"~{lap}.{place}"), debug))
    found.sort(key=lambda arrival: arrival.at)
    return found
