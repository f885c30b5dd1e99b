"""divvy backup: copy the state of a control plane to a file, while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from divvy.cli.options import AsJson, NoTruncate, Quiet
from divvy.cli.render import Output

Home = Annotated[Path | None, typer.Option("--home", help="State directory. [$DIVVY_HOME]")]


def verb(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the copy goes.")],
    home: Home = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
) -> None:
    """Copy the store (jobs, ledger, budgets, journal) to one file, whole or not at all.

    It may run meanwhile; the copy is what was durable at one moment, and is read through before it gets its
    name. Only the embedded store: with PostgreSQL use pg_dump. What jobs wrote is not in it.
    """
    from divvy.adapters.store.copies import copy_out  # noqa: PLC0415 - as every verb: when it is used
    from divvy.bootstrap import default_home  # noqa: PLC0415

    source = (home or default_home()).absolute() / "divvy.db"
    schema = copy_out(source, file.absolute(), replace=force)
    answer = {
        "schema": "divvy.backup/1",
        "store": str(source),
        "file": str(file.absolute()),
        "bytes": file.stat().st_size,
        "store_schema": schema,
    }
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(answer, [answer["file"]]):
        output.screen.line(f"{answer['file']}: {answer['bytes']:,} bytes, schema {schema}, read through")
