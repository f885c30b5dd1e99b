"""divvy slurm: look at a Slurm as Divvy sees it, and take Divvy's hands off it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from divvy.adapters.slurm import heartbeat
from divvy.adapters.slurm.identity import ids
from divvy.adapters.slurm.lua import job_submit_lua
from divvy.adapters.slurm.record import MARK, View
from divvy.adapters.slurm.settings import SlurmSettings
from divvy.adapters.slurm.shell import CommandLine
from divvy.adapters.slurm.text import chunks
from divvy.bootstrap import default_home
from divvy.bootstrap.slurm import slurm_settings
from divvy.cli.options import AsJson
from divvy.cli.render import Output, Screen
from divvy.errors import EXIT_FAILED, InputError
from divvy.units import SECOND, parse_duration

verb = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Config = Annotated[
    Path | None, typer.Option("--slurm-config", help="As for `divvy up --engine slurm` (TOML).")
]
Home = Annotated[Path | None, typer.Option("--home", help="State directory of `divvy up`. [$DIVVY_HOME]")]


def _settings(config: Path | None, home: Path | None) -> SlurmSettings:
    return slurm_settings((home or default_home()).absolute(), str(config) if config is not None else "")


@verb.command()
def check(config: Config = None, home: Home = None, as_json: AsJson = False) -> None:
    """Read the Slurm once and say what Divvy would work with; changes nothing."""
    settings = _settings(config, home)
    view = CommandLine(settings).read(time.time_ns() // 1_000_000, frozenset())
    document = _summary(view, settings)
    if Output(as_json=as_json, quiet=False).machine(document, []):
        return
    screen = Screen(sys.stdout)
    for node in document["nodes"]:
        screen.line(
            f"{node['gpus']:>6} x {node['model']:<16} on {node['count']} nodes, weight {node['weight']}"
        )
    counts = document["jobs"]
    screen.line(
        f"jobs with GPUs: {counts['running']} running on {counts['running_gpus']} GPUs, {counts['waiting']} "
        f"waiting for {counts['waiting_gpus']}, {counts['held_by_divvy']} of them held by Divvy"
    )
    age = document["heartbeat_age_seconds"]
    screen.line(f"heartbeat {settings.heartbeat}: {'none' if age is None else f'{age:.0f} s old'}")
    screen.line(f"one look takes {document['took_ms']:.0f} ms in {document['calls']} requests")


def _summary(view: View, settings: SlurmSettings) -> dict[str, Any]:
    models: dict[str, list[int]] = {}
    for node in view.nodes.values():
        for model, count in node.gpus.models or (("gpu", node.gpus.total),):
            entry = models.setdefault(model, [0, 0])
            entry[0] += count
            entry[1] += 1
    jobs = [job for job in view.jobs.values() if job.gpus.total]
    waiting, running = [job for job in jobs if job.waits], [job for job in jobs if job.holds]
    return {
        "schema": "divvy.slurm/1",
        "nodes": [
            {"model": model, "gpus": gpus, "count": count, "weight": settings.weight_of(model)}
            for model, (gpus, count) in sorted(models.items())
        ],
        "jobs": {
            "running": len(running),
            "running_gpus": sum(job.gpus.total for job in running),
            "waiting": len(waiting),
            "waiting_gpus": sum(job.gpus.total for job in waiting),
            "held_by_divvy": len(heartbeat.to_free(waiting)),
        },
        "slurm_accounts": sorted({job.account for job in jobs}),
        "heartbeat_age_seconds": heartbeat.age_seconds(Path(settings.heartbeat)),
        "took_ms": round(view.took_ms, 1),
        "calls": view.calls,
    }


@verb.command("lua")
def print_lua(config: Config = None, home: Home = None) -> None:
    """Print the job_submit.lua that holds managed jobs while Divvy lives."""
    sys.stdout.write(job_submit_lua(_settings(config, home)))


@verb.command("fail-open")
def fail_open(
    config: Config = None,
    home: Home = None,
    after: Annotated[
        str, typer.Option(metavar="DURATION", help="Age of the heartbeat; as in the file by default.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Release the jobs that Divvy holds back, if its heartbeat is old; for cron, on a host of Slurm's.

    It needs Slurm's commands and the heartbeat file, nothing else. A fresh heartbeat: nothing is done.
    """
    settings = _settings(config, home)
    limit = settings.fail_open_after / SECOND if not after else _seconds(after)
    age = heartbeat.age_seconds(Path(settings.heartbeat))
    freed: list[str] = []
    if age is None or age > limit:
        freed = _free(CommandLine(settings))
    document = {"schema": "divvy.slurm.fail-open/1", "heartbeat_age_seconds": age, "released": freed}
    if not Output(as_json=as_json, quiet=False).machine(document, freed):
        told = "no heartbeat" if age is None else f"heartbeat {age:.0f} s old"
        sys.stdout.write(f"{told}, allowed {limit:.0f} s: {len(freed)} jobs released\n")


@verb.command("let-go")
def let_go(config: Config = None, home: Home = None, as_json: AsJson = False) -> None:
    """Undo all that Divvy did to this Slurm: release held jobs, set nice to 0, delete reservations.

    For rolling back, after `divvy up` was stopped. Jobs that run go on.
    """
    settings = _settings(config, home)
    slurm = CommandLine(settings)
    freed = _free(slurm)
    view = slurm.read(time.time_ns() // 1_000_000, frozenset())
    niced = ids({name: None for name, job in view.jobs.items() if job.waits and job.nice < 0})
    troubles = [
        slurm.carry_out(("scontrol", "update", f"JobId={','.join(part)}", "Nice=0")) for part in chunks(niced)
    ]
    named = {
        name: None for name, job in view.jobs.items() if job.waits and job.reservation.startswith(f"{MARK}_")
    }
    troubles += (
        slurm.carry_out(("scontrol", "update", f"JobId={','.join(part)}", "ReservationName="))
        for part in chunks(ids(named))
    )
    kept = sorted(name for name in view.reservations if name.startswith(f"{MARK}_"))
    troubles += (slurm.carry_out(("scontrol", "delete", f"ReservationName={name}")) for name in kept)
    said = [trouble for trouble in troubles if trouble]
    document = {
        "schema": "divvy.slurm.let-go/1",
        "released": freed,
        "nice_reset": niced,
        "reservations_deleted": kept,
        "troubles": said,
    }
    if not Output(as_json=as_json, quiet=False).machine(document, freed):
        sys.stdout.write(
            f"{len(freed)} jobs released, {len(niced)} nice values set to 0, "
            f"{len(kept)} reservations deleted\n"
        )
        sys.stdout.writelines(f"{trouble}\n" for trouble in said)
    if said:
        raise typer.Exit(EXIT_FAILED)


def _free(slurm: CommandLine) -> list[str]:
    view = slurm.read(time.time_ns() // 1_000_000, frozenset())
    freed = ids(dict.fromkeys(heartbeat.to_free(view.jobs.values())))
    for part in chunks(freed):
        slurm.carry_out(("scontrol", "release", ",".join(part)))
    return freed


def _seconds(text: str) -> float:
    try:
        return parse_duration(text) / SECOND
    except ValueError as error:
        raise InputError.one("duration", str(error), path="--after") from error
