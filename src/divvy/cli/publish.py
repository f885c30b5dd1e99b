"""divvy publish: put a plan, a topology or routes on the page, or take it off."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from divvy.cli.client import Client
from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, connect
from divvy.cli.render import NONE, Column, Output, Span, clock, print_json
from divvy.cli.route_inputs import json_of
from divvy.errors import InputError

_COLUMNS = (
    Column("Name"),
    Column("Page"),
    Column("What"),
    Column("Example"),
    Column("By", drop=1),
    Column("When", drop=2),
)


def verb(
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="What a verb printed with --json; - is standard input.")
    ] = "",
    name: Annotated[str, typer.Option("--name", help="Its name on the page. [the file's]")] = "",
    command: Annotated[str, typer.Option("--command", help="How it was made; shown beside it.")] = "",
    example: Annotated[bool, typer.Option("--example", help="It is made from example inputs.")] = False,
    remove: Annotated[str, typer.Option("--remove", metavar="NAME", help="Take it off the page.")] = "",
    listing: Annotated[bool, typer.Option("--list", help="List what is shown.")] = False,
    printed: Annotated[str, typer.Option("--print", metavar="NAME", help="Print one, as JSON.")] = "",
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """Put what `plan`, `slices plan|pack|apply`, `topo show`, `route plan|explain` print as JSON on the page.

    Example: divvy topo show node1.txt --json | divvy publish - --name node1. With -q: names only.
    """
    wishes = bool(file) + bool(remove) + bool(printed) + listing
    if wishes != 1:
        raise InputError.one(
            "publish-what",
            "these do not go together" if wishes else "nothing to do",
            path="FILE",
            allowed="a file, --remove NAME, --print NAME or --list",
            fix="divvy slices plan --profile fitted:resnet50 --json | divvy publish - --name resnet50",
        )
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if listing or printed:
        _look(output, connect(server), printed)
        return
    if remove:
        answer = connect(server).delete("shown", remove)
        if not output.machine(answer, [answer["name"]]):
            output.screen.line(f"{answer['name']} is not shown any more")
        return
    document = json_of(Path(file))
    if not isinstance(document, dict):
        what = f"{file} holds no document"
        raise InputError.one("publish-kind", what, path="FILE", allowed="a JSON object")
    body = {"document": document, "command": command, "example": example}
    answer = connect(server).put("shown", name or _name(file, document), body=body)
    if not output.machine(answer, [answer["name"]]):
        where = f" is on the page, under {answer['view']}: {answer['title']}"
        output.screen.line(Span(answer["name"], "bold"), where)


def _name(file: str, document: dict[str, Any]) -> str:
    """Return the name of a document that was given none: that of its file, else of its kind."""
    text = (
        Path(file).stem
        if file != "-"
        else str(document.get("schema", "")).removeprefix("divvy.").split("/")[0]
    )
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:63] or "shown"


def _look(output: Output, client: Client, name: str) -> None:
    """Print one document as it is shown, or the list of all where none is named."""
    if name:
        print_json(client.get("shown", name)["document"], output.screen)
        return
    answer = client.get("shown")
    if not output.machine(answer, [one["name"] for one in answer["documents"]]):
        _list(output, answer["documents"])


def _list(output: Output, documents: list[dict[str, Any]]) -> None:
    if not documents:
        output.screen.line("nothing is shown; `divvy publish --help` says what can be")
        return
    rows = [
        (
            Span(one["name"], "bold"),
            one["view"],
            one["title"],
            "yes" if one["example"] else NONE,
            one["by"],
            clock(one["at"]),
        )
        for one in documents
    ]
    output.screen.table(_COLUMNS, rows)
