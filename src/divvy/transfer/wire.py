"""The bytes on a connection: one greeting that says what it is for, then control messages or chunks.

A control message is a length, a JSON object and a code. A chunk is a header with a code and its bytes; the
answer to it is a short frame with a code. Every length is checked before anything is allocated.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, Final, NamedTuple

from divvy.errors import InputError
from divvy.transfer.auth import CODE, Sealer, receive
from divvy.transfer.machine.cut import MOST_CHUNK

MOST_MESSAGE: Final = 64 << 20
_LENGTH: Final = struct.Struct("!I")
_HEAD: Final = struct.Struct("!Q I I I I Q B")
_ANSWER: Final = struct.Struct("!Q I I B")


class Head(NamedTuple):
    """The header of a chunk.

    Attributes:
        transfer: Number of the transfer.
        epoch: Use of the target buffer that it was opened for.
        chunk: Number of the chunk.
        attempt: Attempt of that chunk.
        size: Bytes that follow (or that have been written by the back end, if `placed`).
        checksum: Of the bytes.
        placed: 1 if the bytes are in the target buffer already, and none follow, else 0.
    """

    transfer: int
    epoch: int
    chunk: int
    attempt: int
    size: int
    checksum: int
    placed: int = 0


class Reply(NamedTuple):
    """The answer to an attempt: its code is the position in `sending.Answer`."""

    transfer: int
    chunk: int
    attempt: int
    answer: int


class Line:
    """A connection whose messages carry codes.

    Args:
        sock: The socket, authenticated.
        key: Key of the connection.
        accepted: Whether this side accepted it.
    """

    def __init__(self, sock: socket.socket, key: bytes, *, accepted: bool) -> None:
        self.sock = sock
        own, other = (b"<", b">") if accepted else (b">", b"<")
        self._out, self._in = Sealer(key, own), Sealer(key, other)

    def send_message(self, body: dict[str, Any]) -> None:
        """Send a control message."""
        text = json.dumps(body, separators=(",", ":")).encode()
        head = _LENGTH.pack(len(text))
        self.sock.sendall(b"".join((head, text, self._out.code(head, text))))

    def receive_message(self) -> dict[str, Any]:
        """Return the next control message.

        Raises:
            InputError: If it is too long or no object.
            UnauthenticatedError: If it was altered.
        """
        head = receive(self.sock, _LENGTH.size)
        (length,) = _LENGTH.unpack(head)
        if length > MOST_MESSAGE:
            raise InputError.one(
                "message-long", f"a message of {length} bytes", allowed=f"{MOST_MESSAGE} bytes"
            )
        text = receive(self.sock, length)
        self._in.check(receive(self.sock, CODE), head, text)
        try:
            body = json.loads(text)
        except ValueError as error:
            raise InputError.one("message", f"a message is no JSON: {error}") from error
        if not isinstance(body, dict):
            raise InputError.one("message", "a message is no object")
        return body

    def send_head(self, head: Head) -> None:
        """Send the header of a chunk."""
        packed = _HEAD.pack(*head)
        self.sock.sendall(packed + self._out.code(packed))

    def receive_head(self) -> Head:
        """Return the next header.

        Raises:
            InputError: If the chunk would be too large.
            UnauthenticatedError: If it was altered.
        """
        raw = receive(self.sock, _HEAD.size + CODE)
        packed = raw[: _HEAD.size]
        self._in.check(raw[_HEAD.size :], packed)
        head = Head._make(_HEAD.unpack(packed))
        if not 0 < head.size <= MOST_CHUNK:
            raise InputError.one("chunk-long", f"a chunk of {head.size} bytes", allowed=f"{MOST_CHUNK} bytes")
        return head

    def send_reply(self, reply: Reply) -> None:
        """Send the answer to an attempt."""
        packed = _ANSWER.pack(*reply)
        self.sock.sendall(packed + self._out.code(packed))

    def receive_reply(self) -> Reply:
        """Return the next answer.

        Raises:
            UnauthenticatedError: If it was altered.
        """
        raw = receive(self.sock, _ANSWER.size + CODE)
        packed = raw[: _ANSWER.size]
        self._in.check(raw[_ANSWER.size :], packed)
        return Reply(*_ANSWER.unpack(packed))
