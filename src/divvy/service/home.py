"""The state directory and the sockets of a control plane: made ready, or refused with the reason."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from divvy.adapters.store.ownership import locked, unwritable
from divvy.errors import ConflictError, InputError, UnavailableError

_LONGEST_SOCKET_PATH: Final = 107
_BACKLOG: Final = 1_024


def make_home(home: Path) -> None:
    """Create the state directory with what must be in it before any process starts.

    Raises:
        UnavailableError: If it cannot be written.
        InputError: If its path is too long for the sockets in it.
    """
    if len(os.fsencode(home / "socket")) > _LONGEST_SOCKET_PATH:
        raise InputError.one(
            "home-path-long",
            f"{home} is too long a path for a Unix socket",
            path="--home",
            allowed=f"at most {_LONGEST_SOCKET_PATH - len('/socket')} bytes",
            fix="choose a shorter one",
        )
    try:
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o711)  # others may reach the socket, and read nothing
        (home / "logs").mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise unwritable(Path(error.filename or home), error) from error


@contextlib.contextmanager
def sole_control_plane(home: Path) -> Iterator[None]:
    """Be the only `divvy up` on a state directory for the length of a block.

    Raises:
        ConflictError: If another one is there; the message says where it answers.
    """
    where = read_address(home)
    who = "divvy up" + (f" (at {where})" if where else "")
    with locked(home / "up.lock", who):
        yield


def write_address(home: Path, url: str) -> None:
    """Note where the API answers, for people and for a second `divvy up`."""
    with contextlib.suppress(OSError):  # nothing depends on it
        note = home / "up.json"
        note.write_text(json.dumps({"url": url, "pid": os.getpid()}) + "\n", encoding="utf-8")
        note.chmod(0o644)


def read_address(home: Path) -> str:
    """Return where the API of this state directory answered last; empty where that is not known."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((home / "up.json").read_text(encoding="utf-8"))["url"])
    return ""


def listen_on_port(host: str, port: int) -> socket.socket:
    """Open the TCP socket of the API.

    Raises:
        ConflictError: If the port is in use.
        UnavailableError: If it cannot be opened for another reason.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise InputError.one(
            "host-unknown", f"no address {host!r} ({error.strerror})", path="--host", fix="try 127.0.0.1"
        ) from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ConflictError.one(
                "port-in-use",
                f"port {port} of {host} is in use",
                path="--port",
                allowed="a free port, or 0 for any",
                fix=f"end what listens there (`ss -ltnp sport = :{port}`), or try --port {port + 1}",
            ) from error
        raise UnavailableError.one(
            "port-refused",
            f"cannot listen on {host}, port {port} ({error.strerror})",
            path="--port",
            fix="choose a port above 1023, and an address of this machine",
        ) from error
    return listener


def listen_on_path(path: Path) -> socket.socket:
    """Open the Unix socket of the API; anybody on this machine may connect, the kernel says who it is.

    Raises:
        UnavailableError: If it cannot be opened.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)  # of a control plane that was killed; the lock says there is no other
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise unwritable(path, error) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address of a TCP listener for people; a wildcard reads as this machine."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}"
