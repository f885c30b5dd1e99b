"""divvy drain: take a node out of service as its protected work ends, or bring it back."""

from __future__ import annotations

from typing import Annotated

import typer

from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, complete_node, connect
from divvy.cli.render import Output, state
from divvy.errors import InputError


def verb(
    node: Annotated[str, typer.Argument(autocompletion=complete_node)],
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; shown beside the node.")] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Bring the node back into service.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """Take a node out of service, or bring it back with --undo.

    A draining node takes no new work; what runs keeps its protection and is moved when that ends.
    """
    if not undo and not reason:
        raise InputError.one(
            "drain-reason",
            f"no reason was given for draining {node!r}",
            path="--reason",
            fix='say why, for example --reason "fan replaced on Tuesday"',
        )
    client = connect(server)
    if undo:
        answer = client.delete("nodes", node, "drain")
    else:
        answer = client.post("nodes", node, "drain", body={"reason": reason})
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(answer, [answer["node"]]):
        why = f": {answer['reason']}" if answer["reason"] else ""
        output.screen.line(answer["node"], " is now ", state(answer["state"]), why)
