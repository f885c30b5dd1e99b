"""What one run is as a Ray job: its submission id, entry point, and the order for the driver."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import shlex
import signal
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from divvy.adapters.ray.record import RayNode
from divvy.control.launch import LaunchSpec, run_variables
from divvy.control.ports import Launch
from divvy.units import SECOND

#: Variable by which a job asks to run once, as a Ray program that uses the placement group itself.
ONCE: Final = "DIVVY_RAY_ONCE"
_DRIVER: Final = Path(__file__).with_name("driver.py")
_ENTRY: Final = "exec python3 -c 'import os; exec(os.environ[\"DIVVY_DRIVER\"])' --"
#: Longest environment variable that Linux passes on, and a little less.
_LONGEST: Final = 120_000
_SLACK_SECONDS: Final = 30
_SHOWN: Final = 200


class OrderError(Exception):
    """The job cannot run on Ray as it was submitted."""


def submission_id(owner: str, job: str, attempt: int) -> str:
    """Return the id of a run in Ray: whose, which job, which attempt."""
    plain = job if job.replace("-", "").replace("_", "").isalnum() and job.isascii() else ""
    word = (
        plain if 0 < len(plain) <= _SHOWN else hashlib.sha256(job.encode(errors="surrogatepass")).hexdigest()
    )
    return f"{owner}{word}-{attempt}"


def request(
    run: str,
    launch: Launch,
    detail: LaunchSpec,
    nodes: Mapping[str, RayNode],
    patience_seconds: float,
) -> dict[str, Any]:
    """Return the request that begins a run; every node of its placement must be among the nodes.

    Raises:
        OrderError: If it cannot be one.
    """
    faults = detail.faults()
    if faults:
        raise OrderError("; ".join(str(fault) for fault in faults))
    argv = detail.command(resumed=launch.attempt > 1)
    order = _order(run, launch, detail, nodes, argv, patience_seconds)
    packed = base64.b64encode(zlib.compress(json.dumps(order).encode())).decode()
    if len(packed) > _LONGEST:
        raise OrderError(
            f"its command and environment take {len(packed)} bytes packed, {_LONGEST} can be handed to Ray; "
            "submit it with --no-env"
        )
    return {
        "submission_id": run,
        "entrypoint": f"{_ENTRY} {shlex.quote(' '.join(argv)[:_SHOWN])}",
        "entrypoint_num_cpus": 0,
        "metadata": {"divvy_job": launch.job, "divvy_account": launch.spec.account},
        "runtime_env": {
            "env_vars": {
                "DIVVY_DRIVER": _DRIVER.read_text(encoding="utf-8"),
                "DIVVY_ORDER": packed,
                "RAY_JOB_STOP_WAIT_TIME_S": str(
                    math.ceil(order["warn_seconds"] + detail.grace_seconds) + _SLACK_SECONDS
                ),
            }
        },
    }


def _order(
    run: str,
    launch: Launch,
    detail: LaunchSpec,
    nodes: Mapping[str, RayNode],
    argv: tuple[str, ...],
    patience_seconds: float,
) -> dict[str, Any]:
    """Return what the driver reads (see `driver.Driver`)."""
    variables = {
        **run_variables(launch.job, launch.attempt, launch.spec),
        "DIVVY_NODES": ",".join(f"{name}:{count}" for name, count in launch.placement),
        "DIVVY_PLACEMENT_GROUP": run,
    }
    warn = detail.warn_seconds if detail.warn_signal else 0
    return {
        "run": run,
        "nodes": [[nodes[name].id, count] for name, count in launch.placement],
        "argv": list(argv),
        "cwd": detail.cwd,
        "env": list({**dict(detail.env), **variables}.items()),
        "once": dict(detail.env).get(ONCE, "") not in ("", "0"),
        "patience_seconds": patience_seconds,
        "limit_seconds": launch.spec.time_limit / SECOND,
        "warn_seconds": warn,
        "warn_signal": int(signal.Signals[detail.warn_signal]) if detail.warn_signal else 0,
        "grace_seconds": detail.grace_seconds,
    }
