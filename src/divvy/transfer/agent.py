"""An agent: one process per host that moves bytes from and to its places."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

from divvy.errors import ConflictError, InputError, NotFoundError, UnavailableError
from divvy.transfer.answers import Answers
from divvy.transfer.auth import LEAST_KEY
from divvy.transfer.backends.nixl import Ends, Nixl, is_installed
from divvy.transfer.backends.port import Mover
from divvy.transfer.backends.tcp import Tcp
from divvy.transfer.calibration import Calibration
from divvy.transfer.checksum import NAME
from divvy.transfer.control import Control
from divvy.transfer.dial import Route, routes
from divvy.transfer.incoming import Inbox, Incoming
from divvy.transfer.interfaces import Rail, discover
from divvy.transfer.machine.cut import Descriptor
from divvy.transfer.metrics import Metrics
from divvy.transfer.outgoing import Wish
from divvy.transfer.peer import Handle, Peer
from divvy.transfer.places import Place, Region
from divvy.transfer.server import Server
from divvy.transfer.wire import Line

_SWEEP_S: Final = 0.25


class Agent:
    """Moves bytes between the places of this host and those of others.

    Args:
        name: Name of the host; unique among the agents that talk to each other.
        key: The shared key, at least 16 bytes.
        rails: Ways out of this host; None takes every interface that is up.
        port: Port on each rail; 0 takes a free one.
        state: Folder that keeps the calibration; None keeps it in memory.
        roots: Folders whose files peers may read and write.
        extra: Further questions that peers may ask, by verb.

    Raises:
        InputError: If the key is short or there is no rail.
        UnavailableError: If the port is taken.
    """

    def __init__(
        self,
        name: str,
        key: bytes,
        rails: Sequence[Rail] | None = None,
        port: int = 0,
        state: Path | None = None,
        roots: Sequence[Path] = (),
        extra: dict[str, Callable[[dict[str, Any], str], dict[str, Any]]] | None = None,
    ) -> None:
        if len(key) < LEAST_KEY:
            raise InputError.one("key-short", f"a key of {len(key)} bytes", allowed=f"at least {LEAST_KEY}")
        self.name, self._key = name, key
        self.rails = list(discover() if rails is None else rails)
        if not self.rails:
            raise InputError.one("rail-missing", "this host has no rail", path="--rail")
        self.metrics = Metrics()
        self.calibration = Calibration(state / "calibration.json" if state else None, name)
        self._regions: dict[str, Region] = {}
        self._peers: dict[tuple[str, str], Peer] = {}
        self._lock = threading.Lock()
        self._ends = Ends(name)
        self._inbox = Inbox(self._received)
        answers = Answers(name, roots, self._inbox, self._regions, self.hello, extra or {}, self._placed)
        self._server = Server(self.rails, port, key, self._inbox, answers, self.metrics.refused)
        self.port = self._server.port
        self._closed = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep, name="sweep", daemon=True)
        self._sweeper.start()

    @property
    def addresses(self) -> list[str]:
        """Return where this agent is reached, by rail."""
        return [f"{rail.address}:{self.port}" for rail in self.rails]

    def hello(self) -> dict[str, Any]:
        """Return what this agent says of itself."""
        return {
            "agent": self.name,
            "port": self.port,
            "rails": [rail.to_json() for rail in self.rails],
            "regions": [
                r.place.to_json() | {"name": r.name, "bytes": r.size, "epoch": r.epoch}
                for r in list(self._regions.values())
            ],
            "backends": self._backends,
            "checksum": NAME,
            "calibration": self.calibration.summary(),
        }

    def register(
        self, name: str, buffer: Any, place: Place | None = None, *, writable: bool = True
    ) -> Region:
        """Name a buffer, so that it can be moved and peers can write it.

        Args:
            name: Name, unique here.
            buffer: Anything with a contiguous buffer of bytes, such as a numpy array.
            place: Where it is; this host's memory if not given.
            writable: Whether peers may write it.

        Raises:
            ConflictError: If the name is taken.
        """
        view = memoryview(buffer).cast("B")
        with self._lock:
            if name in self._regions:
                raise ConflictError.one("region-taken", f"there is a buffer {name!r} already")
            region = Region(name, place or Place(self.name), view, writable and not view.readonly)
            self._regions[name] = region
        return region

    def unregister(self, name: str) -> None:
        """Give a buffer back to its owner; transfers into it fail first, and late writes are refused."""
        with self._lock:
            region = self._regions.pop(name, None)
        if region is not None:
            self._fence(region, "its buffer was given up")
            self._ends.forget(region)

    def reuse(self, name: str) -> int:
        """Begin the next use of a buffer and return its number; nothing of earlier uses is written any more.

        Raises:
            NotFoundError: If there is no such buffer.
        """
        region = self._regions.get(name)
        if region is None:
            raise NotFoundError.one("region-unknown", f"no buffer {name!r}", allowed=", ".join(self._regions))
        region.epoch += 1
        self._fence(region, "its buffer is in another use now")
        return region.epoch

    def _fence(self, region: Region, reason: str) -> None:
        known = self._inbox.of(region)
        broken = [incoming for incoming in known if not incoming.ended.is_set()]
        for incoming in broken:
            incoming.fail(reason)
            self._inbox.retire(incoming)
        if broken or any(incoming.machine.was_retried for incoming in known):
            # NIXL writes without asking: only without its agents nothing comes late.
            self._ends.close(self.rails)

    def connect(self, addresses: str | Sequence[str], backend: str = "tcp") -> Peer:
        """Return another agent; one address is enough, the others are learned from it.

        Args:
            addresses: ``host:port``, one or several.
            backend: How bytes shall go there.

        Raises:
            UnavailableError: If it does not answer, or no rail reaches it.
            UnauthenticatedError: If it has another key.
        """
        given = [addresses] if isinstance(addresses, str) else list(addresses)
        first = Control([self._route(text) for text in given], self._key, self.name)
        try:
            hello = first.ask("hello", {})
        finally:
            first.close()
        name = str(hello["agent"])
        with self._lock:
            known = self._peers.get((name, backend))
            if known is not None:
                return known
            theirs = [Rail.from_json(rail) for rail in hello["rails"]]
            ways = routes(self.rails, theirs, int(hello["port"]))
            if not ways:
                raise UnavailableError.one(
                    "no-route",
                    f"no rail of {self.name} is in a network of {name}",
                    allowed=", ".join(f"{r.name} {r.address}/{r.prefix}" for r in theirs),
                )
            control = Control(ways, self._key, self.name)
            peer = Peer(
                name,
                ways,
                control,
                self._key,
                self.name,
                self.calibration,
                self.metrics,
                self._mover(backend),
                backend,
            )
            self._peers[name, backend] = peer
        peer.start()
        return peer

    def _route(self, text: str) -> Route:
        """Return the route to an address, by the own rail in its network."""
        host, _, port = text.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise InputError.one("address", f"{text!r} is no address of an agent", allowed="HOST:PORT")
        try:
            there = Rail.from_json({"name": host, "device": "", "address": host, "prefix": 32})
        except ValueError as error:
            raise InputError.one("address", f"{host!r} is no IPv4 address", allowed="HOST:PORT") from error
        here = next((rail for rail in self.rails if rail.reaches(there)), self.rails[0])
        return Route(here, there, int(port))

    def _mover(self, backend: str) -> Callable[[Line, Route], Mover]:
        """Return what makes the back end of a rail."""
        if backend == "nixl":
            return lambda _line, route: Nixl(self._ends, route)
        return lambda _line, _route: Tcp()

    @property
    def _backends(self) -> list[str]:
        return ["tcp", "nixl"] if is_installed() else ["tcp"]

    def _placed(self, backend: str, region: Region) -> dict[str, Any]:
        """Return what a back end of the sender needs of a buffer."""
        if backend not in self._backends:
            allowed = ", ".join(self._backends)
            raise InputError.one("backend-unknown", f"no back end {backend!r} here", allowed=allowed)
        return self._ends.facts(self.rails, region) if backend == "nixl" else {}

    def send(
        self,
        source: str | Region,
        peer: Peer,
        target: str | dict[str, Any],
        descriptors: Sequence[Descriptor] | None = None,
        wish: Wish | None = None,
    ) -> Handle:
        """Begin a transfer to another agent.

        Args:
            source: A buffer, or its name.
            peer: Where to.
            target: Name of a buffer there, or ``{"file": path}``.
            descriptors: What goes where; all of the source to offset 0 if not given.
            wish: Priority, deadline, account, limit.

        Raises:
            DivvyError: If the source is unknown, descriptors do not fit, or the other side refuses.
        """
        region = self._regions.get(source) if isinstance(source, str) else source
        if region is None:
            raise NotFoundError.one(
                "region-unknown", f"no buffer {source!r}", allowed=", ".join(self._regions)
            )
        goal = {"region": target} if isinstance(target, str) else target
        whole = [Descriptor(0, 0, region.size)] if descriptors is None else descriptors
        return peer.send(region, goal, whole, wish or Wish())

    def wait_for(self, number: int, descriptors: int, timeout_s: float) -> bool:
        """Wait until the first descriptors of a transfer that comes in are there; return whether they are."""
        incoming = self._inbox.get(number)
        return incoming is not None and incoming.wait_descriptors(descriptors, timeout_s)

    def _received(self, incoming: Incoming) -> None:
        self.metrics.received(incoming.sender, incoming.machine.moved)

    def _sweep(self) -> None:
        while not self._closed.wait(_SWEEP_S):
            self._inbox.sweep()

    def close(self) -> None:
        """End every transfer, thread and connection; keep the calibration."""
        with self._lock:
            peers, self._peers = list(self._peers.values()), {}
        for peer in peers:
            peer.close()
        for incoming in self._inbox.live():
            incoming.fail("the agent was closed")
        self._closed.set()
        self._server.close()
        self._sweeper.join(5)
        self._ends.close(self.rails)
        self.calibration.save()

    def __enter__(self) -> Self:
        """Return the agent."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
