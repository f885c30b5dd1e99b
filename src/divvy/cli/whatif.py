"""divvy whatif: replay the jobs of the last hours under other shares or another policy."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import typer

from divvy.cli.client import Client
from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, connect
from divvy.cli.render import NONE, Column, Output, Span, clock, many, number, path, percent, seconds
from divvy.errors import DivvyError, InputError
from divvy.units import parse_decimal

_COMPUTING: Final = "whatif-computing"
_PAUSE_SECONDS: Final = 1.0
_COLUMNS: Final = (
    Column("Account"),
    Column("Share", right=True),
    Column("As asked", right=True),
    Column("Jobs", right=True, drop=2),
    Column("Wait p50", right=True),
    Column("As asked", right=True),
    Column("Longer", right=True, drop=1),
    Column("Shorter", right=True, drop=1),
    Column("GPU-hours", right=True),
    Column("As asked", right=True),
)


def verb(
    share: Annotated[
        list[str] | None,
        typer.Option("--share", metavar="ACCOUNT=PERCENT", help="Another share; repeat for more."),
    ] = None,
    policy: Annotated[str, typer.Option("--policy", help="Another policy. [the present one]")] = "",
    hours: Annotated[
        float, typer.Option("--hours", min=0.01, max=768, help="How far back jobs are taken.")
    ] = 24,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """Ask what other shares or another policy would have done to the jobs of the last hours.

    Nothing is changed. The replay has a process of its own at the lowest priority. With -q: accounts whose
    jobs would rather wait longer. Example: divvy whatif --share lab.vision=50 --share lab.language=50
    """
    question = {"shares": dict(_share(text) for text in share or []), "policy": policy, "hours": hours}
    answer = _ask(connect(server), question)
    change = answer["change"]["by_account"]
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(answer, [one["account"] for one in change if one["longer"] > one["shorter"]]):
        _say(output, answer)


def _share(text: str) -> tuple[str, float]:
    """Return the account and the share of an option.

    Raises:
        InputError: If it is none.
    """
    account, _, percentage = text.partition("=")
    try:
        return account, float(parse_decimal(percentage.removesuffix("%")))
    except ValueError as error:
        raise InputError.one(
            "share-type",
            f"{text!r} is no share",
            path="--share",
            allowed="ACCOUNT=PERCENT",
            fix="lab.vision=50",
        ) from error


def _ask(client: Client, question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer; while the jobs are replayed, ask again."""
    while True:
        try:
            return client.post("whatif", body=question)
        except DivvyError as error:
            if error.code != _COMPUTING:
                raise
        time.sleep(_PAUSE_SECONDS)


def _say(output: Output, answer: dict[str, Any]) -> None:
    screen, basis, (now, other) = output.screen, answer["basis"], answer["sides"]
    drawn = (
        f"; {basis['drawn']} not over, their runtime is drawn from jobs like them" if basis["drawn"] else ""
    )
    screen.line(
        Span(many(basis["jobs"], "job"), "bold"),
        f" since {clock(basis['from_at'])} on {basis['gpus']} devices, replayed twice{drawn}",
    )
    everybody = answer["change"]["all"]["wait_seconds"]
    for label, before, after in (
        ("occupied while jobs wait", *(percent(side["occupancy_while_contended"]) for side in (now, other))),
        ("delivered of owed", *(percent(side["delivered_over_owed"]["period"], 1) for side in (now, other))),
        ("median wait", *(seconds(value) for value in everybody["p50"])),
        ("wait, 9 of 10 below", *(seconds(value) for value in everybody["p90"])),
        ("preemptions", *(str(side["preemptions"]) for side in (now, other))),
    ):
        screen.line(Span(f"  {label:<26}", "dim"), f"{before} -> {after}")
    screen.table(_COLUMNS, [_row(one) for one in answer["change"]["by_account"]])
    screen.line(Span("a forecast by replay, not a measurement; nothing was changed", "dim"))


def _row(one: dict[str, Any]) -> tuple[Any, ...]:
    waits, charged = one["wait_seconds"]["p50"], one["charged_gpu_hours"]
    return (
        path(one["account"]),
        *(percent(value, 1) for value in one["share"]),
        number(one["jobs"]),
        *(NONE if value is None else seconds(value) for value in waits),
        number(one["longer"]),
        number(one["shorter"]),
        *(number(value, 2) for value in charged),
    )
