"""Runs on disk and in processes: begin one, speak to it, find it again, clear up after it.

DIR/jobs/ID/ATTEMPT/order.json     what to run (engine)
                    control        FIFO to the shim: causes, one per line; readable while it lives
                    started.json   claim of the run, written just before the command (shim)
                    ended.json     exit code and end time (shim)
                    stdout stderr  logs, owned by the submitter
                    shim.log       complaints of the shim itself; empty
DIR/live/ID.ATTEMPT                marks a run whose end the engine has not yet reported
DIR/engine.fifo                    FIFO to the engine: runs that have a new record
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from divvy.adapters.local.shim import record
from divvy.adapters.local.shim.main import ENDED, ORDER, STARTED
from divvy.adapters.local.shim.processes import kill_groups, members, remove_groups
from divvy.control.launch import run_directory

CONTROL: Final = "control"
SHIM_LOG: Final = "shim.log"
_BOOT: Final = "import sys; sys.path.append(sys.argv[1]); from shim.main import main; main(sys.argv[2])"
#: Some interpreters are linked with libraries that lie in unusual places.
_INTERPRETER_NEEDS: Final = ("LD_LIBRARY_PATH",)
_SHIM_HOME: Final = str(Path(__file__).parent)


class Standing(IntEnum):
    """What the disk and the processes say about a run."""

    NEVER = 0
    """It was not begun, and nobody is about to: it may begin."""
    ALIVE = 1
    """Its shim lives."""
    ENDED = 2
    """It has an end record."""
    LOST = 3
    """It was begun, its shim is gone and left no end record."""


@dataclass(slots=True)
class Shelf:
    """The directory of one run.

    Attributes:
        root: Directory of the engine.
        job: Id.
        attempt: Number of the run.
    """

    root: Path
    job: str
    attempt: int

    @property
    def path(self) -> Path:
        """Return the directory."""
        return run_directory(self.root, self.job, self.attempt)

    @property
    def mark(self) -> Path:
        """Return the file that says that the run's end is still to be reported."""
        path = self.path
        return self.root / "live" / f"{path.parent.name}.{path.name}"

    @classmethod
    def marked(cls, root: Path) -> list[Shelf]:
        """Return the runs that are marked as not reported; marks without an order are cleared away."""
        found: list[Shelf] = []
        for mark in sorted((root / "live").iterdir()):
            name, _, attempt = mark.name.rpartition(".")
            order = _read_order(root / "jobs" / name / attempt)
            if order is None:
                mark.unlink()
            else:
                found.append(cls(root, order["job"], order["attempt"]))
        return found

    def resumes(self) -> bool:
        """Return whether an earlier run of the job has begun, as far as its record is still there."""
        earlier = (Shelf(self.root, self.job, attempt) for attempt in range(1, self.attempt))
        return any(shelf.started() is not None for shelf in earlier)

    def unmark(self) -> None:
        """Note that the end of the run was reported."""
        self.mark.unlink(missing_ok=True)

    def order(self) -> dict[str, Any] | None:
        """Return the order; None where there is none."""
        return _read_order(self.path)

    def started(self) -> dict[str, Any] | None:
        """Return the claim of the run; None where it was not begun."""
        return record.read(str(self.path / STARTED))

    def ended(self) -> dict[str, Any] | None:
        """Return the end record; None where there is none."""
        return record.read(str(self.path / ENDED))

    def look(self) -> tuple[Standing, int]:
        """Return where the run stands, and a descriptor to speak with its shim if that lives.

        The line is opened first: a shim that ends meanwhile has written its record before.
        """
        if not self.path.exists():
            return Standing.NEVER, -1
        line = self._dial()
        if line >= 0:
            return Standing.ALIVE, line
        if self.ended() is not None:
            return Standing.ENDED, -1
        return (Standing.NEVER if self.started() is None else Standing.LOST), -1

    def _dial(self) -> int:
        try:
            return os.open(self.path / CONTROL, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return -1
        except OSError as error:
            if error.errno == errno.ENXIO:  # nobody holds the reading end: the shim is gone
                return -1
            raise

    def begin(self, order: dict[str, Any]) -> tuple[int, int]:
        """Start a shim for the run; return (line to it, its process id).

        Raises:
            OSError: If the directory cannot be written or no process can be had.
        """
        path = self.path
        self.mark.touch(mode=0o600)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.write(str(path / ORDER), order, durable=False)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path / CONTROL, 0o600)
        ear = os.open(path / CONTROL, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        line = -1
        try:
            line = os.open(path / CONTROL, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            return line, _spawn(str(path), order["key"], ear)
        except OSError:
            if line >= 0:
                os.close(line)
            raise
        finally:
            os.close(ear)

    def complaint(self) -> str:
        """Return the last line of the shim's own log."""
        try:
            lines = (self.path / SHIM_LOG).read_text(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def last_sign(self) -> int:
        """Return when the run last showed life, ms: its shim touches its claim now and then."""
        return (self.path / STARTED).stat().st_mtime_ns // 1_000_000

    def sweep(self, order: dict[str, Any]) -> bool:
        """Kill what a dead shim left behind; return whether nothing is left of the run."""
        groups = order["groups"]
        kill_groups(groups)
        strays = _strays(order["token"])
        for pid in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        return not strays and not members(groups) and remove_groups(groups)


def _read_order(directory: Path) -> dict[str, Any] | None:
    """Return the order in a run's directory; None where there is none, or none that a power cut left whole.

    It is not forced to the disk before the run begins: after a power cut nothing of the run is left to be
    told, or to be cleared away.
    """
    try:
        return record.read(str(directory / ORDER))
    except ValueError:
        return None


def _spawn(directory: str, key: str, ear: int) -> int:
    """Start a shim, detached from this process, and return its process id.

    `posix_spawn` does not copy this process, however large its tables are.
    """
    log = os.O_WRONLY | os.O_CREAT | os.O_APPEND  # without CLOEXEC, which glibc would leave on it
    command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT, _SHIM_HOME, directory, f"divvy:{key}"]
    return os.posix_spawn(
        sys.executable,
        command,
        {name: os.environ[name] for name in _INTERPRETER_NEEDS if name in os.environ},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, ear, 0),
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, f"{directory}/{SHIM_LOG}", log, 0o600),
        ],
        setsid=True,
        setsigmask=(),
    )


def _strays(token: str) -> list[int]:
    """Return the processes that carry a run's token in their environment, wherever they went."""
    mark = f"DIVVY_RUN={token}".encode()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue  # gone, or somebody else's: not a run of ours
        if mark in environment.split(b"\0"):
            found.append(int(entry.name))
    return found
