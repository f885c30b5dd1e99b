"""Transfers that come in: who may write where, and the bytes as they are taken from a connection."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from divvy.transfer.checksum import checksum
from divvy.transfer.machine.cut import Chunk
from divvy.transfer.machine.receiving import Receiving
from divvy.transfer.machine.sending import Answer, Verdict
from divvy.transfer.places import Region
from divvy.transfer.wire import Head

ANSWERS: Final = tuple(Answer)
_STRIPES: Final = 16
_PART: Final = 256 << 10
_KEPT: Final = 512


def now_us() -> int:
    """Return a clock that only goes forward, in microseconds."""
    return time.monotonic_ns() // 1000


class Incoming:
    """One transfer that comes in.

    Args:
        number: Number of the transfer.
        sender: Name of the agent that sends.
        region: Target buffer.
        chunks: How it is cut.
        machine: Its state.
    """

    def __init__(
        self, number: int, sender: str, region: Region, chunks: list[Chunk], machine: Receiving
    ) -> None:
        self.number, self.sender, self.region, self.machine = number, sender, region, machine
        self.chunks: list[Chunk] = chunks
        self.ended = threading.Event()
        self.grown = threading.Condition()
        self.kept = False
        self._stripes = [threading.Lock() for _ in range(_STRIPES)]

    def claim(self, head: Head) -> Answer | None:
        """Let an attempt begin; whoever wrote this chunk before cannot any more when this returns."""
        with self._stripes[head.chunk % _STRIPES]:
            if head.chunk >= len(self.chunks) or self.chunks[head.chunk].size != head.size:
                return Answer.STALE
            with self.grown:
                return self.machine.claim(head.chunk, head.attempt, head.epoch, now_us())

    def write(self, sock: socket.socket, head: Head, views: list[memoryview]) -> int:
        """Take bytes into the buffer as long as the attempt may write; return how many did not come yet."""
        left, stripe = head.size, self._stripes[head.chunk % _STRIPES]
        while left:
            with stripe:
                if not self.machine.may_write(head.chunk, head.attempt):
                    return left
                try:
                    if len(views) == 1:
                        got = sock.recv_into(views[0], min(left, _PART), socket.MSG_DONTWAIT)
                    else:
                        got = sock.recvmsg_into(views, 0, socket.MSG_DONTWAIT)[0]
                except BlockingIOError:
                    got = -1
            if got == 0:
                raise ConnectionResetError("the sender closed the connection inside a chunk")
            if got < 0:
                _readable(sock)
                continue
            left -= got
            _advance(views, got)
        return 0

    def arrived(self, head: Head, rail: str) -> Answer:
        """Check what an attempt has brought; return what to answer."""
        with self._stripes[head.chunk % _STRIPES]:
            parts = self.region.slices(self.chunks[head.chunk].fragments, source=False)
            intact = checksum(parts) == head.checksum
            with self.grown:
                answer = self.machine.arrived(head.chunk, head.attempt, rail, now_us(), intact=intact)
                if answer is Answer.GOOD:
                    self.grown.notify_all()
        self._settle()
        return answer

    def tick(self) -> None:
        """Let time pass."""
        with self.grown:
            self.machine.tick(now_us())
        self._settle()

    def fail(self, reason: str) -> None:
        """End it; when this returns nothing of it writes any more."""
        with self.grown:
            self.machine.fail(reason)
        self._settle()

    def _settle(self) -> None:
        """Once there is a verdict: fence every writer, keep or give up the buffer, tell who waits."""
        if self.machine.verdict is None:
            return
        with self.grown:
            if self.kept:
                return
            self.kept = True
        for stripe in self._stripes:
            with stripe:
                pass
        if self.machine.verdict is Verdict.DONE:
            self.region.keep()
        if self.region.place.kind == "file":
            self.region.close()
        self.ended.set()
        with self.grown:
            self.grown.notify_all()

    def wait_descriptors(self, count: int, timeout_s: float) -> bool:
        """Wait until the first `count` descriptors are there; return whether they are."""
        limit = time.monotonic() + timeout_s
        with self.grown:
            while True:
                prefix = self.machine.prefix
                if prefix == len(self.chunks) or self.chunks[prefix].last >= count:
                    return True
                left = limit - time.monotonic()
                if left <= 0 or self.machine.verdict is not None:
                    return False
                self.grown.wait(left)


def _readable(sock: socket.socket) -> None:
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
    poll.poll(1000)


def _advance(views: list[memoryview], got: int) -> None:
    done = 0
    while got:
        size = views[done].nbytes
        if got < size:
            views[done] = views[done][got:]
            break
        got -= size
        done += 1
    del views[:done]


class Inbox:
    """All transfers that come in; the last ones that ended are remembered for late questions.

    Args:
        on_end: Called with each transfer when it has ended.
    """

    def __init__(self, on_end: Callable[[Incoming], None]) -> None:
        self._lock = threading.Lock()
        self._live: dict[int, Incoming] = {}
        self._past: OrderedDict[int, Incoming] = OrderedDict()
        self._on_end = on_end

    def get(self, number: int) -> Incoming | None:
        """Return a transfer."""
        with self._lock:
            return self._live.get(number) or self._past.get(number)

    def add(self, incoming: Incoming) -> None:
        """Take in a transfer."""
        with self._lock:
            self._live[incoming.number] = incoming

    def live(self) -> list[Incoming]:
        """Return the transfers that have not ended."""
        with self._lock:
            return list(self._live.values())

    def of(self, region: Region) -> list[Incoming]:
        """Return the transfers into a buffer, those that ended with them."""
        with self._lock:
            return [i for i in (*self._live.values(), *self._past.values()) if i.region is region]

    def sweep(self) -> None:
        """Let time pass for all of them and put away those that ended."""
        for incoming in self.live():
            incoming.tick()
            self.retire(incoming)

    def retire(self, incoming: Incoming) -> None:
        """Put a transfer away if it has ended."""
        if not incoming.ended.is_set():
            return
        with self._lock:
            if self._live.pop(incoming.number, None) is None:
                return
            self._past[incoming.number] = incoming
            while len(self._past) > _KEPT:
                self._past.popitem(last=False)
        self._on_end(incoming)

    def take(self, sock: socket.socket, head: Head, rail: str, scratch: bytearray) -> Answer:
        """Take one attempt from a connection, its bytes into the buffer or away; return what to answer."""
        incoming = self.get(head.transfer)
        answer = Answer.STALE if incoming is None else incoming.claim(head)
        if answer is not None or incoming is None:
            _drain(sock, 0 if head.placed else head.size, scratch)
            return answer or Answer.STALE
        if not head.placed:
            views = incoming.region.slices(incoming.chunks[head.chunk].fragments, source=False)
            left = incoming.write(sock, head, views)
            if left:
                _drain(sock, left, scratch)
                return Answer.OLD if incoming.machine.verdict is None else Answer.STALE
        answer = incoming.arrived(head, rail)
        self.retire(incoming)
        return answer


def _drain(sock: socket.socket, left: int, scratch: bytearray) -> None:
    """Take bytes and throw them away."""
    view = memoryview(scratch)
    while left:
        got = sock.recv_into(view[: min(left, len(scratch))])
        if not got:
            raise ConnectionResetError("the sender closed the connection inside a chunk")
        left -= got
