"""divvy move: move bytes between hosts over all rails that are worth it, healed and proven."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from divvy.cli.options import AsJson, Quiet
from divvy.errors import Fault, InputError
from divvy.units import BYTES_HELP, DURATION_HELP, parse_bytes, parse_duration

# ruff: noqa: PLC0415 - each verb imports what it needs when it is used


class Moves(TyperGroup):
    """`divvy move SRC DST` is short for `divvy move bytes SRC DST`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the verb in where it was left out."""
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            args = ["bytes", *args]
        return super().parse_args(ctx, args)


verb = typer.Typer(
    cls=Moves,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Move bytes between hosts: `divvy move SRC DST`, and `divvy move agent` on the host of DST.",
)

Key = Annotated[
    Path, typer.Option("--key", envvar="DIVVY_MOVE_KEY", help="File with the key that all agents share.")
]
Rails = Annotated[
    list[str] | None,
    typer.Option("--rail", help="DEVICE, ADDRESS or NAME=ADDRESS; repeat it. Default: all that are up."),
]
State = Annotated[
    Path | None, typer.Option("--state", metavar="DIR", help="Keeps what is learned of the routes.")
]


@verb.command("agent")
def agent(
    key: Key,
    name: Annotated[str, typer.Option("--name", help="Name of this host; default: its own.")] = "",
    rail: Rails = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on every rail.")] = 7600,
    root: Annotated[
        list[Path] | None, typer.Option("--root", metavar="DIR", help="Peers may use files below it.")
    ] = None,
    memory: Annotated[
        list[str] | None, typer.Option("--memory", metavar="NAME=SIZE", help="A buffer that peers may write.")
    ] = None,
    metrics: Annotated[
        int, typer.Option("--metrics", min=0, max=65535, help="Port of /metrics on 127.0.0.1; 0: none.")
    ] = 0,
    state: State = None,
    as_json: AsJson = False,
) -> None:
    """Serve transfers from and to this host until Ctrl-C or SIGTERM."""
    import json
    import socket

    from prometheus_client import start_http_server

    from divvy.transfer import Agent, read_key
    from divvy.transfer.interfaces import choose

    sizes = _memories(memory or [])
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with Agent(
        name or socket.gethostname(), read_key(key), choose(rail or []), port, state, root or []
    ) as served:
        for label, size in sizes.items():
            served.register(label, bytearray(size))
        if metrics:
            start_http_server(metrics, "127.0.0.1", served.metrics.registry)
        said = {"agent": served.name, "addresses": served.addresses, "memory": sizes}
        print(json.dumps(said) if as_json else f"{served.name} on {', '.join(served.addresses)}", flush=True)
        stop.wait()


def _memories(texts: list[str]) -> dict[str, int]:
    """Return the sizes of buffers by name.

    Raises:
        InputError: With one fault for each text that means none.
    """
    out: dict[str, int] = {}
    faults: list[Fault] = []
    for text in texts:
        name, _, size = text.partition("=")
        try:
            out[name] = parse_bytes(size)
        except ValueError as error:
            faults.append(
                Fault("memory", "--memory", f"{text!r}: {error}", f"NAME=SIZE; SIZE is {BYTES_HELP}")
            )
    if faults:
        raise InputError("buffers are not understood", faults)
    return out


@verb.command("bytes")
def move(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A file, or random:SIZE.")],
    target: Annotated[
        str, typer.Argument(metavar="DST", help="HOST:PORT:/FILE, HOST:PORT:mem:NAME, or a file here.")
    ],
    key: Annotated[
        Path | None, typer.Option("--key", envvar="DIVVY_MOVE_KEY", help="File with the shared key.")
    ] = None,
    rail: Rails = None,
    backend: Annotated[str, typer.Option("--backend", help="tcp or nixl.")] = "tcp",
    descriptors: Annotated[int, typer.Option("--descriptors", min=1, help="Pieces to cut it into.")] = 1,
    priority: Annotated[int, typer.Option("--priority", help="Higher goes first.")] = 0,
    deadline: Annotated[str, typer.Option("--deadline", help=DURATION_HELP)] = "",
    limit: Annotated[str, typer.Option("--limit", help="It fails after this time, whatever happens.")] = "",
    account: Annotated[str, typer.Option("--account", help="Who pays.")] = "",
    state: State = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Move a file or test bytes to an agent, or to another file here; report prediction, rails and proof."""
    from divvy.cli.move_run import Asked, run, show

    asked = Asked(
        source, target, key, tuple(rail or ()), backend, descriptors, priority,
        _milliseconds(deadline, "--deadline"), _milliseconds(limit, "--limit"), account, state,
    )  # fmt: skip
    document = run(asked)
    show(document, as_json=as_json, quiet=quiet)
    if document["verdict"] != "done" or not document["path_proof"]["agrees"]:
        raise typer.Exit(1)


def _milliseconds(text: str, option: str) -> int | None:
    """Return a duration; None where none was given.

    Raises:
        InputError: If the text is none.
    """
    if not text:
        return None
    try:
        value = parse_duration(text)
    except ValueError as error:
        raise InputError.one("duration", str(error), path=option, allowed=DURATION_HELP) from error
    if not value:
        raise InputError.one("duration", "no time at all", path=option, allowed=DURATION_HELP)
    return value
