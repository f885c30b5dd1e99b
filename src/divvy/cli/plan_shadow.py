"""The report of `divvy plan --shadow`: what plans that nobody carried out would have done."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from divvy.adapters.store import archive
from divvy.adapters.store.database import open_database
from divvy.cli.moment import moment
from divvy.cli.render import NONE, Column, Output, Span, many, seconds, stamp
from divvy.control.shadow import shadow_report
from divvy.errors import NotFoundError

_SHOWN: Final = 20


def show_shadow(place: tuple[Path, str], since: str, output: Output) -> None:
    """Print the report of a period; a running control plane is not disturbed.

    Raises:
        NotFoundError: If there is no journal.
    """
    database = open_database(place[1])
    try:
        if database.file is not None and not database.file.exists():
            raise NotFoundError.one(
                "journal-missing",
                f"no journal at {database.file}",
                path="--home",
                fix="run `divvy up --engine slurm --mode observe` beside the scheduler first",
            )
        begin = round(moment(since, "--since", time.time()) * 1000)
        first, _ = archive.bounds(database)
        document = shadow_report(archive.steps(database, after=first - 1), begin)
    finally:
        database.dispose()
    if not output.machine(document, (row["job"] for row in document["jobs"])):
        _print(output, document)


def _print(output: Output, document: dict[str, Any]) -> None:
    screen = output.screen
    screen.line(
        Span(f"{document['passes']} plans", "bold"),
        f" that nobody carried out since {stamp(document['since'])}: {many(document['starts'], 'start')},"
        f" {many(document['preemptions'], 'preemption')}, {many(document['holds'], 'dated slot')} proposed",
    )
    sooner = document["sooner_seconds"]
    if sooner is not None:
        screen.line(
            f"jobs that both started: {document['both']}; median {seconds(abs(sooner['p50']))}"
            f" {'sooner' if sooner['p50'] >= 0 else 'later'} here, 90% between {seconds(sooner['p5'])} and"
            f" {seconds(sooner['p95'])}"
        )
    rows = [
        (
            row["job"],
            row["account"],
            str(row["gpus"]),
            stamp(row["here"]) if row["here"] is not None else NONE,
            stamp(row["there"]) if row["there"] is not None else "not yet",
            row["reason"],
        )
        for row in document["jobs"][:_SHOWN]
    ]
    columns = (
        Column("JOB"),
        Column("ACCOUNT", drop=2),
        Column("GPUS", right=True),
        Column("HERE"),
        Column("THERE"),
        Column("WHY", shrink=16, drop=1),
    )
    screen.table(columns, rows)
    screen.line(Span(document["note"], "dim"))
