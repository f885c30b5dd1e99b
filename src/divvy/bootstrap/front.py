"""The process of the live router: listens, watches the back-ends file, stops gracefully."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from divvy.adapters.front.charges import Charges
from divvy.adapters.front.config import Setup
from divvy.adapters.front.grpc_front import GrpcFront
from divvy.adapters.front.keys import Keys
from divvy.adapters.front.models import Model, Models
from divvy.adapters.front.router import Router
from divvy.adapters.front.server import Client
from divvy.adapters.front.showing import Showing
from divvy.errors import DivvyError, InputError, UnavailableError
from divvy.perf.latency import LatencyProfile
from divvy.planners.queries.desk import Desk
from divvy.planners.queries.registry import find_rule

_LOOK_SECONDS: Final = 0.2
_GRACE_SECONDS: Final = 30.0
MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line decides.

    Attributes:
        host: Address to listen on.
        port: Port; 0 for a free one.
        most_waiting: Queries that may wait.
        most_bytes: Largest body.
        longest_seconds: A query that has waited so long is refused.
        refuse_late: Whether a query that would miss its objective is refused at once.
        keys: Who may ask; everybody where None.
        tls: Certificate and key; plain HTTP where None.
        charges: Charges accounts for slice-seconds; nobody is charged where None.
        grpc_port: Port of the protocol over gRPC, 0 for a free one; HTTP only where None.
        profiles: Latencies of further models, by name.
        showing: Shows on the control plane's page what is served; nothing is shown where None.
    """

    host: str = "127.0.0.1"
    port: int = 8090
    most_waiting: int = 2000
    most_bytes: int = MOST_BYTES
    longest_seconds: float = 30.0
    refuse_late: bool = False
    keys: Keys | None = None
    tls: tuple[Path, Path] | None = None
    charges: Charges | None = None
    grpc_port: int | None = None
    profiles: Mapping[str, LatencyProfile] = field(default_factory=dict)
    showing: Showing | None = None

    def context(self) -> ssl.SSLContext | None:
        """Return what TLS needs; None for plain HTTP.

        Raises:
            InputError: If the certificate and its key cannot be used.
        """
        if self.tls is None:
            return None
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            made.load_cert_chain(*self.tls)
        except (OSError, ssl.SSLError) as error:
            where = ", ".join(str(path) for path in self.tls)
            raise InputError.one("serve-tls", f"{where}: {error}", path="--tls-cert, --tls-key") from error
        return made


async def run_front(
    file: Path,
    load: Callable[[], Setup],
    profile: LatencyProfile,
    options: Options,
    tell: Callable[[str], None],
) -> None:
    """Serve until a signal asks for the end; then finish what is open, and end.

    Args:
        file: The back-ends file; read again when it changes.
        load: Reads it.
        profile: Latencies of the model.
        options: What the command line decides.
        tell: Told where it listens, and what happened to the file.

    Raises:
        UnavailableError: If the port is taken.
        InputError: If the certificate cannot be used.
    """
    setup, tls = load(), options.context()
    models = _models(setup, profile, options)
    ended, again, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()
    router, loop = models.routers[0], asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    clients: set[Client] = set()

    def make() -> Client:
        client = Client(router, setup.slo_us, options.most_bytes, clients.discard, options.keys, models)
        clients.add(client)
        return client

    server = await _listen(make, options, tls)
    address = f"{'http' if tls is None else 'https'}://{options.host}:{server.sockets[0].getsockname()[1]}"
    tell(address)
    calls = await _listen_grpc(router, setup, options, models, tell)
    loop.add_signal_handler(signal.SIGHUP, again.set)
    work = [_watch(file, load, models, tell, again), *(one.probe() for one in models.routers)]
    tasks = [loop.create_task(one) for one in work]
    beside = [loop.create_task(one) for one in _beside(models, options, address, closed)]
    await ended.wait()
    server.close()
    if calls is not None:
        await calls.stop(_GRACE_SECONDS)
    for task in tasks:
        task.cancel()
    await _finish(models, clients)
    closed.set()
    await asyncio.gather(*beside)


def _beside(
    models: Models, options: Options, address: str, closed: asyncio.Event
) -> list[Coroutine[Any, Any, None]]:
    """Return what runs beside the routers until they are closed: charging and showing, where asked for."""
    found = []
    if options.charges is not None:
        found.append(options.charges.run(closed))
    if options.showing is not None:
        found.append(options.showing.run(models, address, closed))
    return found


async def _listen(make: Callable[[], Client], options: Options, tls: ssl.SSLContext | None) -> asyncio.Server:
    """Return the server, which listens."""
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(make, options.host, options.port, backlog=1024, ssl=tls)
    except OSError as error:
        raise UnavailableError.one(
            "serve-port", f"{options.host}:{options.port}: {error.strerror}", path="--port"
        ) from error


async def _listen_grpc(
    router: Router, setup: Setup, options: Options, models: Models, tell: Callable[[str], None]
) -> GrpcFront | None:
    """Return what answers over gRPC, where it is asked for."""
    if options.grpc_port is None:
        return None
    calls = GrpcFront(router, setup.slo_us, options.most_bytes, options.keys, models)
    port = await calls.start(options.host, options.grpc_port, options.tls)
    tell(f"grpc://{options.host}:{port}")
    return calls


def _models(setup: Setup, profile: LatencyProfile, options: Options) -> Models:
    """Return the routers of a file's models, its own first."""
    profiles = {**options.profiles, setup.model: profile}
    return Models({m.model: Model(_router(m, profiles[m.model], options), m.slo_us) for m in setup.all})


def _router(setup: Setup, profile: LatencyProfile, options: Options) -> Router:
    """Return the router of a file's slices."""
    rule, params = find_rule(setup.rule)
    largest = max(cell.batch for cell in profile.cells)
    desk = Desk(profile, largest, rule, params)
    router = Router(
        desk,
        setup.model,
        options.most_waiting,
        rule.name,
        refuse_late=options.refuse_late,
        longest_seconds=options.longest_seconds,
        charges=options.charges,
    )
    router.declare(setup.slices)
    return router


async def _finish(models: Models, clients: set[Client]) -> None:
    """Wait for what is open, then let the clients go."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _GRACE_SECONDS
    while models.open and loop.time() < end:  # noqa: ASYNC110 - once, at the very end
        await asyncio.sleep(0.02)
    for client in list(clients):
        client.close()
    await asyncio.sleep(0.02)


async def _watch(
    file: Path, load: Callable[[], Setup], models: Models, tell: Callable[[str], None], again: asyncio.Event
) -> None:
    """Declare the slices anew whenever the file has changed or SIGHUP came; faults change nothing."""
    seen = _stamp(file)
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        now = _stamp(file)
        if now == seen and not again.is_set():
            continue
        seen = now
        again.clear()
        try:
            models.replace(load())
            tell(f"{file}: read again")
        except DivvyError as error:
            tell(f"{file}: not taken over: {error}")


def _stamp(file: Path) -> tuple[int, int, int]:
    try:
        stat = file.stat()
    except OSError:
        return 0, 0, 0
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
