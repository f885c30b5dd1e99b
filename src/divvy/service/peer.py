"""Peer credentials: over a Unix socket the kernel says who is at the other end, and nobody can lie about it.

uvicorn does not pass the socket on to the application, so its protocol is extended by one step: when a
connection is made, the credentials are read once and put into the ASGI ``state`` of every request on it.
Only the server writes that state; no header reaches it.
"""

from __future__ import annotations

import asyncio
import pwd
import socket
import struct
from typing import Any, Final, NamedTuple

from uvicorn.protocols.http.h11_impl import H11Protocol

PEER: Final = "divvy.peer"
_UCRED: Final = struct.Struct("3i")


class Peer(NamedTuple):
    """The process at the other end, as it was when it connected."""

    pid: int
    uid: int
    gid: int


def read_peer(connection: socket.socket) -> Peer | None:
    """Return who is at the other end of a Unix socket; None for any other kind of socket."""
    if connection.family != socket.AF_UNIX:
        return None
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return Peer(*_UCRED.unpack(data))


def user_name(uid: int) -> str:
    """Return the login name of a user id, or ``uid-N`` where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


class PeerProtocol(H11Protocol):
    """uvicorn's HTTP protocol, with the peer's credentials in ``scope["state"]["divvy.peer"]``."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Read the credentials, then go on as usual."""
        connection: Any = transport.get_extra_info("socket")
        self.app_state = {**self.app_state, PEER: read_peer(connection)}
        super().connection_made(transport)
