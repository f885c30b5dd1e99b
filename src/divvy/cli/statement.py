"""divvy statement: what every account was owed and what it was delivered."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from divvy.cli.moment import TIME_HELP, moment
from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, complete_any_account, connect
from divvy.cli.render import NONE, Column, Output, Span, age, number, path, percent, seconds, stamp
from divvy.cli.statement_file import ENDINGS, check_ending, render, write
from divvy.errors import InputError

_COLUMNS: Final = (
    Column("Account"),
    Column("Share", right=True, drop=6),
    Column("Capacity", right=True, drop=3),
    Column("Demand", right=True, drop=4),
    Column("Owed", right=True),
    Column("Delivered", right=True),
    Column("Del./owed", right=True),
    Column("By hour", right=True, drop=8),
    Column("Carried", right=True, drop=7),
    Column("Protected", right=True, drop=4),
    Column("Unallocated", right=True, drop=5),
    Column("Lost", right=True, drop=7),
    Column("Adjusted", right=True, drop=1),
    Column("Declared used", right=True, drop=2),
)
_HOURS: Final = (
    Column("Account"),
    Column("Hour"),
    Column("Owed", right=True),
    Column("Delivered", right=True),
    Column("Carried", right=True, drop=8),
    Column("Unallocated", right=True, drop=7),
    Column("Protected", right=True, drop=4),
    Column("Lost", right=True, drop=5),
    Column("Adjusted", right=True, drop=3),
    Column("Demand", right=True, drop=6),
    Column("Capacity", right=True, drop=2),
    Column("Ledger", drop=1),
)
_LEDGER: Final = (
    Column("Entry", right=True),
    Column("Job"),
    Column("Run", right=True),
    Column("Account"),
    Column("From"),
    Column("To"),
    Column("Devices", right=True),
    Column("Charge", right=True),
    Column("Protected", right=True, drop=1),
    Column("Lost", right=True, drop=2),
)


def verb(
    account: Annotated[
        str,
        typer.Option("--account", "-A", help="Only this subtree.", autocompletion=complete_any_account),
    ] = "",
    since: Annotated[str, typer.Option("--from", metavar="WHEN", help=f"Start: {TIME_HELP}.")] = "7d",
    until: Annotated[str, typer.Option("--to", metavar="WHEN", help="End; now by default.")] = "",
    hourly: Annotated[
        bool | None,
        typer.Option("--hourly/--no-hourly", help="Every hour too; by default in all formats but the table."),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="The ledger entries behind every figure too.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="A line per account and hour, as CSV.")] = False,
    as_html: Annotated[bool, typer.Option("--html", help="A page to read and print, as one file.")] = False,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it here: .csv, .json or .html.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """Show what every account was owed and what it was delivered, in GPU-hours.

    Owed is min(share x capacity, demand), hour by hour; the figures of an account are the sums of those of
    its children. With -q: the accounts. Example: divvy statement --from 30d --html > statement.html
    """
    ending = _format(out, as_csv=as_csv, as_html=as_html, as_json=as_json)
    now = time.time()
    query: dict[str, Any] = {"account": account, "from_": moment(since, "--from", now)}
    query["to"] = moment(until, "--to", now) if until else None
    if hourly if hourly is not None else bool(ending):
        query["hours"] = True
    if trace:
        query |= {"hours": True, "trace": True}
    statement = connect(server).get("statement", **query)
    if ending and (out is not None or ending != ".json"):
        _file(statement, ending, out)
        return
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(statement, [row["account"] for row in statement["rows"]]):
        _say(output, statement, hourly=bool(hourly or trace), trace=trace)


def _format(out: Path | None, *, as_csv: bool, as_html: bool, as_json: bool) -> str:
    """Return the ending of the format that was asked for; empty for a table.

    Raises:
        InputError: If the options contradict each other.
    """
    asked = [ending for ending, wanted in zip(ENDINGS, (as_csv, as_json, as_html), strict=True) if wanted]
    if out is not None:
        check_ending(out, "--output")
        asked.append(out.suffix.lower())
    if len(set(asked)) > 1:
        raise InputError.one(
            "statement-formats",
            f"more than one format is asked for: {', '.join(each[1:] for each in asked)}",
            path="--output" if out is not None else "--csv",
            allowed="one of csv, json, html",
            fix="leave the others away",
        )
    return asked[0] if asked else ""


def _file(statement: dict[str, Any], ending: str, out: Path | None) -> None:
    text = render(statement, ending, unix=True)
    if out is None:
        sys.stdout.write(text)
    else:
        write(out, text, "--output")


def _say(output: Output, statement: dict[str, Any], *, hourly: bool, trace: bool) -> None:
    screen = output.screen
    screen.line(
        Span("GPU-hours", "bold"),
        f" from {stamp(statement['from_at'])} to {stamp(statement['to_at'])} ({time.strftime('%Z')})",
    )
    screen.table(_COLUMNS, [_row(row) for row in [*statement["rows"], _together(statement)]])
    if hourly:
        screen.line()
        screen.table(_HOURS, [line for row in statement["rows"] for line in _hours(row)])
    if trace:
        screen.line()
        screen.table(_LEDGER, [_ledger(run) for run in statement["sources"]["runs"]])
    for row in statement["rows"]:
        for entry in row["entries"] if row["leaf"] else ():
            screen.line(
                f"adjusted {row['account']} at {stamp(entry['at'])}: {entry['gpu_hours']:+,.2f} GPU-hours, "
                f"{entry['cause']}"
            )
    for note in statement["notes"]:
        screen.line(Span(f"note: {note}", "dim"))
    screen.line(age(statement))


def _together(statement: dict[str, Any]) -> dict[str, Any]:
    """Return the totals as a row."""
    return {**statement["totals"], "account": "together", "share": None, "declared_gpu_hours": 0}


def _ledger(run: dict[str, Any]) -> tuple[Any, ...]:
    return (
        "running" if run["id"] is None else str(run["id"]),
        Span(run["job"], "bold"),
        str(run["attempt"]),
        path(run["account"]),
        stamp(run["from_at"]),
        stamp(run["to_at"]),
        str(run["gpus"]),
        str(run["charge"]) if run["allocated"] else "free",
        seconds(run["protected_seconds"]),
        seconds(run["lost_seconds"]),
    )


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    declared = row["declared_gpu_hours"]
    return (
        path(row["account"]),
        percent(row["share"], 1),
        number(row["capacity_gpu_hours"]),
        number(row["demand_gpu_hours"]),
        number(row["owed_gpu_hours"]),
        number(row["delivered_gpu_hours"]),
        _ratio(row["delivered_over_owed"]),
        _ratio(row["delivered_over_owed_hourly"]),
        number(row["carried_gpu_hours"]),
        number(row["protected_gpu_hours"]),
        number(row["unallocated_gpu_hours"]),
        number(row["lost_gpu_hours"]),
        number(row["adjustments_gpu_hours"]),
        percent(row["declared_used_gpu_hours"] / declared) if declared else NONE,
    )


def _ratio(part: float | None) -> Span:
    """Return delivered over owed, marked where an account got clearly less than it was owed."""
    if part is None:
        return Span(NONE)
    return Span(percent(part, 1), "red" if part < 0.9 else "yellow" if part < 0.95 else "")


_HOUR_FIGURES: Final = (
    "owed",
    "delivered",
    "carried",
    "unallocated",
    "protected",
    "lost",
    "adjustments",
    "demand",
    "capacity",
)


def _entries(ledger: dict[str, Any]) -> str:
    """Return which ledger entries are behind an hour: all, or the first, the last and how many."""
    if not ledger["count"]:
        return NONE
    if ledger["ids"] is not None:
        return str(ledger["ids"])
    first, last = ledger["first"], ledger["last"]
    return str(first) if first == last else f"{first}..{last} ({ledger['count']})"


def _hours(row: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (
            path(row["account"]),
            stamp(hour["at"]),
            *(number(hour[key], 2) for key in _HOUR_FIGURES),
            _entries(hour["ledger"]),
        )
        for hour in row["hours"] or []
    ]
