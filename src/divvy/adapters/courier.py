"""The only thread that talks to an outside engine: it does what is to be done, then looks, and brings it.

A look always follows the commands before it, so that what is seen shows what they did. When nobody answers,
there is no view; commands that were not run are dropped, since the next view tells what is still
needed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import structlog

from divvy.errors import DivvyError

_SOON_SECONDS: Final = 0.1


View = TypeVar("View")
Seen_co = TypeVar("Seen_co", covariant=True)
Command = TypeVar("Command")
Done_contra = TypeVar("Done_contra", contravariant=True)


class Controller(Protocol[Seen_co, Done_contra]):
    """An engine outside, as far as the courier needs it."""

    def read(self, now: int, accounting: frozenset[str]) -> Seen_co:
        """Return what it shows, with the past runs of some jobs.

        Raises:
            UnavailableError: If it does not answer, or not with what can be understood.
        """

    def carry_out(self, command: Done_contra) -> str:
        """Run one command; return what went wrong, empty where nothing did.

        Raises:
            UnavailableError: If it does not answer.
        """

    def close(self) -> None:
        """Let go of what it holds open."""


class Courier(Generic[View, Command]):
    """Looks at an engine in a thread of its own.

    Args:
        controller: The engine.
        now: Time, ms.
        period_seconds: Time between two looks.
        name: What people call the engine.
        complete: Adds to the first view what later ones need not tell.
    """

    def __init__(
        self,
        controller: Controller[View, Command],
        now: Callable[[], int],
        period_seconds: float,
        name: str,
        complete: Callable[[View], View] | None = None,
    ) -> None:
        self._complete = complete
        self._name = name
        self._log = structlog.get_logger(name.lower())
        self._controller = controller
        self._now = now
        self._period = period_seconds
        self._lock = threading.Condition()
        self._commands: list[Command] = []
        self._wanted: frozenset[str] = frozenset()
        self._view: View | None = None
        self._closing = False
        self.problem = ""
        """Why it could not be seen last; empty: it was."""
        self._ear, self._mouth = os.pipe()
        os.set_blocking(self._ear, False)
        os.set_blocking(self._mouth, False)
        self._thread = threading.Thread(target=self._run, name=name.lower(), daemon=True)
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

    def send(self, commands: Sequence[Command], accounting: frozenset[str] = frozenset()) -> None:
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
                if self._complete is not None:
                    view, self._complete = self._complete(view), None
            except (DivvyError, OSError, ValueError, LookupError) as error:
                self._failed(str(error) or repr(error))
            else:
                self._deliver(view)
            with self._lock:
                if not self._commands and not self._closing:
                    rest = began + self._period - time.monotonic()
                    self._lock.wait(max(rest, _SOON_SECONDS))

    def _carry_out(self, commands: Sequence[Command]) -> None:
        for command in commands:
            trouble = self._controller.carry_out(command)
            if trouble:
                self._log.warning("command", command=_shown(command), said=trouble[:500])
            else:
                self._log.info("command", command=_shown(command))

    def _deliver(self, view: View) -> None:
        if self.problem:
            self._log.info(f"{self._name} answers again")
        with self._lock:
            self.problem = ""
            if self._commands:
                return  # it is older than what is to be done
            self._view = view
        self._call()

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            self._log.warning(f"{self._name} does not answer", problem=problem)
        self.problem = problem
        self._call()

    def _call(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._mouth, b"!")


def _shown(command: object) -> str:
    words = command if isinstance(command, tuple) else (command,)
    return " ".join(word for word in words if isinstance(word, str))[:300]
