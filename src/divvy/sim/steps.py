"""Exact integrals of step functions: rates that jump at instants, integrated with integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def ints(values: object) -> Ints:
    """Return values as an array of 64-bit integers."""
    return np.asarray(values, dtype=np.int64)


class Steps:
    """A function of time that jumps by ``jump[n]`` at ``at[n]`` and is 0 before the first of them.

    Times are ms and jumps are devices; their products stay far below 2^63 (a million devices for a
    century are 3e18).
    """

    __slots__ = ("_area", "_at", "_value")

    def __init__(self, at: Ints, jump: Ints) -> None:
        order = np.argsort(at, kind="stable")
        self._at = at[order]
        jumps = jump[order]
        self._value = np.concatenate([ints([0]), np.cumsum(jumps)])
        self._area = np.concatenate([ints([0]), np.cumsum(jumps * self._at)])

    @classmethod
    def of_intervals(cls, start: Ints, end: Ints, height: Ints) -> Steps:
        """Return the sum of blocks of a height over [start, end)."""
        return cls(np.concatenate([start, end]), np.concatenate([height, -height]))

    @property
    def instants(self) -> Ints:
        """Return when the function jumps, sorted, with repeats."""
        return self._at

    def integral(self, grid: Ints) -> Ints:
        """Return the integral up to each of some instants."""
        place = np.searchsorted(self._at, grid, side="right")
        result: Ints = grid * self._value[place] - self._area[place]
        return result

    def between(self, grid: Ints) -> Ints:
        """Return the integral over each cell of a grid."""
        return np.diff(self.integral(grid))

    def value(self, at: Ints) -> Ints:
        """Return the values just after some instants."""
        result: Ints = self._value[np.searchsorted(self._at, at, side="right")]
        return result


def cells(start: int, end: int, width: int) -> Ints:
    """Return the borders of cells of a width from start on; the last cell ends with ``end``."""
    return np.append(np.arange(start, end, width, dtype=np.int64), ints([end]))


def quantile(values: Floats, part: float) -> float:
    """Return the smallest value that at least ``part`` of the values do not exceed; nan if there are none."""
    if not values.size:
        return float("nan")
    ordered = np.sort(values)
    return float(ordered[max(0, int(np.ceil(part * ordered.size)) - 1)])
