"""What `divvy up --sample` shows besides its fleet: a slice plan, a topology, routes; made by the real verbs.

The inputs are examples and the page says so; the figures are computed when the sample starts.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

MACHINE: Final = Path(__file__).parent / "examples" / "eight-gpus.txt"

#: (name on the page, the verb that makes it, as its arguments)
SHOWN: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("example-machine", ("topo", "show", str(MACHINE))),
    ("example-batch", ("route", "plan", "--topo", str(MACHINE), "--transfers", "random:n=12,seed=1")),
    (
        "example-resnet50",
        ("slices", "plan", "--profile", "fitted:resnet50", "--gpus", "2", "--queries", "4000"),
    ),
)
_SECONDS: Final = 120.0
_LAST: Final = 15


def show_examples(socket: Path) -> None:
    """Make the examples and put them on the page behind a socket; what fails is left out."""
    for name, verb in SHOWN:
        made = _run([*verb, "--json"], socket)
        if made:
            told = shlex.join(["divvy", *verb]).replace(f"{MACHINE.parent}{os.sep}", "")
            _run(["publish", "-", "--name", name, "--example", "--command", told], socket, made)


def _run(arguments: list[str], socket: Path, given: bytes = b"") -> bytes:
    """Return what a verb prints, run at low priority; nothing where it fails or takes too long."""
    command = [sys.executable, "-m", "divvy", *arguments]
    environment = {**os.environ, "DIVVY_HOME": str(socket.parent), "DIVVY_SERVER": ""}
    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as process:
            os.setpriority(os.PRIO_PROCESS, process.pid, _LAST)
            try:
                made, _ = process.communicate(given, _SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                return b""
    except OSError:
        return b""
    return made if process.returncode == 0 else b""
