"""The accepting side of an agent: listens on every rail, admits who has the key, serves each connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from divvy.errors import DivvyError, InputError, UnavailableError
from divvy.transfer.auth import admit
from divvy.transfer.incoming import ANSWERS, Inbox
from divvy.transfer.interfaces import Rail
from divvy.transfer.wire import Line, Reply

_MOST_STRANGERS: Final = 32
_MOST_CONNECTIONS: Final = 1024
_SCRATCH: Final = 256 << 10
_log = structlog.get_logger("divvy.transfer")

Answerer = Callable[[dict[str, Any], str], dict[str, Any]]


class Server:
    """Listens on the rails.

    Args:
        rails: Where to listen.
        port: Port, the same on every rail; 0 takes a free one.
        key: The shared key.
        inbox: Takes chunks.
        answer: Answers a control message.
        refused: Called with the code of each refusal of a stranger.
    """

    def __init__(
        self,
        rails: Sequence[Rail],
        port: int,
        key: bytes,
        inbox: Inbox,
        answer: Answerer,
        refused: Callable[[str], None],
    ) -> None:
        self._key, self._inbox, self._answer, self._refused = key, inbox, answer, refused
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._strangers = threading.BoundedSemaphore(_MOST_STRANGERS)
        self._listening = [self._listen(rails[0], port)]
        self.port: int = self._listening[0].getsockname()[1]
        self._listening += [self._listen(rail, self.port) for rail in rails[1:]]
        self._threads = [
            threading.Thread(target=self._accept, args=(sock,), name="accept", daemon=True)
            for sock in self._listening
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _listen(rail: Rail, port: int) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((rail.address, port))
            sock.listen(128)
        except OSError as error:
            sock.close()
            raise UnavailableError.one(
                "port-taken",
                f"{rail.address}:{port}: {error.strerror}",
                path="--port",
                fix="take another port",
            ) from error
        return sock

    def _accept(self, listening: socket.socket) -> None:
        while not self._closed.is_set():
            try:
                sock, _ = listening.accept()
            except OSError:
                return
            with self._lock:
                full = len(self._open) >= _MOST_CONNECTIONS
            if full or not self._strangers.acquire(blocking=False):
                self._refused("crowded")
                sock.close()
                continue
            thread = threading.Thread(target=self._serve, args=(sock,), name="serve", daemon=True)
            with self._lock:
                self._open[sock] = thread
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                line = Line(sock, admit(sock, self._key), accepted=True)
            finally:
                self._strangers.release()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            hello = line.receive_message()
            if hello.get("purpose") == "data":
                self._chunks(line, str(hello.get("route", "")))
            else:
                self._questions(line, str(hello.get("sender", "")))
        except DivvyError as error:
            self._refused(error.code)
            _log.warning("connection refused", code=error.code, text=str(error))
        except OSError:
            pass  # the other side has gone; what it sent is accounted, what it did not send is missed
        finally:
            with self._lock:
                self._open.pop(sock, None)
            sock.close()

    def _chunks(self, line: Line, rail: str) -> None:
        scratch = bytearray(_SCRATCH)
        while True:
            head = line.receive_head()
            answer = self._inbox.take(line.sock, head, rail, scratch)
            line.send_reply(Reply(head.transfer, head.chunk, head.attempt, ANSWERS.index(answer)))

    def _questions(self, line: Line, sender: str) -> None:
        while True:
            body = line.receive_message()
            try:
                answer = self._answer(body, sender)
            except DivvyError as error:
                answer = {"problem": error.to_problem()}
            except (KeyError, TypeError, ValueError) as error:
                fault = InputError.one("message", f"the question is not understood: {error!r}")
                answer = {"problem": fault.to_problem()}
            line.send_message(answer)

    def close(self) -> None:
        """Stop listening and end every connection."""
        self._closed.set()
        with self._lock:
            serving = dict(self._open)
        for sock in (*self._listening, *serving):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for sock in self._listening:
            sock.close()
        for thread in (*self._threads, *serving.values()):
            thread.join(5)
