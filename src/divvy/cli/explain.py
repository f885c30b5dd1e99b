"""divvy explain: why a job waits, runs or was preempted, and what would help."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, complete_job, connect
from divvy.cli.render import (
    NONE,
    Cell,
    Column,
    Output,
    Span,
    age,
    clock,
    many,
    number,
    path,
    percent,
    seconds,
    state,
    whole,
)

_AHEAD: Final = (Column("Ahead"), Column("Account"), Column("Devices", right=True), Column("Why", shrink=20))
_HISTORY: Final = (Column("When"), Column("What", shrink=20))


def verb(
    job: Annotated[str, typer.Argument(autocompletion=complete_job)],
    start: Annotated[
        bool, typer.Option("--start/--no-start", help="When it should start; takes some seconds.")
    ] = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """Say why a job waits, runs or was preempted, who is ahead, and what would help.

    With -q: the ids of the jobs ahead.
    """
    explanation = connect(server).get("jobs", job, "explain", start=start or None)
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(explanation, [ahead["id"] for ahead in explanation["ahead"]]):
        _say(output, explanation, start=start)


def _say(output: Output, explanation: dict[str, Any], *, start: bool) -> None:
    screen = output.screen
    headline = explanation["headline"]
    screen.line(
        Span(explanation["job"], "bold"),
        " ",
        state(explanation["state"]),
        Span(f"  [{headline['code']}]", "dim"),
    )
    screen.line(headline["text"])
    for reason in explanation["reasons"]:
        if reason["code"] != headline["code"]:
            screen.line("  also: ", reason["text"], Span(f"  [{reason['code']}]", "dim"))
    if explanation["numbers"]:
        figures = ", ".join(_figure(key, value) for key, value in explanation["numbers"].items())
        screen.line(Span("  figures: ", "dim"), figures)
    if start and _waits(explanation):
        screen.line(*_start(explanation["start"], explanation["as_of"] + explanation["age_seconds"]))
    if explanation["account"]:
        screen.line()
        _say_account(output, explanation["account"])
    if explanation["ahead"]:
        _say_ahead(output, explanation)
    if explanation["help"]:
        screen.line()
        screen.line("What would help:")
        for text in explanation["help"]:
            screen.line("  - ", text)
    if explanation["history"]:
        screen.line()
        screen.table(_HISTORY, [(clock(h["at"]), _happened(h)) for h in explanation["history"]])
    screen.line(age(explanation))


def _say_ahead(output: Output, explanation: dict[str, Any]) -> None:
    """Say who goes first and who holds what is waited for."""
    screen = output.screen
    screen.line()
    screen.table(
        _AHEAD, [(a["id"], path(a["account"]), str(a["gpus"]), a["why"]) for a in explanation["ahead"]]
    )
    more = explanation["ahead_count"] - len(explanation["ahead"])
    if more > 0:
        screen.line(Span(f"and {more} more", "dim"))


def _waits(explanation: dict[str, Any]) -> bool:
    return str(explanation["state"]).partition("(")[0] in ("accepted", "queued", "preempted") and (
        "position" in explanation["numbers"]
    )


def _start(start: dict[str, Any] | None, now: float) -> tuple[Cell, ...]:
    """Return the start interval as a sentence."""
    if start is None:
        return (Span("  starts: ", "dim"), "not computed yet; ask again in a moment")
    by = " or ".join(
        f"{clock(start[name])} (in {seconds(max(start[name] - now, 0))}{odds})"
        for name, odds in (("p50_at", ", as likely as not"), ("p90_at", ", nine times in ten"))
    )
    rest = start["futures"] - start["started_in"]
    rough = f"; extrapolated in {rest}" if rest else ""
    return (Span("  starts: ", "dim"), f"by {by}", Span(f"  [{start['futures']} futures{rough}]", "dim"))


def _figure(name: str, value: object) -> str:
    """Return one of the numbers that the codes stand on, with its name."""
    words = name.removesuffix("_seconds").replace("_", " ")
    if isinstance(value, float):
        return f"{words} {seconds(value) if name.endswith('_seconds') else f'{value:.3g}'}"
    return f"{words} {NONE if value is None else value}"


def _happened(entry: dict[str, Any]) -> str:
    """Return an entry of the history; its text mostly begins with the event itself."""
    event, text = str(entry["event"]).replace("_", " "), str(entry["text"])
    return text if text.startswith(event) else f"{event}: {text}"


def _say_account(output: Output, account: dict[str, Any]) -> None:
    """Say where the account stands: the numbers that the queue is sorted by."""
    rank = "no demand" if account["rank"] is None else f"served {_ordinal(account['rank'] + 1)}"
    floor = "" if account["floor"] is None else f" (floor {whole(account['floor'])})"
    output.screen.line(
        "account ",
        *path(account["path"]),
        f": {percent(account['effective_share'], 1)} of the fleet, "
        f"balance {number(account['balance'], 3)}, {rank}",
    )
    waiting = "nothing waits"
    if account["waiting"]:
        waiting = f"{many(account['waiting'], 'waiting job')} for {many(account['waiting_gpus'], 'device')}"
    output.screen.line(
        f"  holds {many(account['held'], 'device')}{floor} and {account['unallocated']} unallocated; "
        f"{waiting}"
    )


def _ordinal(place: int) -> str:
    suffix = "th" if 10 <= place % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{suffix}"
