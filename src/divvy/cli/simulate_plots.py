"""Pictures of a replay as PNG and SVG. Only `--report` pays for importing matplotlib."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from divvy.sim.measures import Window
from divvy.sim.replay import Replay
from divvy.sim.series import accounts_in_order, blocks, busiest, by_day, holdings, waits_by_size
from divvy.sim.steps import Floats, quantile
from divvy.units import DAY, HOUR, format_duration, gpu_hours

ENDINGS: Final = ("png", "svg")
_PALETTE: Final = (
    "#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#e377c2",
    "#17becf", "#bcbd22", "#393b79", "#ad494a", "#637939", "#e7ba52",
)  # fmt: skip
_OTHERS: Final = "#9e9e9e"
_FREE: Final = "#cfd8dc"
_LOST: Final = "#d50000"
_INK: Final = "#263238"
_MOST_LANES: Final = 256
_MOST_ROWS: Final = 30
_GANTT: Final = 2 * DAY
#: The same bytes for the same replay: no dates, no random ids, no fonts of the machine.
_STYLE: Final = {
    "svg.hashsalt": "divvy",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.edgecolor": "#90a4ae",
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": _INK,
}


def pictures(replay: Replay, window: Window) -> dict[str, dict[str, bytes]]:
    """Return the pictures of a replay: name, then ending, to bytes."""
    names = accounts_in_order(replay, window)
    colours = {name: _PALETTE[n] if n < len(_PALETTE) else _OTHERS for n, name in enumerate(names)}
    drawn: dict[str, dict[str, bytes]] = {}
    makers: dict[str, Callable[[Replay, Window, dict[str, str]], Figure]] = {
        "gpus": _gpus,
        "owed": _owed,
        "waits": _waits,
        "gantt": _gantt,
    }
    with rc_context(_STYLE):  # type: ignore[arg-type]  # its stub wants literal keys
        for name, make in makers.items():
            figure = make(replay, window, colours)
            drawn[name] = {ending: _bytes(figure, ending) for ending in ENDINGS}
    return drawn


def _bytes(figure: Figure, ending: str) -> bytes:
    out = io.BytesIO()
    metadata = {"Date": None} if ending == "svg" else {"Software": None}
    figure.savefig(out, format=ending, dpi=110, metadata=metadata)
    return out.getvalue()


def _legend(axes: Axes, colours: dict[str, str], more: Sequence[tuple[str, str]] = ()) -> None:
    shown = [(name, colour) for name, colour in colours.items() if colour != _OTHERS]
    if len(shown) < len(colours):
        shown.append((f"{len(colours) - len(shown)} others", _OTHERS))
    handles = [Patch(color=colour, label=name) for name, colour in [*shown, *more]]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)


def _gpus(replay: Replay, window: Window, colours: dict[str, str]) -> Figure:
    """Draw who held how many devices over time."""
    held = holdings(replay, window)
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.add_subplot()
    at = held.edges / DAY
    bottom = np.zeros(len(at) - 1)
    for name, colour in colours.items():
        top = bottom + held.charged[name]
        _area(axes, at, bottom, top, colour)
        bottom = top
    _area(axes, at, bottom, bottom + held.free, _FREE)
    axes.stairs(held.capacity, at, color=_INK, linewidth=1.2)
    axes.set(
        title=f"GPUs held by account under {replay.policy}: average per {_width(held.edges)}",
        xlabel="days since the first submission",
        ylabel="GPUs",
        xlim=(at[0], at[-1]),
        ylim=(0, float(held.capacity.max()) * 1.05),
    )
    _legend(axes, colours, [("unallocated work", _FREE), ("capacity (line)", _INK)])
    return figure


def _area(axes: Axes, at: Floats, bottom: Floats, top: Floats, colour: str) -> None:
    axes.fill_between(
        at, np.append(bottom, bottom[-1]), np.append(top, top[-1]), step="post", color=colour, linewidth=0
    )


def _width(edges: np.ndarray) -> str:
    return format_duration(int(edges[1] - edges[0]))


def _owed(replay: Replay, window: Window, colours: dict[str, str]) -> Figure:
    """Draw owed against delivered: the sums, and how much of each day's debt was met."""
    due = by_day(replay, window)
    names = list(colours)[:_MOST_ROWS]
    figure = Figure(figsize=(11, 1.7 + 0.3 * len(names)), layout="constrained")
    bars, days = figure.subplots(1, 2, width_ratios=(1, 1.3), sharey=True)
    place = np.arange(len(names))
    owed = np.array([gpu_hours(due[name].owed.sum()) for name in names])
    got = np.array([gpu_hours(due[name].delivered.sum()) for name in names])
    bars.barh(place, got, color=[colours[name] for name in names], height=0.55)
    bars.barh(place, owed, facecolor="none", edgecolor=_INK, linewidth=1.3, height=0.8)
    for row, (debt, paid) in enumerate(zip(owed, got, strict=True)):
        if debt:
            bars.annotate(
                f" {min(paid / debt, 9.99):.0%}", (max(debt, paid), row), va="center", fontsize=8, color=_INK
            )
    bars.set_yticks(place, names)
    bars.invert_yaxis()
    bars.margins(x=0.12)
    bars.set(title="Owed (outline) and delivered (bar)", xlabel="GPU-hours")
    with np.errstate(divide="ignore", invalid="ignore"):
        met = np.array([np.minimum(due[name].delivered / due[name].owed, 1) for name in names])
    image = days.imshow(met, aspect="auto", vmin=0, vmax=1, cmap="RdYlGn", interpolation="none")
    days.set(title="Part of each day's debt that was met (white: nothing owed)", xlabel="day of the window")
    days.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(image, ax=days, format=lambda value, _: f"{value:.0%}", pad=0.01)
    return figure


def _waits(replay: Replay, window: Window, _colours: dict[str, str]) -> Figure:
    """Draw the waits by size: median, 90% and 99% points."""
    classes = waits_by_size(replay, window)
    figure = Figure(figsize=(7.5, 3.8), layout="constrained")
    axes = figure.add_subplot()
    place = np.arange(len(classes))
    finite = [values[np.isfinite(values)] for values in classes.values()]
    top = max((float(values.max()) for values in finite if values.size), default=1.0)
    for part, mark, label in (
        (0.5, "o", "half of the jobs"),
        (0.9, "D", "9 of 10"),
        (0.99, "^", "99 of 100"),
    ):
        points = np.array([quantile(values, part) for values in classes.values()])
        shown = np.clip(np.where(np.isfinite(points), points, top * 2), 1, None)
        axes.plot(place, shown, mark, label=f"{label} waited less", markersize=7, alpha=0.85)
    axes.set_yscale("log")
    ticks = [1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400]
    shown_ticks = [tick for tick in ticks if tick <= top * 3]
    axes.set_yticks(shown_ticks, [format_duration(tick * 1000) for tick in shown_ticks])
    axes.minorticks_off()
    axes.set_xticks(place, [f"{name}\n{len(values)} jobs" for name, values in classes.items()])
    axes.grid(axis="y", color="#eceff1")
    axes.set(title=f"Wait until the first start under {replay.policy}, by size", xlabel="GPUs of the job")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1))
    return figure


def _gantt(replay: Replay, window: Window, colours: dict[str, str]) -> Figure:
    """Draw who was on which device in the two days of the window in which most happened."""
    part = busiest(replay, window, _GANTT)
    every = blocks(replay, part)
    widths: dict[str, int] = {}
    for capacity in replay.record.capacity:
        for node, gpus in capacity.nodes:
            widths[node] = max(widths.get(node, 0), gpus)
    first: dict[str, int] = {}
    total = 0
    for node in sorted(widths):
        first[node], total = total, total + widths[node]
    lanes = min(total, _MOST_LANES)
    figure = Figure(figsize=(11, max(3.9, 1.5 + lanes * 0.036)), layout="constrained")
    axes = figure.add_subplot()
    record, spec = replay.record, replay.workload.spec
    shapes: list[list[tuple[float, float]]] = []
    faces: list[str] = []
    for run, node, lane in every:
        y = first[node] + lane
        if y >= _MOST_LANES:
            continue
        job = spec[record.job[run]]
        end = min(record.end[run], part.end)
        kept = min(max(record.end[run] - record.lost[run], part.start), end)
        shapes.append(_box(max(record.start[run], part.start), kept, y))
        faces.append(colours.get(job.account, _OTHERS) if job.allocated else _FREE)
        if kept < end:
            shapes.append(_box(kept, end, y))
            faces.append(_LOST)
    axes.add_collection(PolyCollection(shapes, facecolors=faces, edgecolors="white", linewidths=0.15))
    borders = [place for place in first.values() if 0 < place < lanes]
    axes.hlines(borders, part.start / HOUR, part.end / HOUR, color="#607d8b", linewidth=0.4)
    more = f", the first {lanes} of {total} devices" if total > lanes else ""
    axes.set(
        title=f"Who was on which device under {replay.policy}{more}; lines between nodes",
        xlabel="hours since the first submission",
        ylabel="device",
        xlim=(part.start / HOUR, part.end / HOUR),
        ylim=(max(lanes, 1), 0),
    )
    _legend(axes, colours, [("unallocated work", _FREE), ("work lost to a preemption", _LOST)])
    return figure


def _box(start: int, end: int, y: int) -> list[tuple[float, float]]:
    a, b = start / HOUR, end / HOUR
    return [(a, y), (b, y), (b, y + 0.92), (a, y + 0.92)]
