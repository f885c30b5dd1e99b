"""The wake-up: one datagram tells the loop that something waits in the intake.

The datagram carries nothing and may be lost; the intake table is what counts, and the loop looks at it
once a second in any case.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path


class Wake:
    """The loop's end: a bound Unix datagram socket that `select` can wait on.

    Args:
        path: Where to bind; what a former loop left there is removed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(path))
        path.chmod(0o600)

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    def drain(self) -> None:
        """Forget the wake-ups that have arrived."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(16)

    def close(self) -> None:
        """Close the socket and remove its file."""
        self._socket.close()
        self._path.unlink(missing_ok=True)


def wake(path: Path) -> None:
    """Wake the loop that listens at a path; do nothing where none does."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(b"!", str(path))
