"""The supervisor: keeps the loop process and the API process running for as long as `divvy up` does.

It opens the listening sockets itself and hands them down, so that an API process that dies leaves no gap:
who connects meanwhile waits for the next one. It never touches the store or a job.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

from divvy.errors import DivvyError, UnavailableError, problem_to_error
from divvy.service.child import Orders

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0
_PROVEN_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 10.0
_HOPELESS: Final = 4

#: A child that is refused for one of these will be refused again.
_FATAL: Final = frozenset({"already-running", "loop-superseded", "store-newer", "policy-unknown"})


@dataclass(slots=True)
class Child:
    """A process that is kept running.

    Attributes:
        name: For people and file names.
        command: What to run.
        orders: What it is told at its start.
        process: The present one.
        since: When it was started, monotonic seconds.
        ready: Whether the present one has said that it works.
        proven: Whether any one ever did.
        failures: Ends in a row, none of which came after a long life.
        restart_at: When to start the next one; infinity while one runs.
        problem: What the last one was refused for.
    """

    name: str
    command: list[str]
    orders: Orders
    process: subprocess.Popen[bytes] | None = None
    since: float = 0.0
    ready: bool = False
    proven: bool = False
    failures: int = 0
    starts: int = 0
    restart_at: float = 0.0
    problem: DivvyError | None = None
    heard: bytearray = field(default_factory=bytearray)


class Supervisor:
    """Runs children.

    Args:
        children: What to run.
        logs: Directory of the logs.
        say: Shows a line to whoever started this.
    """

    def __init__(self, children: list[Child], logs: Path, say: Callable[[str], None]) -> None:
        self._children = children
        self._logs = logs
        self._say = say
        self._selector = selectors.DefaultSelector()
        self._ear, self._mouth = socket.socketpair()
        self._ear.setblocking(False)
        self._mouth.setblocking(False)
        self._selector.register(self._ear, selectors.EVENT_READ)
        self._stopping = False

    def run(self, on_ready: Callable[[], None]) -> None:
        """Keep the children running until SIGINT or SIGTERM; then stop them in order.

        Args:
            on_ready: Called once, when all children have said that they work.

        Raises:
            DivvyError: If a child is refused before it ever worked, or for good.
        """
        signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, _notice)
        told = False
        try:
            while not self._stopping:
                self._start_due()
                self._wait()
                self._bury()
                if not told and all(child.ready for child in self._children):
                    told = True
                    on_ready()
        finally:
            self._stop_all()
            signal.set_wakeup_fd(-1)
            self._selector.close()
            self._ear.close()
            self._mouth.close()

    # -- life and death -------------------------------------------------------------------------------

    def _start_due(self) -> None:
        now = time.monotonic()
        for child in self._children:
            if child.process is None and child.restart_at <= now:
                self._start(child)

    def _start(self, child: Child) -> None:
        orders = replace(child.orders, settings=replace(child.orders.settings, restarts=child.starts))
        with (self._logs / f"{child.name}.err").open("ab") as errors:
            process = subprocess.Popen(
                child.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                pass_fds=orders.sockets,
                process_group=0,  # a Ctrl-C in the terminal is for the supervisor alone
            )
        child.process, child.since, child.ready, child.problem = process, time.monotonic(), False, None
        child.restart_at = float("inf")
        child.starts += 1
        child.heard.clear()
        with contextlib.suppress(BrokenPipeError):
            _pipe(process.stdin).write(orders.to_line())
            _pipe(process.stdin).flush()
        self._selector.register(_pipe(process.stdout), selectors.EVENT_READ, child)

    def _wait(self) -> None:
        due = min(child.restart_at for child in self._children)
        timeout = None if due == float("inf") else max(due - time.monotonic(), 0.0)
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    self._ear.recv(256)
            else:
                self._hear(key.data)

    def _hear(self, child: Child) -> None:
        pipe = _pipe(child.process.stdout if child.process else None)
        data = os.read(pipe.fileno(), 65_536)
        if not data:
            self._selector.unregister(pipe)
            return
        child.heard += data
        *lines, rest = bytes(child.heard).split(b"\n")
        child.heard = bytearray(rest)
        for line in lines:
            news: dict[str, Any] = json.loads(line)
            if news.get("ready"):
                child.ready = child.proven = True
            if "problem" in news:
                child.problem = problem_to_error(news["problem"])

    def _bury(self) -> None:
        """Notice children that have ended, and say when the next one starts."""
        now = time.monotonic()
        for child in self._children:
            process = child.process
            if process is None or process.poll() is None:
                continue
            self._drain(child)
            child.process, child.ready = None, False
            if child.problem is not None and (not child.proven or child.problem.code in _FATAL):
                raise child.problem
            child.failures = 0 if now - child.since > _PROVEN_SECONDS else child.failures + 1
            if not child.proven and child.failures >= _HOPELESS:
                raise UnavailableError.one(
                    "child-failed",
                    f"the {child.name} process does not start ({_ending(process.returncode)})",
                    path=str(self._logs / f"{child.name}.err"),
                    fix="its last words are in that file",
                )
            pause = min(_FIRST_PAUSE_SECONDS * 2 ** (child.failures - 1), _LONGEST_PAUSE_SECONDS)
            child.restart_at = now + (pause if child.failures else 0.0)
            why = str(child.problem) if child.problem else _ending(process.returncode)
            self._say(f"the {child.name} process ended ({why}); starting it again")

    def _drain(self, child: Child) -> None:
        """Read what a dead child said last, and let go of its pipes."""
        if child.process is None:
            return
        for pipe in (child.process.stdin, child.process.stdout):
            while pipe is child.process.stdout and pipe in _registered(self._selector):
                self._hear(child)
            with contextlib.suppress(BrokenPipeError):
                _pipe(pipe).close()

    def _stop_all(self) -> None:
        """Stop the children, the last one first; they have some seconds each."""
        for child in reversed(self._children):
            process = child.process
            if process is None:
                continue
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._drain(child)
            child.process = None

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True


def _notice(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the signal has written to the wake-up descriptor, and that is what it is for."""


def _registered(selector: selectors.BaseSelector) -> list[Any]:
    return [key.fileobj for key in selector.get_map().values()]


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - every child is started with its pipes
    return pipe


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def python(module: str) -> list[str]:
    """Return the command that runs a module of this installation."""
    return [sys.executable, "-m", module]
