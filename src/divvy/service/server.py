"""The API process: one uvicorn on a Unix socket, and on TCP where an address is given."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import uvicorn
from fastapi import FastAPI

from divvy.errors import ConflictError, DivvyError, Fault, InputError, UnavailableError
from divvy.service.peer import PeerProtocol

_BACKLOG: Final = 512
_SHUTDOWN_SECONDS: Final = 3
_LONGEST_PATH: Final = 107
_SWITCH_SECONDS: Final = 0.0005


def open_unix(path: Path) -> socket.socket:
    """Return a listening Unix socket that every user of the machine may connect to.

    A socket that nobody listens on any more is replaced; one that answers is somebody else's.

    Raises:
        ConflictError: If a server answers there already, or something that is no socket is in the way.
        InputError: If the path is longer than the kernel allows.
        UnavailableError: If it cannot be made there.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise InputError.one(
            "socket-path",
            f"{path} is too long for a Unix socket",
            path="DIVVY_HOME",
            allowed=f"at most {_LONGEST_PATH} bytes",
            fix="use a shorter state directory",
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _make_way(path)
        listener.bind(str(path))
        path.chmod(0o666)  # who connects is known by the kernel; what they may do is decided per request
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise UnavailableError.one(
            "socket-unmade", f"no socket can be made at {path}: {error.strerror}", path=str(path)
        ) from error
    except DivvyError:
        listener.close()
        raise
    return listener


def _make_way(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ConflictError.one("socket-taken", f"{path} is not a socket", path=str(path), fix="move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
            return
    raise ConflictError.one(
        "socket-taken", f"a server answers at {path} already", path=str(path), fix="stop it first"
    )


def open_tcp(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket; port 0 takes any free one.

    Raises:
        UnavailableError: If the address is taken or not of this machine.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
    except OSError as error:
        raise _no_listener(host, port, error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise _no_listener(host, port, error) from error
    return listener


def _no_listener(host: str, port: int, error: OSError) -> DivvyError:
    fault = Fault(
        "address-taken",
        "--listen",
        f"cannot listen on {host}:{port}: {error.strerror}",
        "",
        "choose another port, or stop what uses it",
    )
    return UnavailableError(f"cannot listen on {host}:{port}", [fault])


class _Server(uvicorn.Server):
    """uvicorn, which leaves signals to whoever runs it and says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept, then say so."""
        await super().startup(sockets)
        if self.started:
            self._ready()


def serve(app: FastAPI, listeners: Sequence[socket.socket], ready: Callable[[], None] = lambda: None) -> None:
    """Answer requests until SIGINT or SIGTERM; open streams get a moment to end.

    Args:
        app: The application.
        listeners: Listening sockets; they are closed at the end.
        ready: Called once requests are accepted.
    """
    # A worker thread that parses rows must not hold up the event loop for whole time slices of 5 ms.
    sys.setswitchinterval(_SWITCH_SECONDS)
    config = uvicorn.Config(
        app,
        http=PeerProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        h11_max_incomplete_event_size=64 << 10,
    )
    with _closing(listeners):
        _Server(config, ready).run(list(listeners))


@contextlib.contextmanager
def _closing(listeners: Sequence[socket.socket]) -> Iterator[None]:
    try:
        yield
    finally:
        for listener in listeners:
            name = listener.getsockname() if listener.family == socket.AF_UNIX else None
            listener.close()
            if name:
                Path(str(name)).unlink(missing_ok=True)
