"""Rows of ``divvy.bench/1``: one figure each, as every benchmark reports them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def figure(
    case: str,
    measure: str,
    value: float | None,
    unit: str,
    *,
    contender: str = "divvy",
    interval: tuple[float, float] | None = None,
    n: int = 1,
    target: float | None = None,
    at_least: bool = False,
    note: str = "",
) -> Row:
    """Return one figure; whether a target is met follows from the value.

    Args:
        case: What was done.
        measure: What was measured of it.
        value: The figure; None (or not finite) where there is none; the note says why.
        unit: Its unit; empty for a ratio.
        contender: Who did it.
        interval: Least and greatest, or a confidence interval; the note says which.
        n: Observations.
        target: What is aimed at; None for none.
        at_least: Whether the target is a lower bound instead of an upper one.
        note: Conditions.
    """
    met = None
    if target is not None and value is not None and math.isfinite(value):
        met = value >= target if at_least else value <= target
    return row(
        case, contender, measure, value, unit, interval=interval, n=n, target=target, met=met, note=note
    )


def row(
    case: str,
    contender: str,
    measure: str,
    value: float | None,
    unit: str,
    *,
    interval: tuple[float, float] | None = None,
    n: int = 1,
    target: float | None = None,
    met: bool | None = None,
    note: str = "",
) -> Row:
    """Return one figure of which the caller says whether its target is met; otherwise as `figure`."""
    if value is not None and not math.isfinite(value):
        value = None
    if interval is not None and not all(map(math.isfinite, interval)):
        interval = None
    return {
        "case": case,
        "contender": contender,
        "measure": measure,
        "value": None if value is None else round(value, 5),
        "unit": unit,
        "interval": None if interval is None else [round(edge, 5) for edge in interval],
        "n": n,
        "target": target,
        "met": met,
        "note": note,
    }


def quantile(values: Sequence[float], part: float) -> float:
    """Return the value below or at which a part of the values lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return float(statistics.median(values))


def find_data(part: str = "") -> Path | None:
    """Return a part of the shared data beside the checkout (or all of it), None where it is absent."""
    here = Path(__file__).resolve()
    for root in (Path.cwd(), here.parents[3], *here.parents[3].parents[:2]):
        candidate = root.parent / "shared" / "data" / part
        if candidate.exists():
            return candidate
    return None
