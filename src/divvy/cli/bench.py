"""divvy bench: measure what the documentation claims, beside what others publish."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Final

import typer

from divvy.cli.options import AsJson, NoTruncate, Quiet
from divvy.cli.render import NONE, Cell, Column, Output, Span
from divvy.errors import InputError, NotFoundError

SCHEMA: Final = "divvy.bench/1"

#: Benchmarks by name: the module with ``rows(*, quick, announce)``, and what it is about. A new one is a
#: file and a line here. A benchmark that can be run in parts takes ``parts`` too and names them in PARTS; one
#: that can go on where it stopped takes ``cache``. What else ``rows`` takes of ``minutes``, ``seeds`` and
#: ``days`` may be given on the command line.
BENCHMARKS: Final = {
    "core": ("divvy.cli.bench_core", "replays, the time of a pass, the API, the live system"),
    "budgets": (
        "divvy.cli.bench_budgets",
        "the budget policy beside all baselines, frontiers, sensitivities",
    ),
    "gaming": ("divvy.cli.bench_gaming", "every trick under every policy, beside the honest twin"),
    "audit": ("divvy.cli.bench_audit", "time and memory of an audit of a million rows of Slurm"),
    "slurm": ("divvy.cli.bench_slurm", "cost on a Slurm, and simulated waits beside those on one"),
    "soak": ("divvy.cli.bench_soak", "a real divvy up under random faults, and its books afterwards"),
    "slices": ("divvy.cli.bench_slices", "layouts, plans and query routing of sliced GPUs"),
    "serving": ("divvy.cli.bench_serving", "live servers behind Divvy, HAProxy, nginx and Ray Serve"),
    "routes": ("divvy.cli.bench_routes", "topologies, routes and transfers"),
    "transfers": ("divvy.cli.bench_transfers", "live transfers over unequal rails, beside NIXL and Mooncake"),
    "scenario": ("divvy.cli.bench_scenario", "one plan of a whole fleet beside three tools apart"),
    "page": ("divvy.cli.bench_page", "the page: first paint, updates, and what it costs the scheduler"),
    "claims": ("divvy.cli.bench_claims", "every published claim beside what was measured here"),
}

_COLUMNS: Final = (
    Column("CASE"),
    Column("CONTENDER", drop=2),
    Column("MEASURE"),
    Column("VALUE", right=True),
    Column("UNIT"),
    Column("TARGET", right=True),
    Column("MET"),
    Column("N", right=True, drop=3),
    Column("NOTE", shrink=12, drop=1),
)

Announce = Callable[[str], None]


def _complete_name(incomplete: str) -> list[str]:
    return [name for name in BENCHMARKS if name.startswith(incomplete)]


def verb(
    name: str = typer.Argument(
        help=f"One of: {', '.join(BENCHMARKS)}.", metavar="NAME", autocompletion=_complete_name
    ),
    quick: bool = typer.Option(False, "--quick", help="A smaller run of at most a minute, the same rows."),
    part: list[str] = typer.Option(
        [], "--part", help="Only this part (repeat for more), where it has parts."
    ),
    cache: Path | None = typer.Option(None, "--cache", help="Keep finished replays in this directory."),
    minutes: float | None = typer.Option(None, "--minutes", min=0, help="Begin nothing new after this long."),
    seeds: int | None = typer.Option(None, "--seeds", min=1, max=100, help="Seeds, where they are drawn."),
    days: str = typer.Option("", "--days", help="Only these days of a trace, such as 20..41."),
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Measure a part of Divvy on this machine: one row per figure, missed targets included.

    The first line tells the machine and how busy it was: figures of a busy machine are worse than its best.
    """
    limits = {"cache": cache, "minutes": minutes, "seeds": seeds, "days": _days(days)}
    found = measure(name, quick=quick, parts=part, limits={k: v for k, v in limits.items() if v is not None})
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(found, (f"{row['case']}: {row['measure']}" for row in found["rows"])):
        _print(output, found)


def _days(text: str) -> tuple[float, float] | None:
    """Return the first day and the end of a part of a trace; None for an empty text.

    Raises:
        InputError: If it is no part.
    """
    if not text:
        return None
    first, dots, last = text.partition("..")
    try:
        start, end = float(first), float(last)
    except ValueError:
        start = end = math.nan
    if not (dots and 0 <= start < end < math.inf):
        raise InputError.one(
            "bench-days", f"{text!r} is no part", path="--days", allowed="FROM..TO", fix='such as "20..41"'
        )
    return start, end


def measure(
    name: str, *, quick: bool = False, parts: Sequence[str] = (), limits: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Run a benchmark and return its report.

    Args:
        name: The benchmark.
        quick: Whether to stay within a minute.
        parts: Only these parts.
        limits: ``cache``, ``minutes``, ``seeds``, ``days`` where given, for benchmarks that take them.

    Raises:
        NotFoundError: If there is no such benchmark or part; the valid names are listed.
        InputError: If a limit is given to a benchmark that takes none.
    """
    if name not in BENCHMARKS:
        raise NotFoundError.one(
            "bench-unknown",
            f"no benchmark {name!r}",
            path="NAME",
            allowed="; ".join(f"{known}: {about}" for known, (_, about) in BENCHMARKS.items()),
            fix="choose one of these",
        )
    module = import_module(BENCHMARKS[name][0])
    known = getattr(module, "PARTS", {})
    if unknown := [part for part in parts if part not in known]:
        raise NotFoundError.one(
            "bench-part-unknown",
            f"no part {unknown[0]!r} of {name}",
            path="--part",
            allowed=", ".join(known) or f"{name} has no parts",
            fix="choose one of these, or leave --part out",
        )
    if refused := [limit for limit in limits or {} if limit not in signature(module.rows).parameters]:
        raise InputError.one(
            "bench-limits",
            f"{name} takes no {', '.join(f'--{limit}' for limit in refused)}",
            path=f"--{refused[0]}",
            fix="leave it out",
        )
    choice: dict[str, Any] = {"parts": tuple(parts)} if known else {}
    choice |= limits or {}
    machine = describe_machine()
    with _announcing() as announce:
        rows = list(module.rows(quick=quick, announce=announce, **choice))
    return {"schema": SCHEMA, "name": name, "machine": machine, "rows": rows}


def describe_machine() -> str:
    """Return the processor, the system and how busy it is right now."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{_processor()}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()},"
        f" Python {platform.python_version()}, load average {load} at the start"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


@contextmanager
def _announcing() -> Iterator[Announce]:
    """Show on a terminal what is being measured; yield the function to tell."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal pays for it

    console = Console(stderr=True)
    with console.status("starting") as status:
        yield status.update


def _print(output: Output, report: dict[str, Any]) -> None:
    screen = output.screen
    screen.line(Span(f"{report['name']}: {report['machine']}", "dim"))
    screen.table(_COLUMNS, [_cells(row) for row in report["rows"]])
    missed = sum(row["met"] is False for row in report["rows"])
    aimed = sum(row["met"] is not None for row in report["rows"])
    screen.line(f"{aimed - missed} of {aimed} targets met")


def _cells(row: dict[str, Any]) -> tuple[Cell, ...]:
    known: dict[bool | None, Cell] = {True: Span("yes", "green"), False: Span("no", "red"), None: NONE}
    return (
        row["case"],
        row["contender"],
        row["measure"],
        _number(row["value"]),
        row["unit"],
        _number(row["target"]),
        known[row["met"]],
        str(row["n"]),
        row["note"],
    )


def _number(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
