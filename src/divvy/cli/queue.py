"""divvy queue: what waits, in the order of service, and why."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, complete_any_account, connect
from divvy.cli.render import (
    NONE,
    Column,
    Output,
    Span,
    age,
    clock,
    path,
    seconds,
    state,
)

#: From this width on, reasons are written out.
WIDE: Final = 150
_WAITING: Final = (
    Column("#", right=True),
    Column("Job"),
    Column("Account"),
    Column("Author", shrink=6, drop=2),
    Column("Name", shrink=8, drop=1),
    Column("Devices", right=True),
    Column("Minimum", right=True, drop=3),
    Column("State", drop=5),
    Column("Waiting", right=True, drop=6),
    Column("Ahead", right=True, drop=4),
    Column("Why"),
)
_JOBS: Final = (
    Column("Job"),
    Column("Account"),
    Column("Author", shrink=6, drop=2),
    Column("Name", shrink=8, drop=1),
    Column("Devices", right=True),
    Column("State"),
    Column("Since", drop=4),
    Column("Ran for", right=True, drop=7),
    Column("Protected until", drop=5),
    Column("Exit", right=True, drop=3),
    Column("Where", shrink=12, drop=6),
)


class Which(StrEnum):
    """Which jobs are listed."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    ALL = "all"


def verb(
    which: Annotated[Which, typer.Option("--state", "-s", help="Which jobs.")] = Which.WAITING,
    account: Annotated[
        str,
        typer.Option("--account", "-A", help="Only this subtree.", autocompletion=complete_any_account),
    ] = "",
    author: Annotated[str, typer.Option("--author", help="Only jobs of this person.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Most rows.")] = 50,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """List what waits, in the order of service, and why; or running, ended or all jobs with --state.

    With -q: job ids, in that order.
    """
    client = connect(server)
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if which is Which.WAITING:
        answer = client.get("queue", account=account, author=author, limit=limit)
    else:
        wanted = None if which is Which.ALL else which.value
        answer = client.get("jobs", state=wanted, account=account, author=author, limit=limit)
    if output.machine(answer, [job["id"] for job in answer["jobs"]]):
        return
    if which is Which.WAITING:
        _say_waiting(output, answer)
    else:
        _say_jobs(output, answer)
    output.screen.line(age(answer))


def _say_waiting(output: Output, answer: dict[str, Any]) -> None:
    if not answer["jobs"]:
        output.screen.line("Nothing waits. Running jobs: divvy queue --state running")
        return
    screen = output.screen
    brief = screen.width is not None and screen.width < WIDE
    rows = [
        (
            str(job["position"]),
            Span(job["id"], "bold"),
            path(job["account"]),
            job["author"],
            job["name"] or NONE,
            str(job["gpus"]),
            seconds(job["min_runtime_seconds"]) if job["min_runtime_seconds"] else "free",
            state(job["state"]),
            seconds(job["waiting_seconds"]),
            str(job["ahead_count"]),
            _brief(job["reason"]["code"]) if brief else job["reason"]["text"],
        )
        for job in answer["jobs"]
    ]
    screen.table(_WAITING, rows)
    if brief:
        screen.line(Span("in full and with what would help: divvy explain JOB", "dim"))
    if answer["total"] > len(rows):
        output.screen.line(
            Span(f"{len(rows)} of {answer['total']} waiting jobs; more with --limit", "yellow")
        )


def _brief(code: str) -> str:
    """Return a reason in a word or two, from its code."""
    return code.removeprefix("wait-").replace("-", " ")


def _say_jobs(output: Output, answer: dict[str, Any]) -> None:
    if not answer["jobs"]:
        output.screen.line("No such job. Submit one with: divvy submit --account A --gpus 1 -- CMD")
        return
    output.screen.table(_JOBS, [_job_row(job) for job in answer["jobs"]])
    if answer["next"]:
        output.screen.line(Span(f"the newest {len(answer['jobs'])}; more with --limit", "yellow"))


def _job_row(job: dict[str, Any]) -> tuple[Any, ...]:
    since = job["ended_at"] or job["started_at"] or job["queued_at"] or job["submitted_at"]
    where = ", ".join(f"{place['node']}:{place['gpus']}" for place in job["placement"])
    return (
        Span(job["id"], "bold"),
        path(job["account"]),
        job["author"],
        job["name"] or NONE,
        str(job["gpus"]),
        state(job["state"]),
        clock(since),
        seconds(job["running_seconds"]),
        clock(job["protected_until_at"]),
        # A job that runs again still has the code of the run before; beside "running" it would mislead.
        NONE if job["exit_code"] is None or job["ended_at"] is None else str(job["exit_code"]),
        where or NONE,
    )
