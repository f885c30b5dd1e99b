"""Charts of a comparison as SVG: one for all topologies, one bar per planner at its geometric mean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final
from xml.sax.saxutils import escape

from divvy.fleet.topology.svg import DARK, FIT

_FONT: Final = "font-family='Inter,Segoe UI,Helvetica,Arial,sans-serif'"
_INK: Final = "#263238"
_OWN: Final = "#2e7d32"
_OTHER: Final = "#90a4ae"
_ROW: Final = 30
_LEFT: Final = 150
_WIDE: Final = 620


def charts(document: Mapping[str, Any]) -> dict[str, str]:
    """Return file names with their SVG."""
    return {"compare-geomean.svg": _bars(document), "compare-topologies.svg": _dots(document)}


def _x(value: float, most: float) -> float:
    """Return the place of a ratio on a logarithmic axis that begins at 1."""
    return _LEFT + _WIDE * math.log(max(value, 1.0)) / math.log(max(most, 1.1))


def _frame(title: str, rows: int, most: float, body: list[str]) -> str:
    """Return the chart around its marks."""
    high = 78 + rows * _ROW + 34
    ticks = [t for t in (1, 1.1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500) if t <= most * 1.01]
    grid = []
    for tick in ticks:
        x = f"{_x(tick, most):.1f}"
        grid.append(f"<line x1='{x}' y1='62' x2='{x}' y2='{high - 34}' stroke='#eceff1'/>")
        style = f"{_FONT} font-size='11' text-anchor='middle' fill='#607d8b'"
        grid.append(f"<text x='{x}' y='{high - 16}' {style}>{tick:g}</text>")
    size = f"width='{_LEFT + _WIDE + 80}' height='{high}' viewBox='0 0 {_LEFT + _WIDE + 80} {high}'"
    heading = (
        f"<text x='20' y='30' {_FONT} font-size='17' font-weight='600' fill='{_INK}'>{escape(title)}</text>"
    )
    words = "makespan over the bound, logarithmic; 1 is perfect"
    head = [
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} {FIT} role='img'>",
        DARK,
        "<rect width='100%' height='100%' fill='white'/>",
        heading,
        f"<text x='20' y='50' {_FONT} font-size='12' fill='#607d8b'>{words}</text>",
    ]
    return "\n".join([*head, *grid, *body, "</svg>\n"])


def _bars(document: Mapping[str, Any]) -> str:
    """Return the geometric means as bars."""
    means = sorted(document["geomean"].items(), key=lambda item: item[1])
    most = max([value for _, value in means] + [2.0])
    body = []
    for row, (planner, value) in enumerate(means):
        y = 70 + row * _ROW
        colour = _OWN if planner.startswith("divvy") else _OTHER
        wide = max(3.0, _x(value, most) - _LEFT)
        body.append(
            f"<text x='{_LEFT - 10}' y='{y + 15}' {_FONT} font-size='13' text-anchor='end' "
            f"fill='{_INK}'>{escape(planner)}</text>"
            f"<rect x='{_LEFT}' y='{y}' width='{wide:.1f}' height='20' rx='4' fill='{colour}'/>"
            f"<text x='{_LEFT + wide + 8:.1f}' y='{y + 15}' {_FONT} font-size='12' "
            f"fill='{_INK}'>{value:.2f}</text>"
        )
    return _frame(f"Geometric mean over topologies, {document['transfers']}", len(means), most, body)


def _dots(document: Mapping[str, Any]) -> str:
    """Return every result as a dot, one row per planner."""
    by_planner: dict[str, list[tuple[float, str]]] = {}
    for row in document["results"]:
        by_planner.setdefault(row["planner"], []).append((row["of_bound"], row["topology"]))
    order = sorted(by_planner, key=lambda p: document["geomean"][p])
    most = max([value for rows in by_planner.values() for value, _ in rows] + [2.0])
    body = []
    for row, planner in enumerate(order):
        y = 80 + row * _ROW
        colour = _OWN if planner.startswith("divvy") else "#1e88e5"
        body.append(
            f"<text x='{_LEFT - 10}' y='{y + 4}' {_FONT} font-size='13' text-anchor='end' "
            f"fill='{_INK}'>{escape(planner)}</text>"
        )
        body += [
            f"<circle cx='{_x(value, most):.1f}' cy='{y}' r='5' fill='{colour}' fill-opacity='0.45'>"
            f"<title>{escape(name)}: {value:.3f}</title></circle>"
            for value, name in by_planner[planner]
        ]
    return _frame(f"Every topology, {document['transfers']}", len(order), most, body)
