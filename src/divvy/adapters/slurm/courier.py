"""The only thread that talks to Slurm: it runs what is to be done, then looks, and brings what it saw.

A look always follows the commands before it, so that what is seen shows what they did. When Slurm does not
answer, there is no view; commands that were not run are dropped, since the next view tells what is still
needed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

import structlog

from divvy.adapters.slurm.record import PastRun, View
from divvy.errors import DivvyError

_log = structlog.get_logger("slurm")
_SOON_SECONDS: Final = 0.1


class Controller(Protocol):
    """Slurm, as far as the courier needs it."""

    def read(self, now: int, accounting: frozenset[str]) -> View:
        """Return what Slurm shows, with the accounting of some jobs.

        Raises:
            UnavailableError: If it does not answer, or not with what can be understood.
        """

    def history(self, ago_seconds: int) -> Mapping[str, tuple[PastRun, ...]]:
        """Return every run in the accounting of the last so many seconds; none where it cannot be asked."""

    def carry_out(self, command: tuple[str, ...]) -> str:
        """Run one command; return what went wrong, empty where nothing did.

        Raises:
            UnavailableError: If Slurm does not answer.
        """

    def close(self) -> None:
        """Let go of what it holds open."""


class Courier:
    """Looks at Slurm in a thread of its own.

    Args:
        controller: Slurm.
        now: Time, ms.
        period_seconds: Time between two looks.
        history_seconds: How far back the first view tells the accounting; 0: not at all.
    """

    def __init__(
        self,
        controller: Controller,
        now: Callable[[], int],
        period_seconds: float,
        history_seconds: int = 0,
    ) -> None:
        self._history = history_seconds
        self._controller = controller
        self._now = now
        self._period = period_seconds
        self._lock = threading.Condition()
        self._commands: list[tuple[str, ...]] = []
        self._wanted: frozenset[str] = frozenset()
        self._view: View | None = None
        self._closing = False
        self.problem = ""
        """Why Slurm could not be seen last; empty: it was."""
        self._ear, self._mouth = os.pipe()
        os.set_blocking(self._ear, False)
        os.set_blocking(self._mouth, False)
        self._thread = threading.Thread(target=self._run, name="slurm", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is a new view."""
        return self._ear

    def take(self) -> View | None:
        """Return the newest view that was not taken yet."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._ear, 64)
        with self._lock:
            view, self._view = self._view, None
        return view

    def send(self, commands: Sequence[tuple[str, ...]], accounting: frozenset[str] = frozenset()) -> None:
        """Have commands run and then look; ``accounting``: whose past runs the look should tell."""
        with self._lock:
            self._commands = list(commands)
            self._wanted = accounting
            self._view = None  # it was taken before these commands
            self._lock.notify()

    def close(self) -> None:
        """End the thread; a command that runs is waited for."""
        with self._lock:
            self._closing = True
            self._lock.notify()
        self._thread.join(timeout=60)
        self._controller.close()
        os.close(self._ear)
        os.close(self._mouth)

    # -- the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._lock:
                commands, self._commands = self._commands, []
                wanted, self._wanted = self._wanted, frozenset()
                if self._closing:
                    return
            began = time.monotonic()
            try:
                self._carry_out(commands)
                view = self._controller.read(self._now(), wanted)
                if self._history:
                    view = replace(view, history=self._controller.history(self._history))
                    self._history = 0
            except (DivvyError, OSError, ValueError, LookupError) as error:
                self._failed(str(error) or repr(error))
            else:
                self._deliver(view)
            with self._lock:
                if not self._commands and not self._closing:
                    rest = began + self._period - time.monotonic()
                    self._lock.wait(max(rest, _SOON_SECONDS))

    def _carry_out(self, commands: Sequence[tuple[str, ...]]) -> None:
        for command in commands:
            trouble = self._controller.carry_out(command)
            if trouble:
                _log.warning("command", command=" ".join(command)[:300], said=trouble[:500])
            else:
                _log.info("command", command=" ".join(command)[:300])

    def _deliver(self, view: View) -> None:
        if self.problem:
            _log.info("Slurm answers again")
        with self._lock:
            self.problem = ""
            if self._commands:
                return  # it is older than what is to be done
            self._view = view
        self._call()

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            _log.warning("Slurm does not answer", problem=problem)
        self.problem = problem
        self._call()

    def _call(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._mouth, b"!")
