"""Charts of a statement: what was owed as a line, what was delivered as bars, drawn as SVG."""

from __future__ import annotations

import time
from html import escape
from typing import Any, Final

_WIDE, _HIGH = 960, 170
_LEFT, _BOTTOM, _TOP = 46, 22, 18
_MOST_BARS: Final = 336
_ROUND: Final = (0.12, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)


def legend() -> str:
    """Return what the colours of the charts mean."""
    return (
        '<p class="key"><span style="background:var(--got)"></span>delivered'
        '<span style="background:var(--free)"></span>unallocated (free)'
        '<span style="background:var(--owed);height:.25rem;vertical-align:.2rem"></span>owed; '
        "devices, averaged over each bar</p>"
    )


def meter(ratio: float | None) -> str:
    """Return a small bar for a ratio from 0 to 1."""
    if ratio is None:
        return ""
    return (
        '<svg viewBox="0 0 60 4" style="width:4rem;margin:.15rem 0 0 auto" aria-hidden="true">'
        '<rect class="free" width="60" height="4" rx="2"/>'
        f'<rect class="got" width="{60 * min(max(ratio, 0), 1):.1f}" height="4" rx="2"/></svg>'
    )


def chart(row: dict[str, Any], *, unix: bool) -> str:
    """Return the chart of one account; long periods are drawn in bars of several hours."""
    hours = row["hours"]
    width = -(-len(hours) // _MOST_BARS)
    groups = [hours[begin : begin + width] for begin in range(0, len(hours), width)]
    got = [_mean(group, "delivered") for group in groups]
    free = [_mean(group, "unallocated") for group in groups]
    owed = [_mean(group, "owed") for group in groups]
    top = _nice(max((max(a + b, c) for a, b, c in zip(got, free, owed, strict=True)), default=0.0))
    step = (_WIDE - _LEFT) / max(len(groups), 1)
    floor, room = _HIGH - _BOTTOM, _HIGH - _BOTTOM - _TOP

    def y(value: float) -> float:
        return floor - room * value / top

    parts = [_grid(top, y)]
    bar = max(step - (1 if step > 3 else 0), 0.5)
    for place, (mine, spare) in enumerate(zip(got, free, strict=True)):
        x = _LEFT + place * step
        if mine:
            parts.append(_bar("got", x, y(mine), bar, floor - y(mine)))
        if spare:
            parts.append(_bar("free", x, y(mine + spare), bar, y(mine) - y(mine + spare)))
    line = " ".join(
        f"{_LEFT + place * step:.1f},{y(value):.1f} {_LEFT + (place + 1) * step:.1f},{y(value):.1f}"
        for place, value in enumerate(owed)
    )
    parts.append(f'<polyline class="due" points="{line}"/>')
    for place in range(0, len(groups), max(len(groups) // 7, 1)):
        x = _LEFT + place * step
        if x < _WIDE - 60:
            told = escape(_tick(groups[place][0]["at"], unix=unix))
            parts.append(f'<text x="{x:.1f}" y="{_HIGH - 6}">{told}</text>')
    got_all, owed_all = row["delivered_gpu_hours"], row["owed_gpu_hours"]
    title = escape(f"{row['account']}: {got_all:,.0f} of {owed_all:,.0f} GPU-hours owed")
    return (
        f'<figure style="margin:1rem 0"><figcaption class="fine">{title}</figcaption>'
        f'<svg viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="{title}">{"".join(parts)}</svg></figure>'
    )


def _bar(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def _grid(top: float, y: Any) -> str:
    lines = [
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDE}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        for value in (0, top / 2, top)
    ]
    return "".join(lines)


def _mean(group: list[dict[str, Any]], name: str) -> float:
    return float(sum(hour[name] for hour in group)) / len(group)


def _nice(value: float) -> float:
    """Return a round number that is not less."""
    if value <= 0:
        return 1.0
    size = 1.0
    while size < value:
        size *= 10
    while size / 10 >= value:
        size /= 10
    return next(size * part for part in _ROUND if size * part >= value)


def _tick(at: float, *, unix: bool) -> str:
    return time.strftime("%d %b %H:%M", time.localtime(at)) if unix else f"day {at / 86_400:.1f}"
