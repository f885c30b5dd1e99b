"""Write the tables and draw the pictures of docs/reference/transfer-figures.md.

    divvy bench transfers --json > transfers.json
    python benchmarks/transfer_pictures.py --figures transfers.json --out docs/images \
        --page docs/reference/transfer-figures.md

The healed transfer is run here and now, as root: the bytes on each rail come from the counters of the
interfaces, read all the while.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

from divvy.adapters.rails.fabric import read_fabric
from divvy.adapters.rails.lab import RailsLab
from divvy.cli import bench_transfers_crew as who
from divvy.cli.bench_transfers_crew import Crew, Move

MIB: Final = 1 << 20
OWN, OTHER, FAST, SLOW = "#2e7d32", "#90a4ae", "#1565c0", "#ef6c00"
HEAD: Final = (
    "| contender | measure | value | unit | least to most | target | met | n | note |",
    "|---|---|---|---|---|---|---|---|---|",
)
BARS: Final = (
    ("two rails, 4 + 1 Gbit", "rate", "GB/s, more is better", 0.625, "sum of the rails"),
    ("12 transfers, 4 hosts, 400 + 100 Mbit", "makespan over bound", "less is better", 1.0, "bound"),
    ("incast 3 to 1, 400 + 100 Mbit", "p99 over fair share", "less is better", 1.0, "fair share"),
)


def bars(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw Divvy beside the peers in three measures."""
    figure, axes = plt.subplots(len(BARS), 1, figsize=(8.4, 7.2), constrained_layout=True)
    for axis, (case, measure, text, line, name) in zip(axes, BARS, strict=True):
        mine = [r for r in rows if (r["case"], r["measure"]) == (case, measure) and r["value"] is not None]
        labels = [r["contender"].split(" (")[0] for r in mine]
        values = [r["value"] for r in mine]
        low = [max(0.0, r["value"] - r["interval"][0]) for r in mine]
        high = [max(0.0, r["interval"][1] - r["value"]) for r in mine]
        colours = [OWN if label.startswith("divvy") else OTHER for label in labels]
        axis.barh(labels, values, color=colours, xerr=[low, high], ecolor="#455a64", capsize=2)
        axis.axvline(line, color="#b71c1c", linestyle="--", linewidth=1, label=name)
        axis.invert_yaxis()
        axis.set_title(f"{case}: {measure} ({text})", fontsize=9, loc="left")
        axis.tick_params(labelsize=8)
        axis.legend(fontsize=7, frameon=False, loc="lower right")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def tables(report: dict[str, Any], page: Path) -> None:
    """Put the rows of a report into a page, between its marks: one table per case."""
    lines = [f"Measured on: {report['machine']}.", ""]
    case = ""
    for row in report["rows"]:
        if row["case"] != case:
            case = row["case"]
            lines += ["", f"### {case[0].upper()}{case[1:]}", "", *HEAD]
        met = {True: "yes", False: "**no**", None: ""}[row["met"]]
        cells = [row["contender"], row["measure"], number(row["value"]), row["unit"], span(row["interval"])]
        cells += [number(row["target"]) if row["target"] is not None else "", met, str(row["n"]), row["note"]]
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    put(page, "figures", "\n".join(lines).replace("\n\n\n", "\n\n"))


def split_table(result: dict[str, Any], page: Path) -> None:
    """Put what benchmarks/prefill_decode.py found into a page."""
    names = {
        "turns, ucx": "decode servers in turns, UCX as it comes",
        "pairs, ucx": "Divvy's pairs, UCX as it comes",
        "turns, divvy": "decode servers in turns, Divvy's rail",
        "pairs, divvy": "Divvy's pairs and rail",
    }
    found = result["time_to_first_token"]
    first = found["turns, ucx"]["median_ms"]
    lines = ["| method | median | least to most | against taking turns | n |", "|---|---|---|---|---|"]
    for key, name in names.items():
        row = found[key]
        spread = f"{row['least_ms']:.0f} to {row['most_ms']:.0f} ms"
        share = f"{row['median_ms'] / first:.2f}"
        lines.append(f"| {name} | {row['median_ms']:.0f} ms | {spread} | {share} | {row['n']} |")
    load = ", ".join(f"{value:.1f}" for value in result["load"])
    lines += [
        "",
        f"Of it the prefill takes {result['prefill_median_ms']:.0f} ms (median). Load average: {load}.",
    ]
    put(page, "vllm", "\n".join(lines))


def put(page: Path, name: str, body: str) -> None:
    """Put a text between the marks of a name."""
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(first)
    after = rest.partition(last)[2]
    page.write_text(f"{before}{first}\n{body}\n{last}{after}", encoding="utf-8")


def number(value: float | None) -> str:
    """Return a figure as the tables show it."""
    return "-" if value is None else f"{value:.4g}"


def span(interval: list[float] | None) -> str:
    """Return least and most."""
    return "" if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}"


def healed(path: Path) -> None:
    """Move 96 MiB over two rails, cut the fast one on the way, join it again, and draw what each carried."""
    samples: list[tuple[float, int, int]] = []
    events: list[tuple[float, str]] = []
    stop = threading.Event()
    contender = who.DIVVY_TCP
    with RailsLab.up(read_fabric("heal", 2, 2, "400mbit,100mbit")) as lab:

        def watch() -> None:
            while not stop.is_set():
                found = lab.counters(0)
                samples.append((time.monotonic(), found["e0"][0], found["e1"][0]))
                stop.wait(0.02)

        with Crew(lab.fabric, contender, 96 * MIB) as crew:
            crew.run([Move(0, 1, 16 * MIB)])
            watching = threading.Thread(target=watch)
            watching.start()
            move = Move(0, 1, 96 * MIB)
            begun = crew.begin([move])
            for after, what in ((0.5, "cut"), (1.5, "joined again")):
                time.sleep(max(0.0, begun + after - time.monotonic()))
                (lab.cut if what == "cut" else lab.restore)(1, 0)
                events.append((time.monotonic() - begun, what))
            moved = crew.finish([move])[0]
            time.sleep(0.15)
            stop.set()
            watching.join()
            whole = crew.whole(move)
    draw(
        samples,
        events,
        begun,
        moved.end - begun,
        path,
        f"{contender.label}; bytes {'as sent' if whole else 'WRONG'}",
    )


def draw(
    samples: list[tuple[float, int, int]],
    events: list[tuple[float, str]],
    begun: float,
    end: float,
    path: Path,
    note: str,
) -> None:
    """Draw the rates of the rails over time."""
    step = 4
    pairs = list(zip(samples, samples[step:], strict=False))
    times = [(a[0] + b[0]) / 2 - begun for a, b in pairs]
    figure, axis = plt.subplots(figsize=(8.4, 3.4), constrained_layout=True)
    for rail, colour, name in ((1, FAST, "rail0, 400 Mbit"), (2, SLOW, "rail1, 100 Mbit")):
        rates = [(b[rail] - a[rail]) * 8 / (b[0] - a[0]) / 1e6 for a, b in pairs]
        axis.plot(times, rates, color=colour, label=name, linewidth=1.4)
    for at, what in events:
        axis.axvline(at, color="#b71c1c", linestyle="--", linewidth=1)
        axis.text(at + 0.02, 430, f"rail0 {what}", fontsize=8, color="#b71c1c")
    axis.axvline(end, color="#263238", linewidth=1)
    axis.text(end + 0.02, 430, "done", fontsize=8)
    axis.set(xlabel="seconds", ylabel="Mbit/s on the interface", ylim=(0, 470))
    axis.set_title(f"96 MiB, the fast rail cut and joined again: {note}", fontsize=9, loc="left")
    axis.legend(fontsize=8, frameon=False, loc="center right")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Draw both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figures", type=Path, help="what divvy bench transfers --json printed")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path, help="put the rows of --figures into this page")
    parser.add_argument("--split", type=Path, help="put what prefill_decode.py found into --page")
    options = parser.parse_args()
    if options.split and options.page:
        split_table(json.loads(options.split.read_text()), options.page)
    plt.rcParams["svg.hashsalt"] = "divvy"
    if options.figures:
        report = json.loads(options.figures.read_text())
        bars(report["rows"], options.out / "transfers-bench.svg")
        if options.page:
            tables(report, options.page)
    healed(options.out / "transfers-healed.svg")


if __name__ == "__main__":
    main()
