"""The process of the live router: listens, watches the back-ends file, stops gracefully."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from divvy.adapters.front.config import Setup
from divvy.adapters.front.router import Router
from divvy.adapters.front.server import Client
from divvy.errors import DivvyError, UnavailableError
from divvy.perf.latency import LatencyProfile
from divvy.planners.queries.desk import Desk
from divvy.planners.queries.registry import find_rule

_LOOK_SECONDS: Final = 0.2
_GRACE_SECONDS: Final = 30.0
_MOST_BYTES: Final = 64 << 20


async def run_front(
    file: Path,
    load: Callable[[], Setup],
    profile: LatencyProfile,
    host: str,
    port: int,
    most_waiting: int,
    tell: Callable[[str], None],
) -> None:
    """Serve until a signal asks for the end; then finish what is open, and end.

    Args:
        file: The back-ends file; read again when it changes.
        load: Reads it.
        profile: Latencies of the model.
        host: Address to listen on.
        port: Port; 0 for a free one.
        most_waiting: Queries that may wait.
        tell: Told where it listens, and what happened to the file.

    Raises:
        UnavailableError: If the port is taken.
    """
    setup = load()
    rule, params = find_rule(setup.rule)
    largest = max(cell.batch for cell in profile.cells)
    router = Router(Desk(profile, largest, rule, params), setup.model, most_waiting, rule.name)
    router.declare(setup.slices)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    clients: set[Client] = set()

    def make() -> Client:
        client = Client(router, setup.slo_us, _MOST_BYTES, clients.discard)
        clients.add(client)
        return client

    try:
        server = await loop.create_server(make, host, port, backlog=1024)
    except OSError as error:
        raise UnavailableError.one("serve-port", f"{host}:{port}: {error.strerror}", path="--port") from error
    tell(f"http://{host}:{server.sockets[0].getsockname()[1]}")
    tasks = [loop.create_task(router.probe()), loop.create_task(_watch(file, load, router, tell))]
    await ended.wait()
    server.close()
    for task in tasks:
        task.cancel()
    await _finish(router, clients)


async def _finish(router: Router, clients: set[Client]) -> None:
    """Wait for what is open, then let the clients go."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _GRACE_SECONDS
    while router.open and loop.time() < end:  # noqa: ASYNC110 - once, at the very end
        await asyncio.sleep(0.02)
    for client in list(clients):
        client.close()
    await asyncio.sleep(0.02)


async def _watch(file: Path, load: Callable[[], Setup], router: Router, tell: Callable[[str], None]) -> None:
    """Declare the slices anew whenever the file has changed; a file with faults changes nothing."""
    seen = _stamp(file)
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        now = _stamp(file)
        if now == seen:
            continue
        seen = now
        try:
            router.declare(load().slices)
            tell(f"{file}: read again")
        except DivvyError as error:
            tell(f"{file}: not taken over: {error}")


def _stamp(file: Path) -> tuple[int, int, int]:
    try:
        stat = file.stat()
    except OSError:
        return 0, 0, 0
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
