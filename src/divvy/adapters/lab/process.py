"""The process that holds slice servers: told on standard input what to serve, ends when that closes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any, Final

import uvicorn

from divvy.adapters.lab.slice_app import SliceApp
from divvy.adapters.lab.spec import CPU, SliceSpec
from divvy.adapters.lab.work import Line, make_burner

_BACKLOG: Final = 1024


async def _serve(rows: list[dict[str, Any]]) -> None:
    """Serve until standard input is closed or a signal asks for the end."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    servers = []
    for row in rows:
        spec = SliceSpec.from_json(row["spec"])
        line = Line(make_burner() if spec.work == CPU else None)
        config = uvicorn.Config(
            SliceApp(spec, line),
            log_level="error",
            access_log=False,
            lifespan="off",
            timeout_keep_alive=3600,
            timeout_graceful_shutdown=2,
            backlog=_BACKLOG,
        )
        server = uvicorn.Server(config)
        server.capture_signals = contextlib.nullcontext  # type: ignore[assignment]  # handlers are above
        servers.append((server, socket.socket(fileno=row["descriptor"])))
    tasks = [asyncio.ensure_future(server.serve(sockets=[ear])) for server, ear in servers]
    sys.stdout.write("calibrated\n")
    sys.stdout.flush()
    loop.add_reader(sys.stdin.fileno(), _heed, ended)
    await ended.wait()
    loop.remove_reader(sys.stdin.fileno())
    for server, _ in servers:
        server.should_exit = True
    await asyncio.gather(*tasks)


def _heed(ended: asyncio.Event) -> None:
    """Look at standard input: closed means that whoever started this process is gone."""
    if not os.read(sys.stdin.fileno(), 1):
        ended.set()


def main() -> None:
    """Read the slices from the first line of standard input, and serve them."""
    rows = json.loads(sys.stdin.buffer.readline())
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(rows))


def _loop_factory() -> Any:
    """Return what makes the event loop: uvloop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return uvloop.new_event_loop


if __name__ == "__main__":
    main()
