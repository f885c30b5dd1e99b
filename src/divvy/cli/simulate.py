"""divvy simulate: replay a trace under one or more policies, side by side."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import typer

from divvy.cli.render import Column, Output, Span, number, percent, seconds
from divvy.cli.simulate_statement import write_statement
from divvy.cli.statement_file import check_ending
from divvy.errors import Fault, InputError
from divvy.fleet.budget import Budget, Policy, parse_budget
from divvy.sim.accounts import Claims, claim, equal_shares, shares_by_demand
from divvy.sim.compare import Comparison, compare
from divvy.sim.contract_file import parse_contracts
from divvy.sim.contracts import ContractRule, Contracts, Declare
from divvy.sim.engine import Pace
from divvy.sim.events import event_lines, file_name
from divvy.sim.measures import window_of
from divvy.sim.overlay import Overlay
from divvy.sim.replay import Replay
from divvy.sim.scenario import Scenario, build_fleet
from divvy.sim.synthetic import RECLAIM_WINDOW, reclaim_trace, synthetic_trace
from divvy.sim.traces import FORMATS, read_trace
from divvy.sim.traces.trace import OnError, Trace
from divvy.units import parse_duration

BUILT_IN: Final = ("synthetic", "reclaim")
_BUILT_IN_GPUS: Final = 64
_BUILT_IN_SHAPE: Final = "8x8"
_OVERLAYS: Final = ("none", "gangs")


def verb(
    trace: str = typer.Argument(help="Trace file, or a built-in workload: synthetic, reclaim."),
    form: str = typer.Option("auto", "--format", help=f"Format of the file: auto, {', '.join(FORMATS)}."),
    gpus: int | None = typer.Option(None, "--gpus", help="Devices; one pooled node without --nodes."),
    nodes: str | None = typer.Option(None, "--nodes", help="KxM: K nodes of M devices, with placement."),
    accounts: str = typer.Option("equal", "--accounts", help="Budget file (TOML), equal or by-demand."),
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
    on_error: OnError = typer.Option(OnError.FAIL, "--on-error", help="What a malformed row does."),
    as_json: bool = typer.Option(False, "--json", help="Print the report as JSON (divvy.simulate/1)."),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Print the names of the policies only."),
    no_truncate: bool = typer.Option(False, "--no-truncate", help="Ignore the terminal's width."),
) -> None:
    """Replay a trace under one or more policies, seed by seed on the same workload.

    The scheduler is the one that `divvy up` runs; only clock and engine are simulated.
    """
    if statement is not None:
        check_ending(statement, "--statement")
    scenario = _scenario(trace, form, gpus, nodes, accounts, contract, overlay, checkpoint, on_error)
    names = tuple(dict.fromkeys(name.strip() for name in policy.split(",") if name.strip()))
    if not names:
        raise InputError.one("policy-none", "no policy is named", path="--policy", fix="--policy budget")
    comparison = Comparison(
        scenario,
        names,
        tuple(range(seeds)),
        _duration("--warmup", warmup or ("0" if trace == "reclaim" else "7d")),
        reclaim=trace == "reclaim",
    )
    only = len(names) * seeds == 1

    def write(replay: Replay) -> None:
        _save(replay, comparison, events, statement, only=only)

    with _progress(len(names) * seeds) as told:
        report = compare(comparison, time.perf_counter, told, write)
    report = {"schema": report.pop("schema"), "name": trace, **report}
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(report, names):
        _print(output, report)


def _save(
    replay: Replay, comparison: Comparison, events: Path | None, statement: Path | None, *, only: bool
) -> None:
    """Write the files that were asked for of one replay."""
    if events is not None:
        _write(Path(file_name(str(events), replay.policy, replay.seed, only=only)), replay)
    if statement is not None:
        last = comparison.scenario.trace.last_submission
        write_statement(statement, replay, window_of(last, replay.end, comparison.warmup), only=only)


def _scenario(
    trace: str,
    form: str,
    gpus: int | None,
    nodes: str | None,
    accounts: str,
    contract: str,
    overlay: str,
    checkpoint: str,
    on_error: OnError,
) -> Scenario:
    """Return the scenario that the options describe.

    Raises:
        InputError: If an option or a file cannot be used.
    """
    if trace in BUILT_IN and gpus is None and nodes is None:
        nodes = _BUILT_IN_SHAPE
    fleet = build_fleet(gpus, nodes)
    size = sum(node.gpus for node in fleet)
    if trace == "synthetic":
        recorded = synthetic_trace(size)
    elif trace == "reclaim":
        recorded = reclaim_trace(size)
    else:
        recorded = read_trace(_read(trace, "trace"), form, trace, on_error)
    if overlay not in _OVERLAYS:
        raise InputError.one(
            "overlay-unknown", f"no overlay {overlay!r}", path="--overlay", allowed=", ".join(_OVERLAYS)
        )
    budget, claims = _accounts(accounts, recorded)
    return Scenario(
        recorded,
        fleet,
        budget,
        claims,
        _contracts(contract),
        Pace(_duration("--checkpoint", checkpoint)),
        Overlay() if overlay == "gangs" else None,
        RECLAIM_WINDOW if trace == "reclaim" else None,
    )


def _accounts(choice: str, trace: Trace) -> tuple[Budget, Claims]:
    if choice == "equal":
        return equal_shares(trace, Policy())
    if choice == "by-demand":
        return shares_by_demand(trace, Policy())
    return claim(trace, parse_budget(_text(choice, "budget"), Path(choice).name))


def _contracts(choice: str) -> Contracts:
    if choice in tuple(Declare):
        return Contracts(ContractRule(declare=Declare(choice)))
    return parse_contracts(_text(choice, "contract"), Path(choice).name)


def _duration(option: str, text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InputError.one("duration", str(error), path=option) from error


def _read(name: str, what: str) -> bytes:
    """Return the bytes of a file.

    Raises:
        InputError: If it cannot be read; the built-in names are listed too.
    """
    try:
        return Path(name).read_bytes()
    except OSError as error:
        allowed = f"a file, or one of {', '.join(BUILT_IN)}" if what == "trace" else "a readable file"
        raise InputError(
            f"the {what} cannot be read",
            [Fault(f"{what}-file", name, error.strerror or str(error), allowed, "check the path")],
        ) from error


def _text(name: str, what: str) -> str:
    try:
        return _read(name, what).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError.one(
            f"{what}-encoding", f"not UTF-8 at byte {error.start}", path=name, allowed="UTF-8"
        ) from error


def _write(path: Path, replay: Replay) -> None:
    """Write the events of a replay.

    Raises:
        InputError: If the file cannot be written.
    """
    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in event_lines(replay))
    except OSError as error:
        raise InputError.one(
            "events-file",
            error.strerror or str(error),
            path=str(path),
            fix="choose another path for --events",
        ) from error


@contextmanager
def _progress(replays: int) -> Iterator[Any]:
    """Show a bar over all replays on a terminal; yield the function to tell, None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal pays for it
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - same

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    done: dict[tuple[str, int], float] = {}
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=float(replays))

        def told(policy: str, seed: int, over: int, total: int) -> None:
            done[policy, seed] = over / max(total, 1)
            bar.update(task, completed=sum(done.values()), description=f"{policy}, seed {seed}")

        yield told


_COLUMNS: Final = (
    Column("POLICY"),
    Column("PERIOD", right=True),
    Column("DAY", right=True, drop=4),
    Column("HOUR", right=True),
    Column("WORST", right=True),
    Column("AT 95%", right=True, drop=5),
    Column("OCCUPANCY", right=True),
    Column("USEFUL", right=True),
    Column("WAIT P50", right=True),
    Column("P90", right=True),
    Column("DEBUG P90", right=True, drop=3),
    Column("LARGE P90", right=True, drop=2),
    Column("PREEMPTED", right=True),
    Column("LOST", right=True),
    Column("SECONDS", right=True, drop=1),
)


def _print(output: Output, report: dict[str, Any]) -> None:
    """Print the report for people."""
    trace, fleet, screen = report["trace"], report["fleet"], output.screen
    screen.line(
        f"{trace['jobs']} jobs over {trace['days']:.1f} days on {fleet['gpus']} GPUs in {fleet['nodes']} "
        f"node(s), {trace['demand_over_supply']:.1f}x demand; contracts {report['contract']}, "
        f"{len(report['seeds'])} seed(s)"
    )
    for text in _warnings(report):
        screen.line(Span(text, "yellow"))
    for fault in trace["faults"]:
        screen.line(f"  {fault}")
    screen.table(_COLUMNS, [_row(entry) for entry in report["policies"]])
    screen.line(
        Span(
            "PERIOD, DAY, HOUR: delivered over owed, capped so. OCCUPANCY, USEFUL: while contended. "
            "More with --json.",
            "dim",
        )
    )
    for entry in report["policies"]:
        if "reclaim" in entry:
            found = entry["reclaim"]
            got, least = (percent(found[key], 1) for key in ("delivered_over_entitlement", "others_minimum"))
            screen.line(
                f"{entry['policy']}: the idle account got {got} of its week; no other held less than {least} "
                "of its share in any hour"
            )


def _warnings(report: dict[str, Any]) -> Iterator[str]:
    """Yield what a reader must know before believing the figures."""
    trace = report["trace"]
    yield from (f"note: {note}" for note in trace["notes"])
    if trace["declared_above_cap"]:
        yield f"{trace['declared_above_cap']} jobs declare more than the cap on minimum runtimes; it was cut"
    if report["unclaimed"]:
        listed = ", ".join(f"{name} ({count} jobs)" for name, count in report["unclaimed"].items())
        yield f"no account claims: {listed}; they were run unfunded"
    if report["overlay"] != "none" and not report["policies"][0]["wait_seconds"]["overlay"]["n"]:
        yield "no gang of the overlay was submitted in the window; the fleet or the trace is too small for it"
    for entry in report["policies"]:
        name, left = entry["policy"], entry["never_started"]
        if left and "reclaim" not in entry:
            yield f"{name}: {left:g} jobs never started; too large, or of a model that the fleet lacks?"
        if entry["refused"]:
            yield f"{name}: the state refused {len(entry['refused'])} events: {entry['refused'][0]}"
    if trace["skipped"]:
        yield f"{trace['skipped']} malformed rows were left out:"


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    owed, waits = entry["delivered_over_owed"], entry["wait_seconds"]
    return (
        entry["policy"],
        number(owed["period"], 3),
        number(owed["day"], 3),
        number(owed["hour"], 3),
        number(entry["worst_account"]["period"], 3),
        "{}/{}".format(*entry["accounts_at_95"]),
        number(entry["occupancy_while_contended"], 3),
        number(entry["useful_occupancy_while_contended"], 3),
        seconds(waits["all"]["p50"]),
        seconds(waits["all"]["p90"]),
        seconds(waits["debug"]["p90"]),
        seconds(waits["ge_32gpu"]["p90"]),
        number(entry["preemptions"], 0),
        percent(entry["lost_fraction"], 2),
        number(entry["wall_seconds"], 1),
    )
