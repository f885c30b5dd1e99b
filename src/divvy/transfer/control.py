"""Questions to another agent: over the rail that answers, the next one when it does not."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any

from divvy.errors import UnavailableError, problem_to_error
from divvy.transfer.dial import Route, dial
from divvy.transfer.wire import Line

_FIRST_S = 0.5


class Control:
    """Asks one peer; questions may be asked twice, so the other side takes each as often as it comes.

    Args:
        routes: Ways to the peer.
        key: The shared key.
        sender: Name of this agent.
    """

    def __init__(self, routes: Sequence[Route], key: bytes, sender: str) -> None:
        self._routes, self._key, self._sender = list(routes), key, sender
        self._lines: dict[str, Line] = {}
        self._lock = threading.Lock()
        self._first = 0

    def ask(self, verb: str, body: dict[str, Any], timeout_s: float = 3.0) -> dict[str, Any]:
        """Return the answer to a question.

        Raises:
            DivvyError: What the other side refused with.
            UnavailableError: If it answers on no rail.
        """
        with self._lock:
            last: Exception | None = None
            for step in range(2 * len(self._routes)):
                index = (self._first + step) % len(self._routes)
                wait = min(timeout_s, _FIRST_S) if step < len(self._routes) - 1 else timeout_s
                try:
                    answer = self._ask(self._routes[index], {"verb": verb, **body}, wait)
                except OSError as error:
                    last = error
                    self._drop(self._routes[index].name)
                    continue
                self._first = index
                if "problem" in answer:
                    raise problem_to_error(answer["problem"])
                return answer
        ways = ", ".join(f"{r.there.address}:{r.port}" for r in self._routes)
        raise UnavailableError.one(
            "peer-silent", f"the agent at {ways} does not answer: {last}", fix="divvy move agent runs one"
        )

    def _ask(self, route: Route, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        line = self._lines.get(route.name)
        if line is None:
            line = self._lines[route.name] = dial(
                route, self._key, "control", self._sender, min(timeout_s, 0.6)
            )
        line.sock.settimeout(timeout_s)
        line.send_message(body)
        return line.receive_message()

    def _drop(self, name: str) -> None:
        line = self._lines.pop(name, None)
        if line is not None:
            with contextlib.suppress(OSError):
                line.sock.close()

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            for name in list(self._lines):
                self._drop(name)
