"""One connection to a slice's server: one request at a time, its answer handed back whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from divvy.adapters.front.http1 import HEAD_END, Chunks, Head, read_head, whole_body

#: Told the head and the body of an answer; (None, reason) where there is none.
Done = Callable[[Head | None, bytes], None]


class _Wire(asyncio.Protocol):
    """A connection that tells its back end only while it is the one in use: an old one ends in silence."""

    def __init__(self, owner: Backend) -> None:
        self._owner = owner
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by class

    def data_received(self, data: bytes) -> None:
        """Pass on a part of the answer."""
        if self._owner.wire is self:
            self._owner.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that the answer will not come."""
        if self._owner.wire is self:
            self._owner.lose(exc)


class Backend:
    """The server of a slice; connects when it is needed, and again when it was lost.

    Args:
        host: Its address.
        port: Its port.
        prefix: What stands before the paths of the protocol; mostly empty.
    """

    def __init__(self, host: str, port: int, prefix: str = "") -> None:
        self.host, self.port, self.prefix = host, port, prefix
        self.wire: _Wire | None = None
        self._buffer, self._chunks = bytearray(), Chunks()
        self._head: Head | None = None
        self._done: Done | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def ask(self, request: bytes, seconds: float, done: Done) -> None:
        """Send a request; `done` is called once, with the answer or with why there is none."""
        self._buffer, self._chunks = bytearray(), Chunks()
        self._head, self._done = None, done
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._give_up, b"no answer in time")
        wire = self.wire
        if wire is not None and wire.transport is not None and not wire.transport.is_closing():
            wire.transport.write(request)
            return
        self._task = loop.create_task(self._connect(request))

    async def _connect(self, request: bytes) -> None:
        wire = self.wire = _Wire(self)
        try:
            await asyncio.get_running_loop().create_connection(lambda: wire, self.host, self.port)
        except OSError as error:
            if self.wire is wire:
                self._give_up(str(error).encode())
            return
        if wire.transport is None:
            return
        if self.wire is wire and self._done is not None:
            wire.transport.write(request)
        else:
            wire.transport.abort()

    def receive(self, data: bytes) -> None:
        """Take in a part of the answer."""
        self._buffer += data
        try:
            if self._head is None:
                if HEAD_END not in self._buffer:
                    return
                text, _, self._buffer = self._buffer.partition(HEAD_END)
                self._head = read_head(bytes(text))
            body = whole_body(self._buffer, self._head.length, self._chunks)
        except ValueError as error:
            self._give_up(f"a damaged answer: {error}".encode())
            return
        if body is not None:
            if not self._head.keeps:
                self.close()
            self._finish(self._head, body)

    def lose(self, exc: Exception | None) -> None:
        """Tell whoever waits that the connection is gone."""
        self.wire = None
        self._finish(None, f"the connection broke: {exc or 'closed'}".encode())

    def _give_up(self, why: bytes) -> None:
        self.close()
        self._finish(None, why)

    def _finish(self, head: Head | None, body: bytes) -> None:
        done, self._done = self._done, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if done is not None:
            done(head, body)

    def cancel(self) -> None:
        """Drop the request in flight: the server sees that nobody waits any more."""
        self._done = None
        self._finish(None, b"")
        self.close()

    def close(self) -> None:
        """Close the connection."""
        wire, self.wire = self.wire, None
        if wire is not None and wire.transport is not None:
            wire.transport.abort()
