"""A rail to a peer at work: one thread that sends what the scheduler gives, one that reads the answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from divvy.errors import DivvyError
from divvy.transfer.backends.port import Mover
from divvy.transfer.checksum import checksum
from divvy.transfer.dial import Route, dial
from divvy.transfer.incoming import ANSWERS
from divvy.transfer.wire import Head, Line

if TYPE_CHECKING:
    from divvy.transfer.outgoing import Outgoing
    from divvy.transfer.scheduler import Scheduler

_AGAIN_S: Final = 0.25
_IDLE_S: Final = 0.1
_FLYING: Final = 4


class Link:
    """One rail to one peer; connects again for as long as it is wanted.

    Args:
        route: The way.
        key: The shared key.
        sender: Name of this agent.
        scheduler: Gives attempts and takes answers.
        make: Makes the back end once the connection stands.
    """

    def __init__(
        self,
        route: Route,
        key: bytes,
        sender: str,
        scheduler: Scheduler,
        make: Callable[[Line, Route], Mover],
    ) -> None:
        self.route, self._key, self._sender = route, key, sender
        self._scheduler, self._make = scheduler, make
        self._line: Line | None = None
        self._closed = threading.Event()
        self.sent_bytes = 0
        self._thread = threading.Thread(target=self._run, name=f"rail {route.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def reset(self) -> None:
        """Break the connection; the threads notice at once, and connect again."""
        line = self._line
        if line is not None:
            with contextlib.suppress(OSError):
                line.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the threads and the connection."""
        self._closed.set()
        self.reset()
        self._scheduler.wake()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._closed.is_set():
            mover: Mover | None = None
            try:
                line = dial(self.route, self._key, "data", self._sender)
                mover = self._make(line, self.route)
            except (OSError, DivvyError):
                self._closed.wait(_AGAIN_S)
                continue
            self._line = line
            reader = threading.Thread(
                target=self._read, args=(line,), name=f"answers {self.route.name}", daemon=True
            )
            reader.start()
            self._scheduler.connected(self.route.name)
            try:
                self._send(line, mover)
            finally:
                self.reset()
                reader.join(5)
                self._line = None
                line.sock.close()
                mover.close()
                self._scheduler.broken(self.route.name)

    def _send(self, line: Line, mover: Mover) -> None:
        """Send attempts until the connection breaks or is not wanted."""
        name, flying = self.route.name, deque["Outgoing"]()
        try:
            self._serve(name, line, mover, flying)
        except OSError:
            return
        finally:
            mover.close()  # what is on the way is fenced before anybody is told that it is read no more
            while flying:
                self._scheduler.sent(flying.popleft())

    def _serve(self, name: str, line: Line, mover: Mover, flying: deque[Outgoing]) -> None:
        while not self._closed.is_set():
            work = self._scheduler.next(name, 0.0 if flying else _IDLE_S)
            if work is None and flying:
                self._ended(mover.finish(line, len(flying) - 1), flying)
                continue
            if work is None:
                if self._scheduler.is_broken(name):
                    return
                continue
            outgoing, attempt = work
            flying.append(outgoing)
            views = outgoing.views(attempt)
            head = Head(
                outgoing.number,
                outgoing.epoch,
                attempt.chunk,
                attempt.number,
                attempt.size,
                checksum(views),
            )
            mover.send(line, head, outgoing.region, views, outgoing)
            self.sent_bytes += attempt.size
            self._ended(mover.finish(line, _FLYING), flying)

    def _ended(self, count: int, flying: deque[Outgoing]) -> None:
        for _ in range(count):
            self._scheduler.sent(flying.popleft())

    def _read(self, line: Line) -> None:
        """Take answers until the connection breaks."""
        try:
            while True:
                reply = line.receive_reply()
                self._scheduler.answered(self.route.name, reply, ANSWERS[reply.answer % len(ANSWERS)])
        except (OSError, DivvyError):
            self._scheduler.mark_broken(self.route.name)
