"""Connections that leave by a certain rail: bound to its address, and to its device where that is allowed."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from divvy.transfer.auth import greet
from divvy.transfer.interfaces import Rail
from divvy.transfer.wire import Line

CONNECT_S: Final = 0.6
_TCP_USER_TIMEOUT: Final = 18


@dataclass(frozen=True, slots=True)
class Route:
    """A pair of rails by which two agents reach each other.

    Attributes:
        here: The rail of this agent.
        there: The rail of the other.
        port: Where the other listens.
    """

    here: Rail
    there: Rail
    port: int

    @property
    def name(self) -> str:
        """Return the name of the route, such as ``e0>e0``."""
        return f"{self.here.name}>{self.there.name}"


def routes(here: Sequence[Rail], there: Sequence[Rail], port: int) -> list[Route]:
    """Return the routes between two agents: for each own rail the rails of the other in its network.

    Where several of both lie in one network they are paired by name, then in order, so that no rail is
    used twice while another is idle.
    """
    out: list[Route] = []
    free = list(there)
    for rail in here:
        near = [other for other in free if rail.reaches(other)]
        if not near:
            continue
        other = next((o for o in near if o.name == rail.name), near[0])
        free.remove(other)
        out.append(Route(rail, other, port))
    return out


def dial(route: Route, key: bytes, purpose: str, sender: str, timeout_s: float = CONNECT_S) -> Line:
    """Return an authenticated connection by a route.

    Raises:
        OSError: If the other side does not answer.
        UnauthenticatedError: If it has another key.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if route.here.device != "lo":
            # Only root may bind to a device; the source address chooses the way for others.
            with contextlib.suppress(PermissionError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, route.here.device.encode() + b"\0")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, 5000)
        sock.bind((route.here.address, 0))
        sock.settimeout(timeout_s)
        sock.connect((route.there.address, route.port))
        line = Line(sock, greet(sock, key), accepted=False)
        line.send_message(
            {"purpose": purpose, "sender": sender, "route": route.name, "rail": route.there.name}
        )
    except BaseException:
        sock.close()
        raise
    return line
