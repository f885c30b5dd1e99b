"""divvy apply: carry out the plan of the whole fleet, unless it is stale."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, connect
from divvy.cli.plan import At, Database, Fleet, Home, Services, State, errors_are_usage, gather, names_of
from divvy.cli.render import Output, Span, many
from divvy.errors import ConflictError, InputError


def verb(
    version: Annotated[int, typer.Option("--version", help="The version that `divvy plan` printed.")],
    fleet: Fleet = None,
    state: State = None,
    services: Services = None,
    home: Home = None,
    database: Database = "",
    at: At = "",
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """Carry out what `divvy plan` printed for this version; refused where the state has moved on since.

    With --fleet the state file is written. With a control plane the leases of --services are submitted and
    cancelled as jobs; jobs themselves it starts and preempts on its own. Exit code 0: done, 2: an error, or a
    stale plan: the error says which version is there now.
    """
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    with errors_are_usage(as_json=as_json):
        made = gather(fleet, state, services, home, database, at)
        there = made.document["version"]
        if there != version:
            raise ConflictError.one(
                "plan-stale",
                f"the plan is of version {version}, the state is at version {there} now",
                path="--version",
                allowed=str(there),
                fix="look at `divvy plan` again",
            )
        done = _on_paper(made, fleet, state) if fleet is not None else _live(made, services, home, server)
    if not output.machine(done, names_of(made.document)):
        output.screen.line(
            Span(many(made.document["changes"], "change"), "bold"), f" carried out; version {done['now']} now"
        )
        for line in done["left"]:
            output.screen.line(Span(f"  to be done by hand: {line}", "yellow"))


def _on_paper(made: Any, fleet: Path, state: Path | None) -> dict[str, Any]:
    """Write the state as it is when the plan is carried out."""
    from divvy.cli.one_plan import state_file, write_state  # noqa: PLC0415 - planners load numpy
    from divvy.control.paper import carry_out  # noqa: PLC0415 - same

    refused = carry_out(made.base.state, made.base.planner, made.plan.jobs)
    if refused:
        raise ConflictError.one(
            "plan-refused", "; ".join(refused), fix="report this: the planner is at fault"
        )
    write_state(state or state_file(fleet), made.base, made.plan.after)
    return _done(made, made.base.state.snapshot.version, [])


def _live(made: Any, services: Path | None, home: Path | None, server: str) -> dict[str, Any]:
    """Submit and cancel the leases of services as jobs of the control plane."""
    from divvy.cli.apply_leases import cancel_and_submit  # noqa: PLC0415 - planners load numpy

    if services is None:
        return _done(made, made.document["version"], [])
    without = [one.name for one in made.base.tenants.services if not one.command]
    if without:
        raise InputError.one(
            "service-command",
            f"services without a command: {', '.join(without)}",
            path="--services",
            fix='say what a lease runs: command = ["..."]',
        )
    left = cancel_and_submit(made, connect(server), home)
    return _done(made, made.document["version"], left)


def _done(made: Any, now: int, left: list[str]) -> dict[str, Any]:
    return {
        "schema": "divvy.apply/1",
        "version": made.document["version"],
        "now": now,
        "left": left,
        "plan": made.document,
    }
