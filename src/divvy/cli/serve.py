"""divvy serve: route inference queries to unequal slices."""

from __future__ import annotations

import sys
from pathlib import Path

import typer


def verb(
    backends: Path = typer.Option(
        ..., "--backends", help="File of the slices (divvy lab slices --backends writes one)."
    ),
    rule: str = typer.Option(
        "", "--rule", help="divvy | elsa[:alpha=,beta=] | fifs | jsq | pow2 | least-gpc. [the file's]"
    ),
    host: str = typer.Option("127.0.0.1", "--host", help="Address to listen on."),
    port: int = typer.Option(8090, "--port", min=0, max=65_535, help="Port; 0 for a free one."),
    most_waiting: int = typer.Option(
        2000, "--most-waiting", min=0, help="More queries are refused with 503 and Retry-After."
    ),
) -> None:
    """Serve the Open Inference Protocol over HTTP in front of one server per slice.

    The batch dimension of a query, a latency profile and an objective decide which slice answers. The file is
    read again when it changes: slices that are left out finish what they run.
    """
    import asyncio  # noqa: PLC0415 - a verb imports what it needs when it is used
    from dataclasses import replace  # noqa: PLC0415

    from divvy.adapters.front.config import Setup, read_setup  # noqa: PLC0415
    from divvy.bootstrap.front import run_front  # noqa: PLC0415
    from divvy.cli.slice_inputs import load_profile, read_file  # noqa: PLC0415
    from divvy.planners.queries.registry import find_rule  # noqa: PLC0415

    def load() -> Setup:
        setup = read_setup(read_file(backends, "--backends"), str(backends))
        return replace(setup, rule=rule) if rule else setup

    def tell(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    setup = load()
    find_rule(setup.rule)
    profile = load_profile(setup.profile)
    serving = run_front(backends, load, profile, host, port, most_waiting, tell)
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        asyncio.run(serving)
    else:
        uvloop.run(serving)
