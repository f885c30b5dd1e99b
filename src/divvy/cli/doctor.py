"""divvy doctor: what this machine has and lacks for each part, and what to do about it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from divvy.adapters.machine import engines, store, system
from divvy.adapters.machine.check import Check, Look, State, look_at
from divvy.bootstrap.settings import default_database, default_home
from divvy.cli.client import Client, find_target
from divvy.cli.options import AsJson, NoTruncate, Quiet
from divvy.cli.render import Column, Output, Span
from divvy.errors import EXIT_FAILED, DivvyError, InputError

_PORT: Final = 8470
_NEEDED: Final = frozenset({"python", "permissions", "disk", "database", "clock"})
_COLOURS: Final = {"ok": "green", "warn": "yellow", "missing": "dim", "fail": "bold red", "unknown": "yellow"}
_COLUMNS: Final = (
    Column("Check"),
    Column("State"),
    Column("Found", shrink=20),
    Column("Needed for", shrink=14, drop=1),
)


def verb(
    home: Annotated[Path | None, typer.Option("--home", help="State directory. [$DIVVY_HOME]")] = None,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65_535, help="Port that `divvy up` would take.")
    ] = _PORT,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Check this machine: exit 0 where `divvy up` can run, 1 where something that it needs is missing.

    What is optional and missing is told with what would need it. Nothing is changed. With -q: the names of
    the checks that are not ok.
    """
    checks = list(look_at(looks((home or _home()).absolute(), port)))
    ready = not any(
        check.state is State.FAIL or (check.state is State.UNKNOWN and check.name in _NEEDED)
        for check in checks
    )
    document = {
        "schema": "divvy.doctor/1",
        "ready": ready,
        "checks": [{**check._asdict(), "state": str(check.state)} for check in checks],
    }
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(document, [check.name for check in checks if check.state is not State.OK]):
        _say(output, checks, ready=ready)
    if not ready:
        raise typer.Exit(EXIT_FAILED)


def _home() -> Path:
    """Return the state directory that `divvy up` would take.

    Raises:
        InputError: If this user has no home to put one into.
    """
    try:
        return default_home()
    except RuntimeError as error:
        raise InputError.one(
            "home-unknown", f"no state directory: {error}", path="--home", fix="name one, or set DIVVY_HOME"
        ) from error


def looks(home: Path, port: int) -> list[tuple[str, str, Look]]:
    """Return every look in the order of the report: what is needed first, then what is optional."""
    url = os.environ.get("DIVVY_DATABASE") or default_database(home)
    return [
        ("python", "everything", system.python),
        ("permissions", "the state directory", partial(system.permissions, home)),
        ("disk", "journal and logs", partial(system.disk, home)),
        ("database", "journal, jobs, budgets", partial(store.database, home, url)),
        ("clock", "order of events", system.clock),
        ("port", "the API and the page", partial(system.port, port)),
        ("control-plane", "every other verb", partial(_control_plane, home)),
        ("open-files", "streams and logs", system.files),
        ("cgroups", "containment of local jobs", system.cgroups),
        ("nvml", "GPUs and MIG", engines.gpus),
        ("slurm", "jobs on Slurm", engines.slurm),
        ("ray", "Ray Serve", engines.ray),
        ("nixl", "transfers for real", engines.nixl),
        ("browser", "tests of the page", engines.browser),
    ]


def _control_plane(home: Path) -> Check:
    """Look whether a control plane answers here."""
    need = "every other verb"
    try:
        health = Client(find_target(f"unix:{home / 'socket'}")).get("health")
    except DivvyError:
        return Check("control-plane", State.OK, f"none runs in {home}", need, "start one: divvy up")
    good = health["status"] == "ok"
    found = f"version {health['version']}, scheduler {health['scheduler']}"
    fix = "" if good else f"look at {home / 'logs' / 'loop.log'}"
    return Check("control-plane", State.OK if good else State.WARN, found, need, fix)


def _say(output: Output, checks: list[Check], *, ready: bool) -> None:
    screen = output.screen
    rows: list[tuple[Any, ...]] = [
        (
            Span(check.name, "bold"),
            Span(str(check.state), _COLOURS[check.state]),
            check.found,
            check.needed_for,
        )
        for check in checks
    ]
    screen.table(_COLUMNS, rows)
    for check in checks:
        if check.fix and check.state is not State.OK:
            screen.line(Span(f"{check.name}  ", "bold"), check.fix)
    if ready:
        screen.line(Span("`divvy up` can run here.", "green"))
    else:
        screen.line(Span("`divvy up` cannot run here yet: mend what says fail.", "bold red"))
