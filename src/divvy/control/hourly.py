"""Integrals and marks per hour of the clock: what a statement is added up with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from divvy.units import HOUR

Hours = npt.NDArray[np.int64]


class Blocks(NamedTuple):
    """Allocated jobs of one leaf as arrays: what each wanted, held or lost over its [start, end) (ms)."""

    account: str
    start: Hours
    end: Hours
    gpus: Hours


class HourSums:
    """Integrals of step functions, hour by hour, in O(1) per step.

    Args:
        start: Begin of the period, ms; hours are those of the clock, the first and last may be partial.
        end: End of the period, ms.
    """

    __slots__ = ("_edge", "_end", "_first", "_inner", "_start")

    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end
        self._first = start // HOUR
        count = max(-(-end // HOUR) - self._first, 0)
        self._edge = [0] * (count + 1)
        self._inner = [0] * (count + 1)

    def add(self, start: int, end: int, rate: int) -> int:
        """Add a rate that held over [start, end); return what of it falls into the period."""
        start, end = max(start, self._start), min(end, self._end)
        if start >= end:
            return 0
        first, last = start // HOUR - self._first, end // HOUR - self._first
        if first == last:
            self._edge[first] += rate * (end - start)
        else:
            self._edge[first] += rate * ((first + 1 + self._first) * HOUR - start)
            self._edge[last] += rate * (end - (last + self._first) * HOUR)
            self._inner[first + 1] += rate * HOUR
            self._inner[last] -= rate * HOUR
        return rate * (end - start)

    def add_many(self, start: Hours, end: Hours, rate: Hours) -> None:
        """Add many rates, each over its own [start, end)."""
        start, end = np.maximum(start, self._start), np.minimum(end, self._end)
        some = start < end
        start, end, rate = start[some], end[some], rate[some]
        first, last = start // HOUR - self._first, end // HOUR - self._first
        one = first == last
        edge, inner = (np.zeros(len(self._edge), dtype=np.int64) for _ in range(2))
        np.add.at(edge, first[one], (rate * (end - start))[one])
        first, last, start, end, rate = (column[~one] for column in (first, last, start, end, rate))
        np.add.at(edge, first, rate * ((first + 1 + self._first) * HOUR - start))
        np.add.at(edge, last, rate * (end - (last + self._first) * HOUR))
        np.add.at(inner, first + 1, rate * HOUR)
        np.add.at(inner, last, -rate * HOUR)
        self._edge = (np.array(self._edge, dtype=np.int64) + edge).tolist()
        self._inner = (np.array(self._inner, dtype=np.int64) + inner).tolist()

    def put(self, at: int, amount: int) -> None:
        """Add an amount at an instant of the period."""
        self._edge[at // HOUR - self._first] += amount

    def hours(self) -> Hours:
        """Return the integral per hour."""
        whole = np.cumsum(np.array(self._inner, dtype=np.int64)) + np.array(self._edge, dtype=np.int64)
        return whole[:-1]


class HourMarks:
    """Which numbered entries touch each hour: always the range and the count, the whole lists if wanted.

    Args:
        start: Begin of the period, ms.
        end: End of the period, ms.
        listed: Whether the lists are kept too.
    """

    __slots__ = ("_end", "_first", "_start", "count", "highest", "listed", "lowest")

    def __init__(self, start: int, end: int, *, listed: bool) -> None:
        self._start, self._end = start, end
        self._first = start // HOUR
        size = max(-(-end // HOUR) - self._first, 0)
        self.lowest: Hours = np.full(size, np.iinfo(np.int64).max, dtype=np.int64)
        self.highest: Hours = np.zeros(size, dtype=np.int64)
        self.count: Hours = np.zeros(size, dtype=np.int64)
        self.listed: list[list[int]] | None = [[] for _ in range(size)] if listed else None

    def mark(self, entry: int, start: int, end: int) -> None:
        """Note that an entry touches [start, end], or an instant of it."""
        first = max(start, self._start) // HOUR - self._first
        last = min(max(end - 1, start), self._end - 1) // HOUR - self._first
        if first > last:
            return
        here = slice(first, last + 1)
        np.minimum(self.lowest[here], entry, out=self.lowest[here])
        np.maximum(self.highest[here], entry, out=self.highest[here])
        self.count[here] += 1
        if self.listed is not None:
            for hour in range(first, last + 1):
                self.listed[hour].append(entry)

    def merge(self, other: HourMarks) -> None:
        """Take over the marks of a child."""
        np.minimum(self.lowest, other.lowest, out=self.lowest)
        np.maximum(self.highest, other.highest, out=self.highest)
        self.count += other.count
        if self.listed is not None and other.listed is not None:
            for mine, theirs in zip(self.listed, other.listed, strict=True):
                mine.extend(theirs)


def ranges(numbers: list[int]) -> str:
    """Return numbers as ranges, such as ``"3-7,9"``."""
    parts: list[str] = []
    begin = end = 0
    for number in sorted(set(numbers)):
        if parts and number == end + 1:
            end = number
            parts[-1] = f"{begin}-{end}"
        else:
            begin = end = number
            parts.append(str(number))
    return ",".join(parts)


def mean_weight(steps: Iterable[tuple[int, int, int]], start: int, end: int) -> float:
    """Return the mean charge per device-ms of a fleet over a period.

    Args:
        steps: Since when (ms), healthy devices, their charge per ms; oldest first.
        start: Begin of the period, ms.
        end: End of the period, ms.
    """
    known = list(steps)
    devices = charge = 0
    for index, (at, gpus, rate) in enumerate(known):
        until = known[index + 1][0] if index + 1 < len(known) else end
        span = max(min(until, end) - max(at, start), 0)
        devices += gpus * span
        charge += rate * span
    return charge / devices if devices else 1.0
