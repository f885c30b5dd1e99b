"""Answers of `divvy route` for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from divvy.cli.render import Cell, Column, Output, Span
from divvy.cli.wide import wide_table

_TIMES = {2: "twice", 3: "three times", 4: "four times"}


def seconds(value: float | None) -> str:
    """Return a time with a unit that keeps it readable."""
    if value is None:
        return "-"
    for limit, scale, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if value < limit:
            return f"{value * scale:.3g} {unit}"
    return f"{value:.4g} s"


def size(count: float) -> str:
    """Return bytes with a decimal unit."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.4g} {unit}"
    return f"{count:.0f} B"


def show_explanation(out: Output, document: dict[str, Any]) -> None:
    """Write how one transfer goes."""
    write = out.screen.line
    label = f" ({document['label']})" if document["label"] else ""
    write(Span(f"{size(document['bytes'])} from {document['from']} to {document['to']}{label}", "bold"))
    low, high = document["expected_s"]
    write(
        Span(seconds(document["predicted_s"]), "green"),
        f" at {document['gb_per_s']:.4g} GB/s; real machines take {seconds(low)} to {seconds(high)}; ",
        f"limited by {document['bottleneck']}; {document['of_bound']:.3f} of the bound",
    )
    if document["both_ways_s"] > 1.05 * document["predicted_s"]:
        write(f"{seconds(document['both_ways_s'])} while as many bytes go the other way")
    for route in document["routes"]:
        write()
        packed = ", pieces gathered first" if route["coalesced"] else ""
        write(Span(f"{route['share']:6.1%}  {route['kind']}", "bold"), packed)
        write("        ", Span(_path(route["edges"]), "dim"))
    write()
    rows: list[list[Cell]] = [
        [
            Span(c["kind"], "green" if c["chosen"] else ""),
            ", ".join(c["via"]) or "-",
            f"{c['gb_per_s']:.4g}",
            seconds(c["predicted_s"]),
            c["bottleneck"],
            "chosen" if c["chosen"] else "",
        ]
        for c in document["candidates"]
    ]
    columns = [Column("candidate"), Column("via"), Column("GB/s", right=True), Column("alone", right=True)]
    out.screen.table([*columns, Column("limited by", drop=1), Column("")], rows)
    for row in document["rejected"]:
        write(Span(f"not {row['kind']}: ", "dim"), row["why"])


def _path(edges: list[dict[str, Any]]) -> str:
    """Return the links of a route on one line."""
    return " · ".join(
        f"{e['a']}-{e['b']}" + (f" ({_TIMES.get(e['times'], str(e['times']))})" if e["times"] > 1 else "")
        for e in edges
    )


def show_plan(out: Output, document: dict[str, Any]) -> None:
    """Write a plan as a table."""
    rows: list[list[Cell]] = []
    for row in document["transfers"]:
        kinds: dict[str, float] = {}
        for route in row["routes"]:
            kinds[route["kind"]] = kinds.get(route["kind"], 0.0) + route["share"]
        words = ", ".join(
            f"{kind} {share:.0%}" for kind, share in sorted(kinds.items(), key=lambda kv: -kv[1])
        )
        late = Span(seconds(row["late_s"]), "red") if row["late_s"] else Span("-", "dim")
        rows.append(
            [
                row["id"],
                row["from"],
                row["to"],
                size(row["bytes"]),
                words,
                seconds(row["finish"]),
                late,
                row["bottleneck"],
            ]
        )
    columns = [
        Column("id"),
        Column("from"),
        Column("to"),
        Column("size", right=True),
        Column("routes", shrink=24),
    ]
    out.screen.table(
        [
            *columns,
            Column("done at", right=True),
            Column("late", right=True, drop=2),
            Column("bottleneck", drop=1),
        ],
        rows,
    )
    ratio = document["of_bound"]
    out.screen.line(
        Span(f"makespan {seconds(document['makespan_s'])}", "bold"),
        f"; bound {seconds(document['bound_s'])}" + (f"; {ratio:.4f} of it" if ratio else ""),
    )
    for row in document["unplanned"]:
        out.screen.line(Span(f"{row['id']}: ", "yellow"), row["reason"])


def show_comparison(out: Output, document: dict[str, Any], names: list[str], charts: Sequence[Path]) -> None:
    """Write makespan over bound, topologies down and planners across, then the geometric means."""
    table: dict[str, dict[str, float]] = {}
    for row in document["results"]:
        table.setdefault(row["topology"], {})[row["planner"]] = row["of_bound"]
    rows: list[list[Cell]] = [
        [name, *(_ratio(values.get(planner)) for planner in names)] for name, values in table.items()
    ]
    rows.append(
        [Span("geometric mean", "bold"), *(_ratio(document["geomean"].get(planner)) for planner in names)]
    )
    out.screen.line(Span("makespan over bound", "bold"), Span(f"  transfers {document['transfers']}", "dim"))
    wide_table(out.screen, [Column("topology"), *(Column(name, right=True) for name in names)], rows)
    for row in document["unplanned"]:
        who = " ".join(word for word in (row["topology"], row["planner"], row["transfer"]) if word)
        out.screen.line(Span(f"{who}: ", "yellow"), Span(row["reason"], "dim"))
    for file in charts:
        out.screen.line(f"chart: {file}")


def _ratio(value: float | None) -> Span:
    """Return a ratio in a colour that says how good it is."""
    if value is None:
        return Span("-", "dim")
    return Span(
        f"{value:.2f}", "green" if value <= 1.1 else "" if value <= 1.5 else "yellow" if value <= 3 else "red"
    )
