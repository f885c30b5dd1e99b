"""divvy serve: route inference queries to unequal slices."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from divvy.cli.serve_options import Given


def verb(
    backends: Path = typer.Option(
        ..., "--backends", help="File of the slices (divvy lab slices --backends writes one)."
    ),
    rule: str = typer.Option(
        "", "--rule", help="divvy | elsa[:alpha=,beta=] | fifs | jsq | pow2 | least-gpc. [the file's]"
    ),
    host: str = typer.Option("127.0.0.1", "--host", help="Address to listen on."),
    port: int = typer.Option(8090, "--port", min=0, max=65_535, help="Port; 0 for a free one."),
    grpc_port: int | None = typer.Option(
        None, "--grpc-port", min=0, max=65_535, help="Port of the protocol over gRPC, too; 0 for a free one."
    ),
    most_waiting: int = typer.Option(
        2000, "--most-waiting", min=0, help="More queries are refused with 503 and Retry-After."
    ),
    longest_wait: str = typer.Option("30s", "--longest-wait", help="A query that waits longer gets a 503."),
    max_body: str = typer.Option("64MiB", "--max-body", help="Larger bodies get a 413."),
    refuse_late: bool = typer.Option(
        False, "--refuse-late", help="Refuse at once what would miss its objective (503, Retry-After)."
    ),
    tokens: Path | None = typer.Option(None, "--tokens", help="Accounts and hashes of their tokens (TOML)."),
    tls_cert: Path | None = typer.Option(None, "--tls-cert", help="Certificate chain (PEM)."),
    tls_key: Path | None = typer.Option(None, "--tls-key", help="Its key (PEM)."),
    charge: str = typer.Option(
        "", "--charge", help="Control plane whose ledger is charged: http(s)://HOST:PORT or unix:PATH."
    ),
    spool: Path | None = typer.Option(
        None, "--spool", help="Directory of charges not yet posted. [~/.local/share/divvy/serve]"
    ),
    gpu: str = typer.Option("", "--gpu", help="Device model that the slices are cut from, for --charge."),
    publish: str = typer.Option(
        "", "--publish", help="Control plane whose page shows what is served; as for --charge."
    ),
    publish_as: str = typer.Option("", "--publish-as", help="Its name on the page. [serve-MODEL]"),
    check: bool = typer.Option(False, "--check", help="Read everything, name all faults, and end."),
) -> None:
    """Serve the Open Inference Protocol over HTTP in front of one server per slice.

    The batch dimension of a query, a latency profile and an objective decide which slice answers. The file is
    read again when it changes: slices that are left out finish what they run.
    """
    from divvy.cli.serve_options import Given  # noqa: PLC0415 - a verb imports what it needs when it is used

    given = Given(
        host, port, most_waiting, longest_wait, max_body, refuse_late, tokens, tls_cert, tls_key,
        charge, spool, gpu, grpc_port, publish, publish_as,
    )  # fmt: skip
    _serve(backends, rule, given, check=check)


def _serve(backends: Path, rule: str, given: Given, *, check: bool) -> None:
    """Serve what the files say, or only read them."""
    from dataclasses import replace  # noqa: PLC0415 - a verb imports what it needs when it is used

    from divvy.adapters.front.config import Setup, read_setup  # noqa: PLC0415
    from divvy.bootstrap.front import run_front  # noqa: PLC0415
    from divvy.cli.serve_options import read_options  # noqa: PLC0415
    from divvy.cli.slice_inputs import read_file  # noqa: PLC0415

    def load() -> Setup:
        setup = read_setup(read_file(backends, "--backends"), str(backends))
        more = tuple(replace(one, rule=rule or one.rule) for one in setup.more)
        return replace(setup, rule=rule or setup.rule, more=more)

    def tell(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    setup, profile, options = read_options(given, load)
    if check:
        for one in setup.all:
            tell(f"good: {len(one.slices)} slices of {one.model}, {one.rule}, {one.slo_us / 1e3:g} ms")
        return
    serving = run_front(backends, load, profile, options, tell)
    _run(serving)


def _run(serving: Coroutine[Any, Any, None]) -> None:
    """Run the router on the fastest loop that is here."""
    import asyncio  # noqa: PLC0415 - a verb imports what it needs when it is used

    try:
        import uvloop  # noqa: PLC0415 - not on every system
    except ImportError:
        asyncio.run(serving)
    else:
        uvloop.run(serving)
