"""The work of `divvy slices compare`: every planner x dispatcher, one table, plots, events."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, Final

from divvy.cli.chatter import libraries_quiet
from divvy.cli.render import Column, Output, Span, number, percent
from divvy.cli.slice_inputs import load_profiles
from divvy.cli.slice_plan import Goal, Target, Traffic, stage, write_events
from divvy.errors import InputError
from divvy.planners.queries.registry import find_rule
from divvy.planners.slices.exhaustive import MOST_GPUS
from divvy.planners.slices.registry import find_planner, split_names
from divvy.sim.queries.contest import Contest, contest_document, gather
from divvy.sim.queries.report import event_lines
from divvy.units import parse_whole

PLANNERS: Final = "divvy,paris,homogeneous,random"
DISPATCHERS: Final = "divvy,elsa,fifs,jsq,pow2,least-gpc"
_MOST_GPUS: Final = 1_000
_COLOURS: Final = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")


def run_compare(
    profile: str,
    sku: str,
    table: Path | None,
    gpus: str,
    goal: Goal,
    traffic: Traffic,
    ways: tuple[str, str],
    plot: Path | None,
    events: Path | None,
    output: Output,
) -> None:
    """Compare, write what was asked for, and print the table."""
    counts = _counts(gpus)
    planners = _ways(ways[0], "--planners", find_planner)
    dispatchers = _ways(ways[1], "--dispatchers", find_rule)
    if any(planner.startswith("exhaustive") for planner in planners) and max(counts) > MOST_GPUS:
        raise InputError.one(
            "exhaustive-gpus", "exhaustive tries everything", path="--gpus", allowed=f"1 to {MOST_GPUS}"
        )
    profiles = load_profiles(profile)
    stages = [
        partial(stage, one, Target(sku, table, count), goal, traffic) for one in profiles for count in counts
    ]
    progress = _Progress(len(stages))
    with libraries_quiet():
        contest = gather(stages, planners, dispatchers, progress.step)
    progress.finish()
    document = contest_document(contest)
    if plot is not None:
        document["plots"] = [str(path) for path in write_plots(plot, document)]
    if events is not None:
        document["events"] = {"path": str(events), "lines": _events(events, contest), "unit": "seconds"}
    names = [f"{row['model']}:{row['gpus']}:{row['planner']}:{row['dispatcher']}" for row in document["rows"]]
    if not output.machine(document, names):
        _show(output, document)


def _counts(text: str) -> list[int]:
    try:
        counts = [parse_whole(part) for part in text.split(",") if part.strip()]
    except ValueError:
        counts = []
    if not counts or not all(1 <= count <= _MOST_GPUS for count in counts) or len({*counts}) < len(counts):
        allowed = f"different numbers of 1 to {_MOST_GPUS}, such as 1,4,8"
        raise InputError.one("gpus", f"{text!r}", path="--gpus", allowed=allowed)
    return counts


def _ways(text: str, option: str, find: Callable[[str], object]) -> tuple[str, ...]:
    """Return the names of a list, each known and there once."""
    names = split_names(text)
    if not names or len({*names}) < len(names):
        raise InputError.one(
            "compare-names", f"{text!r}", path=option, allowed="different names, one at least"
        )
    for name in names:
        find(name)
    return names


def _events(path: Path, contest: Contest) -> int:
    """Write the queries of every case, each line with its case."""
    return write_events(
        path,
        (
            line
            for case in contest.cases
            for line in event_lines(
                case.study,
                case.plan.choice,
                case.plan.layouts,
                case.proof.rate_qps,
                {
                    "model": case.model,
                    "gpus": case.gpus,
                    "planner": case.planner,
                    "dispatcher": case.dispatcher,
                },
            )
        ),
    )


class _Progress:
    """A count on a terminal; nothing elsewhere."""

    def __init__(self, total: int) -> None:
        self.total, self.at, self.shown = total, 0, sys.stderr.isatty()

    def step(self) -> None:
        """Count one stage."""
        self.at += 1
        if self.shown:
            print(f"\r{self.at} of {self.total} models x GPUs", end="", file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Leave the line."""
        if self.shown:
            print(file=sys.stderr)


def _show(output: Output, document: dict[str, Any]) -> None:
    screen = output.screen
    screen.table(
        [
            Column("model"),
            Column("gpus", right=True),
            Column("planner"),
            Column("dispatcher"),
            Column("queries/s", right=True),
            Column("of bound", right=True),
            Column("x equal", right=True),
            Column("outcome"),
        ],
        [
            (
                row["model"],
                str(row["gpus"]),
                row["planner"],
                row["dispatcher"],
                number(row["rate_qps"]),
                percent(row["of_bound"]),
                number(row["against_baseline"], 2),
                Span(row["outcome"], {"win": "green", "loss": "red"}.get(row["outcome"], "dim")),
            )
            for row in document["rows"]
        ],
    )
    screen.line("")
    _show_summary(output, document)


def _show_summary(output: Output, document: dict[str, Any]) -> None:
    screen = output.screen
    titles = (
        "planner",
        "dispatcher",
        "wins",
        "losses",
        "draws",
        "zero",
        "geo mean x equal",
        "geo mean of bound",
    )
    screen.table(
        [Column(title, right=index > 1) for index, title in enumerate(titles)],
        [
            (
                one["planner"],
                one["dispatcher"],
                str(one["wins"]),
                str(one["losses"]),
                str(one["draws"]),
                str(one["zero"]),
                number(one["geometric_mean_against_baseline"], 2),
                percent(one["geometric_mean_of_bound"]),
            )
            for one in document["summary"]
        ],
    )


def write_plots(directory: Path, document: dict[str, Any]) -> list[Path]:
    """Write one SVG per number of GPUs: rates as shares of the bound, by model; return the files."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        written = []
        for gpus in sorted({row["gpus"] for row in document["rows"]}):
            rows = [row for row in document["rows"] if row["gpus"] == gpus]
            path = directory / f"of-bound-{gpus}-gpus.svg"
            path.write_text(bars(rows, f"Rate as a share of the upper bound, {gpus} GPUs"), encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise InputError.one("unwritable", f"{directory}: {error.strerror}", path="--plot") from error
    return written


def bars(rows: list[dict[str, Any]], title: str) -> str:
    """Return a grouped bar chart as SVG: one group per model, one bar per planner + dispatcher."""
    ways = list(dict.fromkeys(f"{row['planner']} + {row['dispatcher']}" for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))
    bar, gap, height, left, top = 8, 14, 220, 46, 40
    group = max(bar * len(ways) + gap, 6 * max(map(len, models), default=0) + gap)  # room for the names
    width, below = left + group * len(models) + 20, top + height + 30 + 16 * len(ways)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{below}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="{left}" y="20" font-size="14">{escape(title)}</text>'
    )
    out = [head]
    for tick in range(0, 101, 20):
        y = top + height * (1 - tick / 100)
        out.append(
            f'<line x1="{left}" x2="{width - 10}" y1="{y}" y2="{y}" stroke="#ddd"/>'
            f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{tick}%</text>'
        )
    for row in rows:
        x = left + models.index(row["model"]) * group
        i = ways.index(f"{row['planner']} + {row['dispatcher']}")
        tall = height * min(row["of_bound"], 1.0)
        out.append(
            f'<rect x="{x + i * bar}" y="{top + height - tall:.1f}" width="{bar - 1}" height="{tall:.1f}" '
            f'fill="{_COLOURS[i % len(_COLOURS)]}"><title>{escape(row["model"])}: {escape(ways[i])} '
            f"{row['rate_qps']} queries/s</title></rect>"
        )
    for i, model in enumerate(models):
        out.append(f'<text x="{left + i * group}" y="{top + height + 14}">{escape(model)}</text>')
    for i, way in enumerate(ways):
        y = top + height + 34 + 16 * i
        out.append(
            f'<rect x="{left}" y="{y - 9}" width="10" height="10" fill="{_COLOURS[i % len(_COLOURS)]}"/>'
            f'<text x="{left + 16}" y="{y}">{escape(way)}</text>'
        )
    return "\n".join([*out, "</svg>\n"])
