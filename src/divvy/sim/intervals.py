"""Confidence intervals over seeds, and paired differences between policies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Final

#: Two-sided 95% points of Student's t by degrees of freedom, from 1 (any table of the distribution).
_T95: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_Z95: Final = 1.959964


def t95(freedom: int) -> float:
    """Return the two-sided 95% point of Student's t; beyond the table by its expansion in 1/freedom."""
    if freedom < 1:
        raise ValueError("an interval needs at least two values")
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    first = (_Z95**3 + _Z95) / 4
    second = (5 * _Z95**5 + 16 * _Z95**3 + 3 * _Z95) / 96
    return _Z95 + first / freedom + second / freedom**2


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95% t-interval of the mean; (nan, nan) where a value is not finite or there is only one."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return math.nan, math.nan
    middle = fmean(values)
    half = t95(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return middle - half, middle + half
