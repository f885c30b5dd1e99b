"""divvy cancel: end jobs, or take them out of the queue."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, complete_job, connect
from divvy.cli.refusal import print_error
from divvy.cli.render import Output
from divvy.errors import EXIT_OK, DivvyError


def verb(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", autocompletion=complete_job)],
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """End jobs, or take them out of the queue.

    A running job is warned, given its grace, then ended. Every job is tried; the exit code is that of the
    first refusal. With --json one document is printed for each job.
    """
    client = connect(server)
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    code = EXIT_OK
    for job in jobs:
        try:
            answer = client.delete("jobs", job)
        except DivvyError as error:
            sys.stdout.flush()
            print_error(error, as_json=as_json)
            code = code or error.exit_code
            continue
        if not output.machine(answer, [answer["job"]]):
            output.screen.line(answer["job"], f" will be cancelled (it was {answer['state']})")
    raise typer.Exit(code)
