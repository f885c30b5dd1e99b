"""divvy decisions: which passes started or preempted something, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, connect
from divvy.cli.render import NONE, Column, Output, Span, age, path, stamp

_COLUMNS: Final = (
    Column("Pass", right=True),
    Column("At", drop=1),
    Column("What"),
    Column("Job"),
    Column("Account", drop=2),
    Column("Devices", right=True, drop=4),
    Column("Where", drop=5),
    Column("Why", drop=3),
)
_SLOTS: Final = {"hold": "hold a slot", "lapse": "give up a slot"}


def verb(
    limit: Annotated[int, typer.Option("--limit", min=1, max=100, help="Most passes.")] = 20,
    before: Annotated[
        int | None, typer.Option("--before", min=0, help="Older ones: `next` of the answer before.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """List the newest passes that decided something: starts, preemptions, dated slots, each with its reason.

    `divvy replay PASS` decides one again. With -q: numbers of passes. Example: divvy decisions --limit 5
    """
    answer = connect(server).get("decisions", limit=limit, before=before)
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if output.machine(answer, [str(one["seq"]) for one in answer["passes"]]):
        return
    if not answer["passes"]:
        output.screen.line("nothing was decided yet; `divvy submit --help` says how a job is submitted")
        return
    output.screen.table(_COLUMNS, [row for one in answer["passes"] for row in _rows(one)])
    if answer["next"] is not None:
        output.screen.line(f"older ones: divvy decisions --before {answer['next']}")
    output.screen.line(age(answer))


def _rows(one: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    head = str(one["seq"]), stamp(one["at"])
    for each in one["decisions"]:
        where = ", ".join(f"{place['node']} x{place['gpus']}" for place in each["placement"])
        why = each["reason"]["text"] + (f", for {each['by']}" if each["by"] else "")
        what = Span(each["kind"], "red" if each["kind"] == "preempt" else "green")
        account = path(each["account"])
        yield *head, what, Span(each["job"], "bold"), account, str(each["gpus"]), where or NONE, why
    for slot in one["slots"]:
        where = ", ".join(f"{place['node']} x{place['gpus']}" for place in slot["placement"])
        due = f"until {stamp(slot['due_at'])}" if slot["due_at"] is not None else NONE
        job = Span(slot["job"], "bold")
        yield *head, _SLOTS[slot["kind"]], job, NONE, NONE, where or NONE, due
