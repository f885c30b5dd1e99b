"""divvy plan: what would change in the whole fleet, and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from divvy.cli.moment import TIME_HELP, moment
from divvy.cli.options import AsJson, NoTruncate, Quiet
from divvy.cli.render import NONE, Column, Output, Span, many, stamp
from divvy.errors import EXIT_USAGE, DivvyError, InputError

CHANGES: Final = 1
_SHOWN: Final = 40

Fleet = Annotated[
    Path | None,
    typer.Option("--fleet", metavar="FILE.toml", help="Plan this file instead of a control plane."),
]
State = Annotated[
    Path | None, typer.Option("--state", metavar="FILE.json", help="State of the fleet file. [beside it]")
]
Services = Annotated[
    Path | None,
    typer.Option("--services", metavar="FILE.toml", help="Services that the control plane should hold."),
]
Home = Annotated[Path | None, typer.Option("--home", help="State directory of `divvy up`. [$DIVVY_HOME]")]
Database = Annotated[
    str, typer.Option("--database", envvar="DIVVY_DATABASE", help="postgresql+psycopg://...")
]
At = Annotated[str, typer.Option("--at", help=f"Time of the plan: {TIME_HELP}. With --fleet only. [now]")]


def verb(
    fleet: Fleet = None,
    state: State = None,
    services: Services = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Report what plans that nobody carried out would have done.")
    ] = False,
    since: Annotated[str, typer.Option("--since", help=f"With --shadow, from when: {TIME_HELP}.")] = "7d",
    home: Home = None,
    database: Database = "",
    at: At = "",
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Print what would change: jobs to start, preempt and hold; slices to cut and the price; routes.

    Reads only. Exit code 0: nothing would change, 1: something would, 2: an error. With -q: what changes, one
    id on each line.
    """
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    with errors_are_usage(as_json=as_json):
        if shadow:
            from divvy.cli.plan_shadow import show_shadow  # noqa: PLC0415 - reads the journal

            show_shadow(_place(home, database), since, output)
            return
        made = gather(fleet, state, services, home, database, at)
    document = made.document
    if not output.machine(document, names_of(document)):
        show(output, document)
    if document["changes"]:
        raise typer.Exit(CHANGES)


class errors_are_usage:  # noqa: N801 - reads as a phrase where it is used
    """Let every refusal inside the block end with exit code 2: 1 means that something would change."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Turn a refusal into exit code 2."""
        if isinstance(error, DivvyError):
            from divvy.cli.refusal import print_error  # noqa: PLC0415 - only a failure pays for it

            print_error(error, as_json=self._as_json)
            raise typer.Exit(EXIT_USAGE) from error


def gather(
    fleet: Path | None, state: Path | None, services: Path | None, home: Path | None, database: str, at: str
) -> Any:
    """Return the plan of what the options name.

    Raises:
        DivvyError: If it cannot be made.
    """
    from divvy.cli.one_plan import from_files, from_store, make  # noqa: PLC0415 - planners load numpy

    told = _teller()
    if fleet is not None:
        if services is not None:
            raise InputError.one(
                "plan-services", "--services beside --fleet", path="--services", fix="put them into the file"
            )
        now = round(moment(at, "--at", 0.0) * 1000) if at else None
        return make(from_files(fleet, state, now), told)
    if at or state is not None:
        option = "--at" if at else "--state"
        raise InputError.one("plan-fleet", f"{option} without --fleet", path=option, fix="name a fleet file")
    root, url = _place(home, database)
    return make(from_store(url, root, services), told)


def _place(home: Path | None, database: str) -> tuple[Path, str]:
    from divvy.bootstrap import default_database, default_home  # noqa: PLC0415 - loads SQLAlchemy

    root = (home or default_home()).absolute()
    return root, database or default_database(root)


def _teller() -> Any:
    """Return who says on a terminal what is being planned, since a first plan of a model takes seconds."""
    if not sys.stderr.isatty():
        return lambda _text: None
    return lambda text: print(f"planning slices of {text}", file=sys.stderr)


def names_of(document: dict[str, Any]) -> list[str]:
    """Return what changes, by name."""
    jobs = document["jobs"]
    return [
        *(one["job"] for part in ("start", "preempt", "hold", "lapse") for one in jobs[part]),
        *(one["service"] for one in document["slices"] if one["steps"]),
        *(one["from"] for one in document["routes"] if one["change"] != "same"),
    ]


def show(output: Output, document: dict[str, Any]) -> None:
    """Print a plan for people."""
    screen = output.screen
    count = document["changes"]
    head = f"{many(count, 'change')}" if count else "No change."
    screen.line(Span(head, "bold"), f"  version {document['version']}, {stamp(document['at'])}")
    _jobs(output, document["jobs"])
    _services(output, document)
    _routes(output, [row for row in document["routes"] if row["change"] != "same"])
    if count:
        screen.line(Span(f"divvy apply --version {document['version']} carries it out.", "dim"))


def _jobs(output: Output, jobs: dict[str, list[dict[str, Any]]]) -> None:
    rows = []
    marks = {
        "start": Span("+ start", "green"),
        "preempt": Span("- preempt", "red"),
        "hold": Span("~ hold", "yellow"),
    }
    for part, mark in marks.items():
        for one in jobs[part][:_SHOWN]:
            nodes = one.get("placement") or one.get("nodes") or []
            where = ", ".join(f"{node} x{gpus}" for node, gpus in nodes) or NONE
            why = one.get("text") or f"devices are due {stamp(one['due'])}"
            rows.append((mark, one["job"], one.get("account", NONE), str(one.get("gpus", NONE)), where, why))
    rows += [
        (Span("~ lapse", "yellow"), one["job"], NONE, NONE, NONE, "its dated slot is given up")
        for one in jobs["lapse"]
    ]
    rows += [
        (Span("  wait", "dim"), one["job"], NONE, str(one["needed"]), NONE, Span(one["text"], "dim"))
        for one in jobs["wait"][:_SHOWN]
    ]
    if rows:
        columns = (
            Column(""),
            Column("JOB"),
            Column("ACCOUNT", drop=2),
            Column("GPUS", right=True),
            Column("WHERE", drop=1),
            Column("WHY", shrink=16),
        )
        output.screen.table(columns, rows)


def _services(output: Output, document: dict[str, Any]) -> None:
    screen = output.screen
    cuts = {one["service"]: one for one in document["slices"]}
    for one in document["services"]:
        lent = f" and {one['lent_gpus']} lent" if one["lent_gpus"] else ""
        screen.line(
            Span(one["service"], "bold"),
            f"  {one['rate_qps']:g} queries/s needs {one['wanted_gpus']} GPUs;"
            f" {one['allocated_gpus']} allocated{lent}, serving up to {one['serves_qps']:g}",
        )
        cut = cuts.get(one["service"])
        if cut is None:
            continue
        for gpu in cut["gpus"]:
            screen.line(f"    {gpu['node']}/GPU{gpu['device']}: {_cut(gpu['from'])} -> {_cut(gpu['to'])}")
        if cut["steps"]:
            low, high = cut["price"]["seconds"]
            lost = cut["price"]["lost_gpc_seconds"]
            screen.line(Span(f"    price {low:g} to {high:g} s, {lost:g} compute-slice seconds", "dim"))
        screen.line(Span(f"    {cut['reason']}", "dim"))


def _cut(layout: list[dict[str, Any]]) -> str:
    return " ".join(f"{one['profile']}@{one['start']}" for one in layout) or "uncut"


def _routes(output: Output, routes: list[dict[str, Any]]) -> None:
    if not routes:
        return
    columns = (
        Column("ROUTE"),
        Column("FROM"),
        Column("TO"),
        Column("BY", shrink=10),
        Column("MS", right=True),
        Column("WHY", shrink=16, drop=1),
    )
    output.screen.table(
        columns,
        [
            (
                row["change"],
                row["from"],
                row["to"] or NONE,
                ", ".join(f"{route['kind']} {route['share']:.0%}" for route in row["routes"]) or NONE,
                f"{row['predicted_ms']:.3g}",
                Span(row["reason"], "dim"),
            )
            for row in routes[:_SHOWN]
        ],
    )
