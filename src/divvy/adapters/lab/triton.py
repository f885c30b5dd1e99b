"""Finds a Python that can run real Triton servers (nvidia-pytriton), and says why where there is none."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Final

from divvy.adapters.lab.spec import SliceSpec
from divvy.errors import UnavailableError

#: Names the Python of a virtual environment that has nvidia-pytriton.
VARIABLE: Final = "DIVVY_TRITON_PYTHON"
_DEBIAN: Final = "/usr/bin/python3.11"
_SCRIPT: Final = Path(__file__).with_name("triton_server.py")
_SECONDS: Final = 60


def find_python() -> str:
    """Return the Python that runs Triton.

    Raises:
        UnavailableError: If there is none; says what to do.
    """
    python = os.environ.get(VARIABLE, _DEBIAN)
    how = (
        f"{_DEBIAN} -m venv triton && triton/bin/pip install nvidia-pytriton;"
        f" {VARIABLE}=triton/bin/python divvy lab slices ..."
    )
    if not Path(python).exists():
        raise UnavailableError.one("lab-triton", f"no {python}", path="--work", allowed="sleep, cpu", fix=how)
    done = subprocess.run(
        [python, "-c", "import pytriton"], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        why = f"{python} cannot import pytriton: {last}"
        raise UnavailableError.one("lab-triton", why, path="--work", allowed="sleep, cpu", fix=how)
    return python


def command(python: str) -> list[str]:
    """Return the command of one server."""
    return [python, str(_SCRIPT)]


def order(spec: SliceSpec, port: int) -> bytes:
    """Return the first line that the server reads; the ports of gRPC and of metrics are free ones."""
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        others = one.getsockname()[1], two.getsockname()[1]
    document = {
        "model": spec.model,
        "times_us": spec.times_us,
        "http": port,
        "grpc": others[0],
        "metrics": others[1],
    }
    return json.dumps(document).encode() + b"\n"
