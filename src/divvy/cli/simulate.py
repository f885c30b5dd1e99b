"""divvy simulate: replay a trace under one or more policies, side by side."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import typer

from divvy.cli.compiled import compiled
from divvy.cli.render import Output
from divvy.cli.simulate_files import Files, make_directory, read_part
from divvy.cli.simulate_input import Choice, build_scenarios, read_duration
from divvy.cli.simulate_print import print_all
from divvy.cli.simulate_report import PICTURES, write_report
from divvy.cli.statement_file import check_ending
from divvy.errors import InputError
from divvy.sim.compare import Comparison, compare
from divvy.sim.foresight.watch import Watch
from divvy.sim.measures import window_of
from divvy.sim.perfetto import MOST_EVENTS
from divvy.sim.replay import Replay
from divvy.sim.scenario import Scenario
from divvy.sim.traces import FORMATS
from divvy.sim.traces.trace import OnError
from divvy.sim.whatif import SCHEMA as WHATIF
from divvy.sim.whatif import Arm, Side, side_of, whatif


def verb(
    trace: str = typer.Argument(help="Trace file, or a built-in workload: synthetic, reclaim."),
    form: str = typer.Option("auto", "--format", help=f"Format of the file: auto, {', '.join(FORMATS)}."),
    gpus: int | None = typer.Option(None, "--gpus", help="Devices; one pooled node without --nodes."),
    nodes: str | None = typer.Option(None, "--nodes", help="KxM: K nodes of M devices, with placement."),
    accounts: list[str] = typer.Option(
        ["equal"], "--accounts", help="Budget file (TOML), equal or by-demand; several are compared."
    ),
    policy: str = typer.Option("budget,fairshare,fifo", "--policy", help="Policies, comma-separated."),
    contract: str = typer.Option("honest", "--contract", help="honest, all-cap, zero or a file (TOML)."),
    overlay: str = typer.Option("none", "--overlay", help="gangs: extra gangs of 64 to 128 devices."),
    checkpoint: str = typer.Option("30m", "--checkpoint", help="Work between checkpoints; 0 for none."),
    warmup: str = typer.Option("", "--warmup", help="What counts for nothing at the beginning. [7d]"),
    seeds: int = typer.Option(1, "--seeds", min=1, max=1000, help="Number of seeds, from 0."),
    events: Path | None = typer.Option(None, "--events", help="Write what happened, as JSON lines."),
    statement: Path | None = typer.Option(
        None, "--statement", help="Write what was owed and delivered: .csv, .json or .html."
    ),
    foretell: int = typer.Option(0, "--start-intervals", min=0, max=1000, help="Foretell starts so often."),
    report_to: Path | None = typer.Option(None, "--report", help="Write a report with pictures into here."),
    perfetto: Path | None = typer.Option(None, "--perfetto", help="Write a trace for Perfetto (.json.gz)."),
    part: str = typer.Option("", "--perfetto-window", help="Part of it, such as 7d..8d. [what counts]"),
    most: int = typer.Option(MOST_EVENTS, "--perfetto-events", min=1, help="Most slices in it."),
    on_error: OnError = typer.Option(OnError.FAIL, "--on-error", help="What a malformed row does."),
    as_json: bool = typer.Option(False, "--json", help="Print the report as JSON (divvy.simulate/1)."),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Print the names of the policies only."),
    no_truncate: bool = typer.Option(False, "--no-truncate", help="Ignore the terminal's width."),
) -> None:
    """Replay a trace under one or more policies, seed by seed on the same workload.

    The scheduler is the one that `divvy up` runs; only clock and engine are simulated. Several budgets
    answer a what-if question: the same jobs under each, paired job by job.
    """
    if statement is not None:
        check_ending(statement, "--statement")
    if report_to is not None:
        make_directory(report_to / PICTURES, "--report")
    files = Files(events, statement, perfetto, report_to, read_part(part), most)
    choice = Choice(trace, form, gpus, nodes, contract, overlay, checkpoint, on_error)
    names = _policies(policy)
    count = read_duration("--warmup", warmup or ("0" if trace == "reclaim" else "7d"))
    watch = Watch(foretell) if foretell else None
    report = _compare(choice, accounts, names, tuple(range(seeds)), count, files, watch)
    if report_to is not None:
        write_report(report_to, report, files, shlex.join(["divvy", *sys.argv[1:]]))
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(report, names):
        print_all(output, report)


def _policies(text: str) -> tuple[str, ...]:
    """Return the names of policies, each once.

    Raises:
        InputError: If there is none.
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise InputError.one("policy-none", "no policy is named", path="--policy", fix="--policy budget")
    return names


def _compare(
    choice: Choice,
    budgets: list[str],
    names: tuple[str, ...],
    seeds: tuple[int, ...],
    warmup: int,
    files: Files,
    watch: Watch | None,
) -> dict[str, Any]:
    """Replay everything and return the report: of one budget, or of the question what another would do."""
    scenarios = build_scenarios(choice, budgets)
    labels = _labels(budgets)
    only = len(scenarios) * len(names) * len(seeds) == 1
    reports: list[dict[str, Any]] = []
    arms: list[Arm] = []
    with _progress(len(scenarios) * len(names) * len(seeds)) as told:
        for scenario, label in zip(scenarios, labels, strict=True):
            sides: dict[tuple[str, int], Side] = {}
            comparison = Comparison(scenario, names, seeds, warmup, choice.trace == "reclaim", watch)

            def keep(
                run: Replay,
                scenario: Scenario = scenario,
                label: str = label,
                sides: dict[tuple[str, int], Side] = sides,
            ) -> None:
                window = window_of(scenario.trace.last_submission, run.end, warmup)
                files.save(run, window, label if len(labels) > 1 else "", only=only)
                sides[run.policy, run.seed] = side_of(run, window)

            begun = None if told is None else partial(told, label)
            reports.append(compare(comparison, time.perf_counter, begun, keep))
            arms.append(Arm(label, scenario, sides))
    if len(arms) == 1:
        schema = reports[0].pop("schema")
        return {"schema": schema, "name": choice.trace, "compiled": compiled(), **reports[0]}
    return {
        "schema": WHATIF,
        "name": choice.trace,
        "compiled": compiled(),
        "reports": [{"accounts": label, **report} for label, report in zip(labels, reports, strict=True)],
        "whatif": whatif(arms, names, seeds),
    }


def _labels(budgets: list[str]) -> list[str]:
    """Return what budgets are called: the file's name, or its path where two files have the same."""
    short = [Path(name).name for name in budgets]
    return short if len(set(short)) == len(short) else [name.replace("/", "-") for name in budgets]


@contextmanager
def _progress(replays: int) -> Iterator[Any]:
    """Show a bar over all replays on a terminal; yield the function to tell, None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal pays for it
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - same

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    done: dict[tuple[str, str, int], float] = {}
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=float(replays))

        def told(label: str, policy: str, seed: int, over: int, total: int) -> None:
            done[label, policy, seed] = over / max(total, 1)
            bar.update(task, completed=sum(done.values()), description=f"{label}, {policy}, seed {seed}")

        yield told
