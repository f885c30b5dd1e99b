"""divvy drain: take a node out of service as protected work ends, now or in a window, or bring it back."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import typer

from divvy.cli.moment import moment
from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, complete_node, connect
from divvy.cli.render import Output, clock, state
from divvy.errors import InputError
from divvy.units import SECOND, parse_duration

_WHEN: Final = "A date or time, or a duration from now with a plus (+2h)."


def verb(
    node: Annotated[str, typer.Argument(autocompletion=complete_node)],
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; shown beside the node.")] = "",
    since: Annotated[str, typer.Option("--from", metavar="WHEN", help=f"Begin. {_WHEN} Now.")] = "",
    until: Annotated[
        str, typer.Option("--until", metavar="WHEN", help="End; it comes back by itself. When undone.")
    ] = "",
    fault: Annotated[
        str, typer.Option("--fault", metavar="CODE", help="It is at fault: xid-79, ecc, ...; may be fatal.")
    ] = "",
    fatal: Annotated[
        bool | None,
        typer.Option("--fatal/--not-fatal", help="Whether its jobs must leave at once; else by its XID."),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Bring the node back into service.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """Take a node out of service, or bring it back with --undo.

    A draining node takes no new work; what runs keeps its protection and is moved when that ends. With --from
    nothing starts there meanwhile whose protection would outlast the begin. A fatal fault ends at once what
    runs there.
    """
    _check(node, reason, fault, fatal=fatal, undo=undo, window=bool(since or until))
    client = connect(server)
    if undo:
        answer = client.delete("nodes", node, "drain")
    elif fault:
        answer = client.post("nodes", node, "fault", body={"code": fault, "fatal": fatal})
    else:
        now = time.time()
        body: dict[str, Any] = {"reason": reason}
        body |= {"from_at": _when(since, "--from", now)} if since else {}
        body |= {"until_at": _when(until, "--until", now)} if until else {}
        answer = client.post("nodes", node, "drain", body=body)
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(answer, [answer["node"]]):
        why = f": {answer['reason']}" if answer["reason"] else ""
        times = [f"from {clock(answer['from_at'])}"] if answer["from_at"] is not None else []
        times += [f"until {clock(answer['until_at'])}"] if answer["until_at"] is not None else []
        output.screen.line(
            answer["node"], " is now ", state(answer["state"]), why, f", {' '.join(times)}" if times else ""
        )


def _check(node: str, reason: str, fault: str, *, fatal: bool | None, undo: bool, window: bool) -> None:
    """Refuse options that say too little or contradict each other.

    Raises:
        InputError: Saying which.
    """
    if not undo and not reason and not fault:
        raise InputError.one(
            "drain-reason",
            f"no reason was given for draining {node!r}",
            path="--reason",
            fix='say why, for example --reason "fan replaced on Tuesday"',
        )
    if (undo and (window or fault)) or (fault and window) or (fatal is not None and not fault):
        raise InputError.one(
            "drain-options",
            "these options do not go together",
            path="--undo" if undo else "--fault",
            allowed="--reason with --from and --until; or --fault with --fatal; or --undo",
            fix="leave the others away",
        )


def _when(text: str, option: str, now: float) -> float:
    """Return a time in Unix seconds; with a plus a duration from now on."""
    if not text.startswith("+"):
        return moment(text, option, now)
    try:
        return now + parse_duration(text[1:]) / SECOND
    except ValueError as error:
        raise InputError.one("duration", str(error), path=option, fix="write for example +2h") from error
