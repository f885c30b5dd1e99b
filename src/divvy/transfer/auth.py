"""Mutual authentication with a shared key, and the code that every later frame carries.

Each side proves that it has the key on a fresh challenge of the other (HMAC-SHA256) before anything of it is
read but 64 bytes of fixed length; nothing is allocated for a stranger. Both derive a key of the connection
from the two challenges; headers and control messages carry a code made with it, with a count, so they can be
neither altered nor replayed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
from pathlib import Path
from typing import Final

from divvy.errors import InputError, UnauthenticatedError

MAGIC: Final = b"DVYMOVE1"
LEAST_KEY: Final = 16
CODE: Final = 16
_NONCE: Final = 32
_TIMEOUT_S: Final = 2.0


def read_key(path: Path) -> bytes:
    """Return the shared key in a file.

    Raises:
        InputError: If it cannot be read, is too short, or others may read it.
    """
    try:
        key = path.read_bytes().strip()
        mode = path.stat().st_mode & 0o077
    except OSError as error:
        raise InputError.one("key-unreadable", f"{path}: {error.strerror}", path="--key") from error
    if len(key) < LEAST_KEY:
        raise InputError.one(
            "key-short",
            f"{path} holds {len(key)} bytes",
            path="--key",
            allowed=f"at least {LEAST_KEY} bytes",
            fix=f"head -c 32 /dev/urandom | base64 > {path}; chmod 600 {path}",
        )
    if mode:
        raise InputError.one(
            "key-open", f"others may read {path}", path="--key", allowed="mode 0600", fix=f"chmod 600 {path}"
        )
    return key


def receive(sock: socket.socket, count: int) -> bytes:
    """Return exactly `count` bytes.

    Raises:
        ConnectionError: If the other side closes.
    """
    out = bytearray(count)
    view, got = memoryview(out), 0
    while got < count:
        more = sock.recv_into(view[got:])
        if not more:
            raise ConnectionResetError("the other side closed the connection")
        got += more
    return bytes(out)


def _proof(key: bytes, role: bytes, mine: bytes, theirs: bytes) -> bytes:
    return hmac.digest(key, MAGIC + role + mine + theirs, "sha256")


def greet(sock: socket.socket, key: bytes) -> bytes:
    """Authenticate as the side that connected; return the key of the connection.

    Raises:
        UnauthenticatedError: If the other side has not the key.
        OSError: If it does not answer.
    """
    sock.settimeout(_TIMEOUT_S)
    mine = secrets.token_bytes(_NONCE)
    sock.sendall(MAGIC + mine)
    answer = receive(sock, 2 * _NONCE)
    theirs, proof = answer[:_NONCE], answer[_NONCE:]
    if not hmac.compare_digest(proof, _proof(key, b"accept", theirs, mine)):
        raise UnauthenticatedError.one("key-differs", "the other agent has another key", path="--key")
    sock.sendall(_proof(key, b"connect", mine, theirs))
    sock.settimeout(None)
    return _proof(key, b"session", mine, theirs)


def admit(sock: socket.socket, key: bytes) -> bytes:
    """Authenticate as the side that accepted; return the key of the connection.

    Raises:
        UnauthenticatedError: If the other side has not the key, or speaks something else.
        OSError: If it does not answer in time.
    """
    sock.settimeout(_TIMEOUT_S)
    hello = receive(sock, len(MAGIC) + _NONCE)
    if not hmac.compare_digest(hello[: len(MAGIC)], MAGIC):
        raise UnauthenticatedError.one("not-an-agent", "the caller is no agent of this version")
    theirs, mine = hello[len(MAGIC) :], secrets.token_bytes(_NONCE)
    sock.sendall(mine + _proof(key, b"accept", mine, theirs))
    proof = receive(sock, _NONCE)
    if not hmac.compare_digest(proof, _proof(key, b"connect", theirs, mine)):
        raise UnauthenticatedError.one("key-differs", "the caller has another key")
    sock.settimeout(None)
    return _proof(key, b"session", theirs, mine)


class Sealer:
    """Makes and checks the codes of one direction of one connection.

    Args:
        key: Key of the connection.
        direction: ``b">"`` from the side that connected, ``b"<"`` from the other.
    """

    def __init__(self, key: bytes, direction: bytes) -> None:
        self._key = hmac.digest(key, direction, "sha256")
        self._count = 0

    def code(self, *parts: bytes | memoryview) -> bytes:
        """Return the code of the next message."""
        digest = hashlib.blake2b(self._count.to_bytes(8, "big"), key=self._key, digest_size=CODE)
        self._count += 1
        for part in parts:
            digest.update(part)
        return digest.digest()

    def check(self, code: bytes, *parts: bytes | memoryview) -> None:
        """Check the code of the next message.

        Raises:
            UnauthenticatedError: If it is another.
        """
        if not hmac.compare_digest(code, self.code(*parts)):
            raise UnauthenticatedError.one(
                "frame-forged", "a message does not carry the code of its connection"
            )
