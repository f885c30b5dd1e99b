"""The plots of the audit's page: SVG and bars as text, in colours of the page (ADR 79)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

_WIDE: Final = 360.0
_HIGH: Final = 150.0
_LEFT: Final = 34.0
_RIGHT: Final = 8.0
_TOP: Final = 10.0
_FOOT: Final = 22.0
_BINS: Final = 90
_HOUR_S: Final = 3600
#: Marks of a logarithmic axis of waits, s, and what they are called.
_WAIT_MARKS: Final = (
    (1, "1 s"),
    (10, "10 s"),
    (60, "1 min"),
    (600, "10 min"),
    (3_600, "1 h"),
    (36_000, "10 h"),
)
_WAIT_FAR: Final = ((360_000, "4 d"), (3_600_000, "42 d"))


def series(account: dict[str, Any]) -> str:
    """Return owed, delivered and demand of an account over time, in GPUs."""
    hours = account["hours"] or []
    if not hours:
        return "<p class='none'>no hours</p>"
    at, columns = _bins(hours, ("owed", "delivered", "demand"))
    owed, delivered, demand = columns
    top = _nice(max([*owed, *delivered, 1e-9]) * 1.05)
    xs = [_LEFT + (_WIDE - _LEFT - _RIGHT) * (n / max(len(at), 1)) for n in range(len(at) + 1)]
    body = [_grid(top), _area(xs, delivered, top, "delivered"), _line(xs, demand, top, "demand")]
    body.append(_line(xs, owed, top, "owed"))
    places = sorted({0, len(at) // 2, len(at) - 1})
    for place in places:
        anchor = "start" if place == 0 else "end" if place == len(at) - 1 else "middle"
        day = datetime.fromtimestamp(at[place], UTC).strftime("%d %b %Y" if place == 0 else "%d %b")
        body.append(f"<text x='{xs[place]:.1f}' y='{_HIGH - 6:.0f}' text-anchor='{anchor}'>{day}</text>")
    name = escape(account["account"])
    return (
        f"<svg viewBox='0 0 {_WIDE:.0f} {_HIGH:.0f}' role='img' aria-label='GPUs of {name} over time: owed, "
        f"delivered, demand'>{''.join(body)}</svg>"
    )


def _bins(hours: Sequence[dict[str, float]], keys: Sequence[str]) -> tuple[list[float], list[list[float]]]:
    """Return the begin of at most 90 bins, and GPUs (GPU-hours per hour) in each."""
    width = max(1, math.ceil(len(hours) / _BINS))
    groups = [hours[first : first + width] for first in range(0, len(hours), width)]
    ends = [*(group[0]["at"] for group in groups[1:]), hours[-1]["at"] + _HOUR_S]
    spans = [max((end - group[0]["at"]) / _HOUR_S, 1e-9) for group, end in zip(groups, ends, strict=True)]
    columns = [
        [sum(hour[key] for hour in group) / span for group, span in zip(groups, spans, strict=True)]
        for key in keys
    ]
    return [group[0]["at"] for group in groups], columns


def _y(value: float, top: float) -> float:
    return _HIGH - _FOOT - (_HIGH - _TOP - _FOOT) * min(value / top, 1.0)


def _grid(top: float) -> str:
    lines = []
    for part in (0.0, 0.5, 1.0):
        y = _y(top * part, top)
        lines.append(f"<line class='grid' x1='{_LEFT}' x2='{_WIDE - _RIGHT}' y1='{y:.1f}' y2='{y:.1f}'/>")
        lines.append(f"<text x='{_LEFT - 4}' y='{y + 3.5:.1f}' text-anchor='end'>{_short(top * part)}</text>")
    return "".join(lines)


def _steps(xs: Sequence[float], values: Sequence[float], top: float) -> str:
    points = []
    for n, value in enumerate(values):
        y = _y(value, top)
        points.append(f"{xs[n]:.1f},{y:.1f} {xs[n + 1]:.1f},{y:.1f}")
    return " ".join(points)


def _area(xs: Sequence[float], values: Sequence[float], top: float, kind: str) -> str:
    base = _y(0, top)
    points = f"{xs[0]:.1f},{base:.1f} {_steps(xs, values, top)} {xs[-1]:.1f},{base:.1f}"
    return f"<polygon class='{kind}' points='{points}'/>"


def _line(xs: Sequence[float], values: Sequence[float], top: float, kind: str) -> str:
    return f"<polyline class='{kind}' points='{_steps(xs, values, top)}'/>"


def _nice(value: float) -> float:
    """Return the next round number above a value."""
    power = 10 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return float(next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value))


def _short(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:.3g}"


def bar(value: float, most: float, kind: str, mark: float | None = None) -> str:
    """Return a bar as wide as its part of the largest, with a mark where one is due."""
    wide = 100 * min(value / most, 1.0) if most > 0 else 0.0
    tick = "" if mark is None or most <= 0 else f"<b style='left:{100 * min(mark / most, 1):.2f}%'></b>"
    return f"<span class='bar'><i class='{kind}' style='width:{wide:.2f}%'></i>{tick}</span>"


def waits(rows: Sequence[dict[str, Any]]) -> str:
    """Return the waits by size: from the median to the 90th percentile, on a logarithmic axis."""
    some = [row for row in rows if row["p50_s"] is not None]
    if not some:
        return "<p class='none'>no job has started</p>"
    longest = max(row["p90_s"] for row in some)
    marks = [mark for mark in (*_WAIT_MARKS, *_WAIT_FAR) if mark[0] <= max(longest, 60) * 3]
    top, high = marks[-1][0] * 2, 30 + 24 * len(some)
    left, wide = 52.0, _WIDE - 52.0 - 14

    def x(seconds: float) -> float:
        return left + wide * math.log10(1 + seconds) / math.log10(1 + top)

    body = []
    for seconds, name in marks:
        at = x(seconds)
        body.append(f"<line class='grid' x1='{at:.1f}' x2='{at:.1f}' y1='6' y2='{high - 20}'/>")
        body.append(f"<text x='{at:.1f}' y='{high - 6}' text-anchor='middle'>{name}</text>")
    for n, row in enumerate(some):
        y = 18 + 24 * n
        low, far = x(row["p50_s"]), x(row["p90_s"])
        tip = f"{row['gpus']} GPUs, {row['jobs']} jobs: p50 {row['p50_s']:.0f} s, p90 {row['p90_s']:.0f} s"
        body.append(f"<text x='{left - 8}' y='{y + 4}' text-anchor='end'>{escape(row['gpus'])}</text>")
        body.append(
            f"<g><title>{escape(tip)}</title><line class='range' x1='{low:.1f}' x2='{far:.1f}' y1='{y}' "
            f"y2='{y}'/>"
            f"<circle class='p50' cx='{low:.1f}' cy='{y}' r='5'/><circle class='p90' cx='{far:.1f}' "
            f"cy='{y}' r='5'/>"
            "</g>"
        )
    label = "Waits by number of GPUs, median and 90th percentile"
    return f"<svg viewBox='0 0 {_WIDE:.0f} {high}' role='img' aria-label='{label}'>{''.join(body)}</svg>"
