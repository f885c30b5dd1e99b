"""divvy replay: decide recorded passes again and compare, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import typer

from divvy.adapters.store import archive
from divvy.adapters.store.database import Database, open_database
from divvy.bootstrap import default_database, default_home
from divvy.cli.render import Column, Output, Span, stamp
from divvy.control.journal import Entry, Verdict, advance, case_document, replay, run_case, walk
from divvy.errors import EXIT_CONFLICT, Fault, InputError, NotFoundError
from divvy.planners.jobs import registry

SCHEMA: Final = "divvy.replay/1"
_SHOWN: Final = 5
_COLUMNS: Final = (
    Column("SEQ", right=True),
    Column("AT", drop=1),
    Column("PLANNER", drop=2),
    Column("DECISIONS", right=True),
    Column("VERDICT"),
)


def verb(
    what: str = typer.Argument("", help="Number of a journal entry, or a case file. [the last entry]"),
    last: int | None = typer.Option(None, "--last", min=1, help="The last N passes."),
    export: Path | None = typer.Option(None, "--export", help="Write the pass as a case file, and stop."),
    accept: bool = typer.Option(
        False, "--accept", help="Make what comes out the expected plan of the case file."
    ),
    home: Path | None = typer.Option(None, "--home", help="State directory. [$DIVVY_HOME]"),
    database: str = typer.Option("", "--database", envvar="DIVVY_DATABASE", help="postgresql+psycopg://..."),
    as_json: bool = typer.Option(False, "--json", help="Print the verdicts as JSON (divvy.replay/1)."),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Print the numbers of the passes that differ."),
    no_truncate: bool = typer.Option(False, "--no-truncate", help="Ignore the terminal's width."),
) -> None:
    """Decide recorded passes again with the planner of this installation and compare with what was decided.

    Reads the journal only; a running control plane is not disturbed. The exit code is 6 where a plan differs.
    """
    if what and not what.isdigit():
        verdicts = [_run_file(Path(what), accept=accept)]
    else:
        url = database or default_database((home or default_home()).absolute())
        with closing(_Journal(url)) as journal:
            if export is not None:
                _export(journal.database, _number(what, journal.database), export)
                return
            verdicts = list(_run(journal.database, what, last))
    _print(verdicts, Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate))
    if not all(verdict.same for verdict in verdicts):
        raise typer.Exit(EXIT_CONFLICT)


class _Journal:
    def __init__(self, url: str) -> None:
        self.database = open_database(url)
        file = self.database.file
        if file is not None and not file.exists():
            raise NotFoundError.one(
                "journal-missing",
                f"no journal at {file}",
                path="--home",
                fix="name the state directory with --home, or start `divvy up`",
            )

    def close(self) -> None:
        self.database.dispose()


def _number(text: str, database: Database) -> int:
    return int(text) if text else archive.recent_pass(database, 1)


def _run(database: Database, what: str, last: int | None) -> Iterator[Verdict]:
    if what and last is not None:
        raise InputError.one("replay-both", "a number and --last", path="SEQ", allowed="one of the two")
    _, newest = archive.bounds(database)
    first = int(what) if what else archive.recent_pass(database, last or 1)
    until = int(what) if what else newest
    state, after = archive.state_before(database, first)
    steps = archive.steps(database, after=after, until=until)
    found = False
    for verdict in replay(state, steps, registry.create, lambda seq: first <= seq <= until):
        found = True
        yield verdict
    if not found:
        raise NotFoundError.one(
            "entry-planless",
            f"journal entry {first} records events without a pass",
            path="SEQ",
            fix="choose a neighbour, or --last N",
        )


def _export(database: Database, seq: int, path: Path) -> None:
    """Write one pass with everything it needs."""
    state, after = archive.state_before(database, seq)
    for step in archive.steps(database, after=after, until=seq):
        if isinstance(step, Entry) and step.seq == seq:
            if step.plan is None:
                raise NotFoundError.one("entry-planless", f"journal entry {seq} has no plan", path="SEQ")
            advance(state, step.happened, seq)
            _write_case(path, case_document(state, step))
            typer.echo(f"{path}: pass {seq}; `divvy replay {path}` runs it again anywhere")
            return
        walk(state, step)


def _run_file(path: Path, *, accept: bool) -> Verdict:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read",
            [Fault("case-unreadable", str(path), str(error), "a number, or a file of --export")],
        ) from error
    if not isinstance(document, dict):
        raise InputError.one("case-schema", f"{path} is not a case file", path=str(path))
    verdict = run_case(document, registry.create)
    if accept and not verdict.same:
        _write_case(path, {**document, "plan": verdict.replayed})
        verdict = run_case({**document, "plan": verdict.replayed}, registry.create)
    return verdict


def _write_case(path: Path, document: dict[str, Any]) -> None:
    text = json.dumps(document, sort_keys=True, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _print(verdicts: list[Verdict], output: Output) -> None:
    document = {
        "schema": SCHEMA,
        "same": all(verdict.same for verdict in verdicts),
        "passes": [_document(verdict) for verdict in verdicts],
    }
    if output.machine(document, (verdict.seq for verdict in verdicts if not verdict.same)):
        return
    rows = [
        (
            str(verdict.seq),
            stamp(verdict.at / 1000),
            verdict.planner,
            str(len(verdict.recorded["decisions"])),
            Span("same", "green") if verdict.same else Span("differs", "red"),
        )
        for verdict in verdicts
    ]
    output.screen.table(_COLUMNS, rows)
    for verdict in verdicts:
        differences = verdict.differences()
        for line in differences[:_SHOWN]:
            output.screen.line(f"  {verdict.seq}: {line}")
        if len(differences) > _SHOWN:
            output.screen.line(
                f"  {verdict.seq}: and {len(differences) - _SHOWN} more (--json shows both plans)"
            )


def _document(verdict: Verdict) -> dict[str, Any]:
    document: dict[str, Any] = {
        "seq": verdict.seq,
        "at": verdict.at / 1000,
        "planner": verdict.planner,
        "decisions": len(verdict.recorded["decisions"]),
        "same": verdict.same,
    }
    if not verdict.same:
        document |= {
            "differences": verdict.differences(),
            "recorded": verdict.recorded,
            "replayed": verdict.replayed,
        }
    return document
