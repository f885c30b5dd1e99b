"""A `divvy up` that can be killed, starved and lied to, on a disk of its own where that can be had."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from divvy.cli.client import Client, Target
from divvy.errors import DivvyError

BUDGET: Final = """
[accounts.lab]
share = 100
[accounts.lab.vision]
share = 60
[accounts.lab.language]
share = 40
"""
SLOTS: Final = 4
_READY_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 10.0
_DISK_BYTES: Final = 1 << 30
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

#: Run by every Python of the control plane before anything else: its wall clock is off by what a file says.
_LYING_CLOCK: Final = """
import os, time
_real, _real_ns, _file = time.time, time.time_ns, os.environ.get("SOAK_CLOCK", "")
def _off():
    try:
        with open(_file) as file:
            return int(file.read() or 0)
    except (OSError, ValueError):
        return 0
time.time = lambda: _real() + _off()
time.time_ns = lambda: _real_ns() + _off() * 1_000_000_000
"""


class Plane:
    """One state directory and the `divvy up` on it.

    Args:
        base: An empty directory; the state goes into ``disk`` there.
        own_disk: Whether ``disk`` is a file system of its own, which may be filled.
    """

    def __init__(self, base: Path, *, own_disk: bool) -> None:
        self.base, self.own_disk = base, own_disk
        self.disk = base / "disk"
        self.home = self.disk / "home"
        self.port = _free_port()
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._clock = base / "clock"
        lies = base / "lies"
        lies.mkdir()
        (lies / "sitecustomize.py").write_text(_LYING_CLOCK, encoding="utf-8")
        self._budget = base / "budget.toml"
        self._budget.write_text(BUDGET, encoding="utf-8")
        path = os.pathsep.join(filter(None, [str(lies), os.environ.get("PYTHONPATH", "")]))
        self._environment = os.environ | {"PYTHONPATH": path, "SOAK_CLOCK": str(self._clock)}

    def client(self) -> Client:
        """Return a client over the socket of the machine."""
        return Client(Target("soak", self.home / "socket"), timeout=_ANSWER_SECONDS)

    def start(self) -> None:
        """Start `divvy up`, without waiting for it."""
        command = [sys.executable, "-m", "divvy", "up", "--home", str(self.home), "--no-browser"]
        command += ["--port", str(self.port), "--slots", str(SLOTS), "--budget", str(self._budget)]
        with (self.base / "up.out").open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, env=self._environment)
        self.starts += 1

    def alive(self) -> bool:
        """Return whether the supervisor lives."""
        return self._process is not None and self._process.poll() is None

    def until_ready(self, seconds: float = _READY_SECONDS) -> bool:
        """Wait until it answers; start it again where it has ended meanwhile."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if not self.alive():
                self.start()
            with suppress(DivvyError):
                if self.client().get("status")["totals"]["gpus"]:
                    return True
            time.sleep(0.1)
        return False

    def kill(self, who: str) -> bool:
        """Send SIGKILL to the supervisor, the loop or the API; return whether there was one."""
        if who == "supervisor":
            if self._process is None or not self.alive():
                return False
            self._process.kill()
            self._process.wait()
            return True
        pid = self.children().get(who)
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return True

    def children(self) -> dict[str, int]:
        """Return the processes of loop and API by name."""
        found: dict[str, int] = {}
        if self._process is None:
            return found
        with suppress(OSError):
            task = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
            for pid in task.read_text(encoding="ascii").split():
                words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
                found |= {n: int(pid) for n in ("loop", "api") if f"divvy.service.{n}_process" in words}
        return found

    def resident(self) -> dict[str, int]:
        """Return the resident bytes of loop and API."""
        found: dict[str, int] = {}
        for name, pid in self.children().items():
            with suppress(OSError):
                pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
                found[name] = int(pages) * _PAGE_BYTES
        return found

    def set_clock(self, seconds: int) -> None:
        """Set the wall clock that the control plane sees so far off the machine's."""
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(str(seconds), encoding="ascii")
        fresh.replace(self._clock)

    def stop(self) -> None:
        """Ask `divvy up` to end, and see that it does."""
        if self._process is None or not self.alive():
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def plane() -> Iterator[Plane]:
    """Make a control plane in a temporary directory; root gives it a file system of its own."""
    base = Path(tempfile.mkdtemp(prefix="dvs"))
    disk = base / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES},mode=0755", "tmpfs", str(disk)]
    own = os.geteuid() == 0 and subprocess.run(mount, check=False, capture_output=True).returncode == 0
    made = Plane(base, own_disk=own)
    try:
        yield made
    finally:
        made.stop()
        if own:
            subprocess.run(["umount", "--lazy", str(disk)], check=False)
        shutil.rmtree(base, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
