"""Drawing in SVG: boxes, links whose width shows their rate, bars, a legend."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final
from xml.sax.saxutils import escape

from divvy.fleet.topology.graph import Kind, Link, Topology
from divvy.fleet.topology.words import COLOURS, STROKES

_FONT: Final = "font-family='Inter,Segoe UI,Helvetica,Arial,sans-serif'"
_INK: Final = "#263238"

FIT: Final = "style='max-width:100%;height:auto'"
#: The same picture for readers whose system is dark: colours are turned by the reader's own program.
DARK: Final = (
    "<style>@media (prefers-color-scheme: dark) {"
    " rect[fill='white'] { fill: #101418 }"
    " rect[rx='7'] { fill: #1e262c }"
    " text { stroke: none }"
    " text[fill='#263238'] { fill: #eceff1 }"
    " text[fill='#546e7a'], text[fill='#607d8b'] { fill: #b0bec5 }"
    " text[font-weight], text[font-size='11.5'] { filter: brightness(1.9) }"
    " circle { fill-opacity: 0.7 }"
    " line[stroke='#eceff1'] { stroke: #37474f } }</style>"
)
_NAMES: Final = {
    "nvlink": "NVLink",
    "xgmi": "XGMI",
    "c2c": "chip to chip",
    "pcie": "PCIe",
    "host": "host fabric",
    "socket": "socket to socket",
    "network": "network",
    "tcp": "kernel TCP",
    "storage": "storage",
    "cxl": "CXL",
}


class Canvas:
    """Collects shapes; links are drawn below boxes.

    Args:
        width: Of the picture.
        height: Of the picture.
    """

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._links: list[str] = []
        self._boxes: list[str] = []
        self._labels: list[str] = []
        self._barred = False
        self.fineness = 1.0

    def title(self, text: str) -> None:
        """Write the headline."""
        self._labels.append(
            f"<text x='24' y='34' {_FONT} font-size='18' font-weight='600' "
            f"fill='{_INK}'>{escape(text)}</text>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, link: Link) -> None:
        """Draw a link as a line that bends at half its height."""
        middle = (y1 + y2) / 2
        way = f"M{x1:.1f},{y1:.1f} C{x1:.1f},{middle:.1f} {x2:.1f},{middle:.1f} {x2:.1f},{y2:.1f}"
        self._path(way, link)

    def curve(self, x1: float, y1: float, x2: float, y2: float, lift: float, link: Link) -> None:
        """Draw a link as a bow; a negative lift bends upwards."""
        self._path(
            f"M{x1:.1f},{y1:.1f} C{x1:.1f},{y1 + lift * 1.3:.1f} {x2:.1f},{y2 + lift * 1.3:.1f} "
            f"{x2:.1f},{y2:.1f}",
            link,
        )

    def _path(self, way: str, link: Link) -> None:
        wide = max(1.2, min(9.0, 1.1 * math.log2(1 + link.gb_per_s / 8))) * self.fineness
        tip = (
            f"{link.a} - {link.b}: {link.gb_per_s:.4g} GB/s each way ({link.source.word}: {link.source.text})"
        )
        self._links.append(
            f"<path d='{way}' fill='none' stroke='{STROKES[link.kind]}' stroke-width='{wide:.1f}' "
            f"stroke-linecap='round' opacity='0.75'><title>{escape(tip)}</title></path>"
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        stroke: str,
        text: str,
        small: str = "",
    ) -> None:
        """Draw a box around a centre at `x`, with its top at `y`."""
        self._boxes.append(
            f"<rect x='{x - width / 2:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' "
            f"rx='7' fill='{fill}' "
            f"stroke='{stroke}' stroke-width='1.4'/>"
        )
        size = min(12.0, 1.62 * (width - 6) / max(1, len(text)))
        up = -2 if small else 4
        self._boxes.append(
            f"<text x='{x:.1f}' y='{y + height / 2 + up:.1f}' {_FONT} font-size='{size:.1f}' "
            "font-weight='600' "
            f"text-anchor='middle' fill='{stroke}'>{text}</text>"
        )
        if small:
            tiny = min(9.5, 1.7 * width / max(1, len(small)))
            self._boxes.append(
                f"<text x='{x:.1f}' y='{y + height / 2 + 11:.1f}' {_FONT} font-size='{tiny:.1f}' "
                "text-anchor='middle' "
                f"fill='#607d8b'>{small}</text>"
            )

    def label(self, x: float, y: float, text: str, anchor: str = "middle") -> None:
        """Write a figure beside a link."""
        self._labels.append(
            f"<text x='{x:.1f}' y='{y:.1f}' {_FONT} font-size='8.5' text-anchor='{anchor}' fill='#546e7a' "
            f"paint-order='stroke' stroke='white' stroke-width='2.5'>{escape(text)}</text>"
        )

    def words(
        self, x: float, y: float, text: str, size: float = 11, colour: str = "#546e7a", anchor: str = "start"
    ) -> None:
        """Write a line of text."""
        self._labels.append(
            f"<text x='{x:.1f}' y='{y:.1f}' {_FONT} font-size='{size}' text-anchor='{anchor}' "
            f"fill='{colour}'>{escape(text)}</text>"
        )

    def bars(
        self,
        topo: Topology,
        fabric: Mapping[str, float],
        plane: Mapping[str, float],
        span: Mapping[str, tuple[float, float]],
    ) -> None:
        """Draw the bars of networks and NVSwitch planes, once."""
        if self._barred:
            return
        self._barred = True
        for bars, word in ((fabric, "network"), (plane, "NVSwitch plane")):
            for name, y in bars.items():
                low, high = span.get(name, (60.0, 200.0))
                fill, stroke = COLOURS[topo.vertices[name].kind]
                wide = max(high - low + 60, 150)
                self.box((low + high) / 2, y, wide, 26, fill, stroke, f"{word} ({escape(name)})")

    def swatch(self, x: float, y: float, colour: str, text: str) -> float:
        """Draw an entry of the legend; return where the next one begins."""
        self._labels.append(
            f"<line x1='{x}' y1='{y}' x2='{x + 22}' y2='{y}' stroke='{colour}' stroke-width='5' "
            "stroke-linecap='round'/>"
        )
        self.words(x + 29, y + 4, text)
        return x + 47 + 6.2 * len(text)

    def text(self) -> str:
        """Return the picture."""
        wide, high = f"{self.width:.0f}", f"{self.height:.0f}"
        size = f"width='{wide}' height='{high}' viewBox='0 0 {wide} {high}'"
        return "\n".join(
            [
                f"<svg xmlns='http://www.w3.org/2000/svg' {size} {FIT} role='img'>",
                DARK,
                "<rect width='100%' height='100%' fill='white'/>",
                *self._links,
                *self._boxes,
                *self._labels,
                "</svg>\n",
            ]
        )


def place_legend(canvas: Canvas, topo: Topology) -> None:
    """Write the legend at the foot: each kind of link with its rates, then the warnings."""
    rates: dict[str, set[float]] = {}
    colours: dict[str, str] = {}
    for link in topo.links:
        if str(link.kind) in _NAMES:
            rates.setdefault(str(link.kind), set()).add(round(link.gb_per_s, 1))
            colours[str(link.kind)] = STROKES[link.kind]
    entries = []
    for kind, values in rates.items():
        low, high = min(values), max(values)
        span = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        entries.append((colours[kind], f"{_NAMES[kind]} {span} GB/s"))
    rows: list[list[tuple[str, str]]] = [[]]
    x = 28.0
    for colour, text in entries:
        wide = 47 + 6.2 * len(text)
        if x + wide > canvas.width and rows[-1]:
            rows.append([])
            x = 28.0
        x += wide
        rows[-1].append((colour, text))
    for row, content in enumerate(rows):
        x = 28.0
        for colour, text in content:
            x = canvas.swatch(x, canvas.height - 34 - 18 * (len(rows) - 1 - row), colour, text)
    canvas.words(28, canvas.height - 10, _foot(topo), colour="#b26a00" if topo.findings else "#607d8b")


def _foot(topo: Topology) -> str:
    """Return the last line: what there is, and whether something is wrong."""
    count = {kind: len(topo.of_kind(kind)) for kind in (Kind.GPU, Kind.NIC, Kind.NODE)}
    names = {Kind.GPU: "GPU", Kind.NIC: "NIC", Kind.NODE: "node"}
    words = ", ".join(f"{n} {names[kind]}{'s' if n > 1 else ''}" for kind, n in count.items() if n)
    faults = len(topo.findings)
    warned = f" {faults} warning{'s' if faults > 1 else ''}: divvy topo check" if faults else ""
    return f"{words}. Rates are one way.{warned}"
