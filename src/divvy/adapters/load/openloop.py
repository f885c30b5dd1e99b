"""An open-loop generator: every query is sent when it is due, on a connection of its own while others wait.

Latency is counted from when a query was due. So a server (or a generator) that stalls is charged for all the
queries that came due meanwhile: no omission is coordinated with the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from divvy.adapters.load.volley import Plan, Volley

_BROKEN, _SILENT = 0, -1
_HEAD_END: Final = b"\r\n\r\n"
_LEAD_SECONDS: Final = 0.05
_NAP_SECONDS: Final = 0.05


class _Wire(asyncio.Protocol):
    """One connection: sends a request, tells `done` its status; HTTP/1.1 with lengths or chunks."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._need = -1
        self._status = _BROKEN
        self._keep = True
        self._done: Callable[[int, bool], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream
        self._transport = transport

    def ask(self, data: bytes, done: Callable[[int, bool], None]) -> None:
        """Send a request; `done` is told its status, and whether the connection can be used again."""
        self._buffer, self._need, self._done = b"", -1, done
        if self._transport is None or self._transport.is_closing():
            self._finish(_BROKEN, usable=False)
            return
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._need < 0 and _HEAD_END in self._buffer:
            head, _, self._buffer = self._buffer.partition(_HEAD_END)
            lines = head.lower().split(b"\r\n")
            self._status = int(lines[0].split()[1])
            fields = dict(line.split(b": ", 1) for line in lines[1:] if b": " in line)
            self._keep = fields.get(b"connection") != b"close"
            self._need = int(fields.get(b"content-length", b"0"))
            if b"chunked" in fields.get(b"transfer-encoding", b""):
                self._need = 1 << 40
        if self._need < 0:
            return
        if len(self._buffer) >= self._need or (self._need == 1 << 40 and self._buffer.endswith(b"0\r\n\r\n")):
            self._finish(self._status, usable=self._keep)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the signature is asyncio's
        self._finish(_BROKEN, usable=False)

    def _finish(self, status: int, *, usable: bool) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(status, usable)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()


class _Battery:
    """Sends the queries of a plan and keeps the times."""

    def __init__(self, host: str, port: int, plan: Plan) -> None:
        self._place = (host, port)
        lines = "".join(f"{name}: {value}\r\n" for name, value in plan.headers)
        self._requests = {
            batch: (
                f"POST {plan.path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
                f"{lines}Divvy-Batch: {batch}\r\nContent-Length: {len(body)}\r\n\r\n"
            ).encode()
            + body
            for batch, body in plan.bodies().items()
        }
        self._plan = plan
        self._idle: list[_Wire] = []
        self._wires: set[_Wire] = set()
        n = plan.due_us.size
        self._sent, self._ended = np.zeros(n), np.zeros(n)
        self._status = np.full(n, _SILENT, np.int64)
        self._open = n
        self._late = 0
        self._begun = 0.0
        self._all = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = threading.Event()

    async def run(self, patience_seconds: float) -> Volley:
        """Send everything and wait for the answers, after the last one was due at most so long."""
        loop = asyncio.get_running_loop()
        due = self._plan.due_us / 1e6
        start = self._begun = time.monotonic() + _LEAD_SECONDS
        if not due.size:
            return self._volley(start)
        pacer = threading.Thread(target=self._pace, args=(loop, start + due), daemon=True)
        pacer.start()
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all.wait(), _LEAD_SECONDS + float(due[-1]) + patience_seconds)
        finally:
            self._stopped.set()
            pacer.join()
            for wire in list(self._wires):
                wire.close()
            for task in list(self._tasks):
                task.cancel()
        return self._volley(start)

    def _pace(
        self, loop: asyncio.AbstractEventLoop, due: np.ndarray[tuple[int], np.dtype[np.float64]]
    ) -> None:
        """Sleep from one query to the next: a thread's sleep is finer than the timers of a loop."""
        for number, moment in enumerate(due.tolist()):
            while (rest := moment - time.monotonic()) > 0:
                time.sleep(min(rest, _NAP_SECONDS))
                if self._stopped.is_set():
                    return
            loop.call_soon_threadsafe(self._send, number)

    def _send(self, number: int) -> None:
        if self._idle:
            self._ask(self._idle.pop(), number)
            return
        task = asyncio.get_running_loop().create_task(self._send_on_new(number))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_on_new(self, number: int) -> None:
        try:
            _, wire = await asyncio.get_running_loop().create_connection(_Wire, *self._place)
        except OSError:
            self._sent[number] = time.monotonic()
            self._end(number, _BROKEN)
            return
        self._wires.add(wire)
        self._ask(wire, number)

    def _ask(self, wire: _Wire, number: int) -> None:
        self._sent[number] = time.monotonic()

        def done(status: int, usable: bool) -> None:  # noqa: FBT001 - called by one line
            if usable:
                self._idle.append(wire)
            else:
                self._wires.discard(wire)
                if wire in self._idle:
                    self._idle.remove(wire)
                wire.close()
            self._end(number, status)

        wire.ask(self._requests[int(self._plan.batches[number])], done)

    def _end(self, number: int, status: int) -> None:
        self._ended[number] = time.monotonic()
        self._status[number] = status
        self._open -= 1
        due = self._begun + int(self._plan.due_us[number]) / 1e6
        self._late += self._ended[number] - due > self._plan.slo_us / 1e6
        lost = 0 <= self._plan.most_late < self._late
        if lost or not self._open:
            self._all.set()

    def _volley(self, start: float) -> Volley:
        due = start + self._plan.due_us / 1e6
        silent = self._status == _SILENT
        ended = np.where(silent, time.monotonic(), self._ended)
        sent = np.where(self._sent > 0, self._sent, ended)
        return Volley(
            np.rint((ended - due) * 1e6).astype(np.int64),
            self._status.copy(),  # connections that close from now on count for nothing
            np.rint((sent - due) * 1e6).astype(np.int64),
        )


async def fire(url: str, plan: Plan, *, patience_seconds: float = 10.0) -> Volley:
    """Send the queries of a plan to a server and return what became of each.

    Args:
        url: ``http://HOST:PORT`` of the server.
        plan: The queries.
        patience_seconds: How long after the last one was due answers are awaited; the rest counts as silent.
    """
    host, _, port = url.removeprefix("http://").rstrip("/").rpartition(":")
    return await _Battery(host, int(port), plan).run(patience_seconds)


def fire_now(url: str, plan: Plan, *, patience_seconds: float = 10.0) -> Volley:
    """Do what `fire` does, in an event loop of its own."""
    return asyncio.run(fire(url, plan, patience_seconds=patience_seconds))
