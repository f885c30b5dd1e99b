"""Submit through Slurm: the same options, as an sbatch with the contract in its comment."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any, Final

from divvy.adapters.slurm.contract import Contract, write_contract
from divvy.cli.render import Output, Span
from divvy.errors import InputError, UnavailableError
from divvy.units import MINUTE, parse_duration

#: What sbatch itself needs, whatever goes on to the job.
_SBATCH_NEEDS: Final = ("PATH", "HOME", "USER", "SLURM_CONF", "LANG")
_NOT_SLURMS: Final = {
    "id": "--id",
    "or_accounts": "--or-account",
    "clusters": "--cluster",
    "resume_argv": "--resume",
}


def command_of(body: Mapping[str, Any], *, inherit: bool, wait: bool) -> list[str]:
    """Return the sbatch command of a submission; its script comes by standard input.

    Raises:
        InputError: If a duration in it cannot be read, or an id was chosen: Slurm gives ids.
    """
    if there := [option for key, option in _NOT_SLURMS.items() if key in body]:
        fix = "leave them away: Slurm gives ids, and a job has one account"
        raise InputError.one(
            "slurm-options", f"{', '.join(there)} cannot go to Slurm", path=there[0], fix=fix
        )
    try:
        minimum, limit = parse_duration(body["min_runtime"]), parse_duration(body["time_limit"])
        warn = parse_duration(body["warn"]) if "warn" in body else None
    except ValueError as error:
        raise InputError.one("duration", str(error), path="--min-runtime, --time-limit") from error
    path = body["account"] if "." in body["account"] else ""
    contract = Contract(
        minimum,
        resumable=body["resumable"],
        restart=body["restart"],
        interactive=body["kind"] == "interactive",
        priority=body["priority"],
        warn=warn,
        account=path,
    )
    model = f"{body['model']}:" if body["model"] else ""
    command = ["sbatch", "--parsable", f"--comment={write_contract(contract)}", f"--chdir={body['cwd']}"]
    if body["per_node"]:
        nodes, rest = divmod(body["gpus"], body["per_node"])
        if rest:
            raise InputError.one(
                "per-node-uneven", f"{body['gpus']} GPUs do not divide so", path="--per-node"
            )
        command += [f"--nodes={nodes}", f"--gres=gpu:{model}{body['per_node']}"]
    else:
        command.append(f"--gpus={model}{body['gpus']}")
    if not path:
        command.append(f"--account={body['account']}")
    if body["name"]:
        command.append(f"--job-name={body['name']}")
    if limit:
        command.append(f"--time={-(-limit // MINUTE)}")
    if body["resumable"] or body["restart"]:
        command.append("--requeue")
    if not inherit:
        command.append(f"--export={','.join(body['env']) or 'NONE'}")
    return [*command, "--wait"] if wait else command


def submit(body: Mapping[str, Any], output: Output, *, inherit: bool, wait: bool) -> int:
    """Run sbatch and say what it answered; return the exit code: the job's own, where it was waited for.

    Raises:
        InputError: If sbatch refuses the job.
        UnavailableError: If there is no sbatch.
    """
    command = command_of(body, inherit=inherit, wait=wait)
    needed = {name: os.environ[name] for name in _SBATCH_NEEDS if name in os.environ}
    script = f"#!/bin/sh\nexec {shlex.join(body['argv'])}\n"
    try:
        done = subprocess.run(
            command, input=script, env=needed | body["env"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise UnavailableError.one("slurm-missing", f"sbatch cannot be run ({error})") from error
    job = done.stdout.strip().partition(";")[0].partition("\n")[0]
    if not job:
        said = done.stderr.strip().replace("sbatch: error: ", "")
        raise InputError.one("slurm-refused", f"Slurm refuses the job: {said}")
    document = {"schema": "divvy.submit.slurm/1", "id": job, "account": body["account"], "command": command}
    if not output.machine(document, [job]):
        output.screen.line(Span(job, "bold"), f" submitted to Slurm for {body['account']}")
    return done.returncode if wait else 0
