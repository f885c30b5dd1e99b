"""divvy submit: run a command under an account's budget."""

from __future__ import annotations

import os
import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from divvy.cli import submit_slurm
from divvy.cli.client import Client
from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, complete_account, connect
from divvy.cli.render import Output, Span, seconds, state
from divvy.cli.wait import wait_for_end
from divvy.errors import EXIT_FAILED, Fault, InputError

#: The first word that is not an option begins the command: its own options are not ours.
CONTEXT: Final = {"allow_interspersed_args": False}
_SECRETS: Final = ("DIVVY_TOKEN",)


class Kind(StrEnum):
    """What a job is for."""

    BATCH = "batch"
    INTERACTIVE = "interactive"


class Engine(StrEnum):
    """Who takes the job."""

    LOCAL = "local"
    SLURM = "slurm"


Command = Annotated[
    list[str], typer.Argument(metavar="-- CMD [ARG]...", help="What to run; no shell is involved.")
]
Account = Annotated[
    str,
    typer.Option(
        "--account",
        "-A",
        envvar="DIVVY_ACCOUNT",
        help="The account that pays.",
        autocompletion=complete_account,
    ),
]
OrAccount = Annotated[
    list[str] | None,
    typer.Option(help="Another account: the first that is under-served pays. May be repeated."),
]
Cluster = Annotated[list[str] | None, typer.Option(help="Where it may run; any by default. May be repeated.")]
Gpus = Annotated[int, typer.Option("--gpus", "-g", min=1, help="Devices, all or nothing.")]
MinRuntime = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="Protected for this long (15m, 2h); 0: unallocated, that is free and never protected.",
    ),
]
Resumable = Annotated[bool, typer.Option("--resumable", help="After a preemption it goes on where it was.")]
Restart = Annotated[bool, typer.Option("--restart", help="After a preemption it starts again from zero.")]
Name = Annotated[str, typer.Option(help="What people call it.")]
Priority = Annotated[int, typer.Option(help="Order among the jobs of one account.")]
KindOption = Annotated[Kind, typer.Option(help="Interactive jobs are warned before they are preempted.")]
Model = Annotated[str, typer.Option(help="Device model; any by default.")]
PerNode = Annotated[int, typer.Option(min=0, help="Devices on each node; 0: as it fits.")]
Warn = Annotated[
    str, typer.Option(metavar="DURATION", help="Between the warning (SIGUSR1) and TERM; 5s, interactive 60s.")
]
Resume = Annotated[
    str,
    typer.Option(
        metavar="COMMAND", help="Runs instead after a preemption; makes the job resumable. No shell."
    ),
]
TimeLimit = Annotated[str, typer.Option(metavar="DURATION", help="Longest runtime of one attempt; 0: none.")]
Env = Annotated[
    list[str] | None, typer.Option("--env", metavar="K=V", help="Set a variable; may be repeated.")
]
NoEnv = Annotated[bool, typer.Option("--no-env", help="Do not pass this shell's environment on.")]
Cwd = Annotated[Path | None, typer.Option(help="Working directory; this one by default.")]
JobId = Annotated[str, typer.Option("--id", help="Own id; makes a retry harmless.")]
EngineOption = Annotated[Engine, typer.Option("--engine", help="slurm: by sbatch, with this contract.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end and exit with the job's exit code.")]


def verb(
    command: Command,
    account: Account,
    or_account: OrAccount = None,
    gpus: Gpus = 1,
    min_runtime: MinRuntime = "0",
    resumable: Resumable = False,
    restart: Restart = False,
    name: Name = "",
    priority: Priority = 0,
    kind: KindOption = Kind.BATCH,
    model: Model = "",
    cluster: Cluster = None,
    per_node: PerNode = 0,
    time_limit: TimeLimit = "0",
    warn: Warn = "",
    resume: Resume = "",
    env: Env = None,
    no_env: NoEnv = False,
    cwd: Cwd = None,
    job_id: JobId = "",
    wait: Wait = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    engine: EngineOption = Engine.LOCAL,
    server: Server = "",
) -> None:
    """Run a command under an account's budget.

    The working directory and the environment go with the job. The contract is the minimum runtime: for
    that long the job is charged and protected; after it the job goes on, charged, and may be preempted by
    an account that is owed more. Example:

    divvy submit --account lab.vision --gpus 2 --min-runtime 2h --resumable -- python train.py
    """
    contract = {"min_runtime": min_runtime, "resumable": resumable, "restart": restart, "kind": kind.value}
    shape = {"gpus": gpus, "model": model, "per_node": per_node, "time_limit": time_limit}
    launch = {
        "argv": command,
        "cwd": str((cwd or Path.cwd()).absolute()),
        "env": environment(env or [], inherit=not no_env),
    }
    body = {"account": account, "name": name, "priority": priority, **contract, **shape, **launch}
    more = {"or_accounts": or_account, "clusters": cluster, "id": job_id, "warn": warn}
    body |= {key: value for key, value in more.items() if value} | _resume(resume)
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if engine is Engine.SLURM:
        raise typer.Exit(submit_slurm.submit(body, output, inherit=not no_env, wait=wait))
    _send(connect(server), output, body, wait=wait)


def _resume(command: str) -> dict[str, Any]:
    """Return what the command to resume with adds to a request.

    Raises:
        InputError: If its quotes do not match.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError.one("resume-quotes", f"{command!r}: {error}", path="--resume") from error
    return {"resume_argv": words} if words else {}


def _send(client: Client, output: Output, body: dict[str, Any], *, wait: bool) -> None:
    """Submit a job, say so, and wait for its end if asked to."""
    job = client.post("jobs", body=body)
    if output.plain:
        _say(output, job, hint=not wait)
    elif not wait:
        output.machine(job, [job["id"]])
    if wait:
        raise typer.Exit(_wait(client, output, str(job["id"])))


def _wait(client: Client, output: Output, job_id: str) -> int:
    """Wait for the end of a job, say how it ended, and return the exit code that follows from it."""
    job = wait_for_end(client, job_id, spinner=sys.stderr.isatty() and output.plain)
    if not output.machine(job, [job["id"]]):
        output.screen.line(Span(job["id"], "bold"), " ", state(job["state"]), _ending(job))
    return _exit_code(job)


def environment(pairs: list[str], *, inherit: bool) -> dict[str, str]:
    """Return the environment of a job: this shell's unless refused, then the given pairs.

    The token of this client is not passed on.

    Raises:
        InputError: With every pair that is not ``NAME=VALUE``.
    """
    faults = [
        Fault("env-pair", "--env", f"{pair!r} sets nothing", "NAME=VALUE", "add the = and the value")
        for pair in pairs
        if "=" not in pair[1:]
    ]
    if faults:
        raise InputError("the environment cannot be read", faults)
    start = {k: v for k, v in os.environ.items() if k not in _SECRETS} if inherit else {}
    return start | dict(pair.split("=", 1) for pair in pairs)


def _exit_code(job: dict[str, Any]) -> int:
    """Return the exit code of an ended job; a job that ended without one has failed."""
    if job["exit_code"] is not None:
        return int(job["exit_code"])
    return 0 if job["state"] == "finished" else EXIT_FAILED


def _ending(job: dict[str, Any]) -> str:
    parts = [f"after {seconds(job['running_seconds'])}"] if job["running_seconds"] is not None else []
    if job["exit_code"] is not None:
        parts.append(f"exit code {job['exit_code']}")
    if job["cause"] not in (None, job["state"]):
        parts.append(str(job["cause"]).replace("_", " "))
    return f" ({', '.join(parts)})" if parts else ""


def _say(output: Output, job: dict[str, Any], *, hint: bool) -> None:
    devices = f"{job['gpus']} device{'s' if job['gpus'] > 1 else ''}"
    contract = (
        f"protected for {seconds(job['min_runtime_seconds'])}" if job["allocated"] else "free of charge"
    )
    output.screen.line(Span(job["id"], "bold"), f" submitted to {job['account']}: {devices}, {contract}")
    if hint:
        output.screen.line(Span(f"follow it with: divvy logs -f {job['id']}", "dim"))
