"""Plain TCP: the header, then the bytes, by one call from where they lie."""

from __future__ import annotations

import os
import socket

from divvy.transfer.backends.port import Spots
from divvy.transfer.places import Region
from divvy.transfer.wire import Head, Line

_GATHER_BELOW = 4096


class Tcp:
    """Sends chunks over the rail's own connection."""

    def send(self, line: Line, head: Head, region: Region, views: list[memoryview], spots: Spots) -> None:
        """Send a chunk; small fragments are gathered into one buffer first."""
        del region, spots
        line.send_head(head)
        if len(views) == 1:
            line.sock.sendall(views[0])
        elif head.size < _GATHER_BELOW * len(views):
            line.sock.sendall(b"".join(views))
        else:
            _send_all(line.sock, views)

    def finish(self, line: Line, most: int) -> int:
        """Return 1: `send` has given the chunk to the kernel already."""
        del line, most
        return 1

    def close(self) -> None:
        """Give up nothing: the connection belongs to the rail."""


def _send_all(sock: socket.socket, views: list[memoryview]) -> None:
    """Send many fragments with as few calls as the kernel allows."""
    most = os.sysconf("SC_IOV_MAX")
    rest = list(views)
    while rest:
        sent = sock.sendmsg(rest[:most])
        done = 0
        while done < len(rest) and sent >= rest[done].nbytes:
            sent -= rest[done].nbytes
            done += 1
        del rest[:done]
        if sent:
            rest[0] = rest[0][sent:]
