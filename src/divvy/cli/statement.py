"""divvy statement: what every account was owed and what it was delivered."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, complete_any_account, connect
from divvy.cli.render import NONE, Column, Output, Span, age, number, path, percent, stamp
from divvy.errors import InputError
from divvy.units import SECOND, parse_duration

TIME_HELP: Final = 'a duration back from now ("7d"), a date or a time ("2026-10-09", "2026-10-09T18:00")'
_COLUMNS: Final = (
    Column("Account"),
    Column("Share", right=True, drop=6),
    Column("Capacity", right=True, drop=3),
    Column("Demand", right=True, drop=4),
    Column("Owed", right=True),
    Column("Delivered", right=True),
    Column("Del./owed", right=True),
    Column("By hour", right=True, drop=8),
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
    Column("Unallocated", right=True),
    Column("Demand", right=True, drop=1),
    Column("Capacity", right=True, drop=2),
)


def verb(
    account: Annotated[
        str,
        typer.Option("--account", "-A", help="Only this subtree.", autocompletion=complete_any_account),
    ] = "",
    since: Annotated[str, typer.Option("--from", metavar="WHEN", help=f"Start: {TIME_HELP}.")] = "7d",
    until: Annotated[str, typer.Option("--to", metavar="WHEN", help="End; now by default.")] = "",
    hourly: Annotated[bool, typer.Option("--hourly", help="List every hour too.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """Show what every account was owed and what it was delivered, in GPU-hours.

    Owed is min(share x capacity, demand), hour by hour. With -q: the accounts.
    """
    now = time.time()
    start = moment(since, "--from", now)
    end = moment(until, "--to", now) if until else None
    query: dict[str, Any] = {"account": account, "from_": start, "to": end}
    if hourly:
        query["hours"] = True
    statement = connect(server).get("statement", **query)
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if output.machine(statement, [row["account"] for row in statement["rows"]]):
        return
    screen = output.screen
    screen.line(
        Span("GPU-hours", "bold"),
        f" from {stamp(statement['from_at'])} to {stamp(statement['to_at'])}",
    )
    screen.table(_COLUMNS, [_row(row) for row in statement["rows"]])
    if hourly:
        screen.line()
        screen.table(_HOURS, [line for row in statement["rows"] for line in _hours(row)])
    for row in statement["rows"]:
        for entry in row["entries"]:
            screen.line(
                f"adjusted {row['account']} at {stamp(entry['at'])}: {entry['gpu_hours']:+,.2f} GPU-hours, "
                f"{entry['cause']}"
            )
    screen.line(age(statement))


def moment(text: str, option: str, now: float) -> float:
    """Return a time in Unix seconds, from a duration back from now or an ISO date or time (local).

    Raises:
        InputError: If the text is neither.
    """
    try:
        return now - parse_duration(text) / SECOND
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise InputError.one(
            "time-format", f"{text!r} is not a time", path=option, allowed=TIME_HELP, fix="correct it"
        ) from error


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


def _hours(row: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (
            path(row["account"]),
            stamp(hour["at"]),
            *(number(hour[key], 2) for key in ("owed", "delivered", "unallocated", "demand", "capacity")),
        )
        for hour in row["hours"] or []
    ]
