"""Runs a balancer in the foreground on loopback, and ends it by its process."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from divvy.errors import EngineError, UnavailableError

_START_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 5.0


def find_program(name: str) -> str:
    """Return the path of a program, also where only root's path has it.

    Raises:
        UnavailableError: If it is not installed.
    """
    for path in (None, "/usr/sbin:/usr/local/sbin:/sbin"):
        found = shutil.which(name, path=path)
        if found:
            return found
    raise UnavailableError.one("program-missing", f"{name} is not installed", fix=f"apt-get install {name}")


def free_port() -> int:
    """Return a port of loopback that nobody listens on now."""
    with socket.socket() as ear:
        ear.bind(("127.0.0.1", 0))
        return int(ear.getsockname()[1])


class Program:
    """A server program: started with a configuration, ended at the end of the block.

    Args:
        command: Builds the command from the path of the configuration.
        config: Text of the configuration.
        home: Directory for its files.
        port: Where it will listen.
    """

    def __init__(self, command: Callable[[Path], Sequence[str]], config: str, home: Path, port: int) -> None:
        self._command, self._config, self._home, self._port = command, config, home, port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return where it listens."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Return its process."""
        assert self._process is not None  # noqa: S101 - inside the block
        return self._process.pid

    def __enter__(self) -> Self:
        """Start it and wait until it listens.

        Raises:
            EngineError: If it does not.
        """
        self._home.mkdir(parents=True, exist_ok=True)
        path = self._home / "config"
        path.write_text(self._config, encoding="utf-8")
        log = self._home / "output"
        with log.open("wb") as sink:
            self._process = subprocess.Popen(
                list(self._command(path)), stdout=sink, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            with socket.socket() as probe:
                probe.settimeout(1.0)
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return self
            time.sleep(0.02)
        self.__exit__()
        words = log.read_text(encoding="utf-8", errors="replace")[-1000:]
        raise EngineError.one("program-start", f"{self._command(path)[0]} did not come up: {words}")

    def __exit__(self, *_: object) -> None:
        """End it."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def haproxy_command(path: Path) -> list[str]:
    """Return the command that runs HAProxy in the foreground."""
    return [find_program("haproxy"), "-db", "-f", str(path)]


def nginx_command(path: Path) -> list[str]:
    """Return the command that runs nginx in the foreground."""
    return [find_program("nginx"), "-c", str(path), "-p", str(path.parent)]
