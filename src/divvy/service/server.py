"""The API process: one uvicorn on a Unix socket, and on TCP where an address is given."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence
from typing import Final

import uvicorn
from fastapi import FastAPI

from divvy.bootstrap import collector
from divvy.service.peer import PeerProtocol

_SHUTDOWN_SECONDS: Final = 3
_SWITCH_SECONDS: Final = 0.0005
_CONNECTIONS: Final = 2_000


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


def make_server(app: FastAPI, ready: Callable[[], None] = lambda: None) -> uvicorn.Server:
    """Return a server for the application, not yet running.

    Args:
        app: The application.
        ready: Called once requests are accepted.
    """
    config = uvicorn.Config(
        app,
        http=PeerProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        h11_max_incomplete_event_size=64 << 10,
    )
    return _Server(config, ready)


def serve(app: FastAPI, listeners: Sequence[socket.socket], ready: Callable[[], None]) -> None:
    """Answer requests on listening sockets until SIGINT or SIGTERM; open streams get a moment to end."""
    collector.calm()
    # A worker thread that parses rows must not hold up the event loop for whole time slices of 5 ms.
    sys.setswitchinterval(_SWITCH_SECONDS)

    def loaded() -> None:
        collector.settle()
        ready()

    make_server(app, loaded).run(list(listeners))
