"""NIXL: one agent per rail, whose UCX knows that rail's device alone; bytes go right into the other's buffer.

UCX divides among rails without regard to what they carry, so it is never given two. Chunks are checksummed
and accounted by the transfer as over TCP: once NIXL says that the bytes of a chunk are there, its header
follows over the rail's own connection, and the other side checks and answers it.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from divvy.errors import UnavailableError
from divvy.transfer.backends.port import Spots
from divvy.transfer.dial import Route
from divvy.transfer.interfaces import Rail
from divvy.transfer.places import Region
from divvy.transfer.wire import Head, Line

_PACKAGE: Final = "nixl_cu12"
_NAP_S: Final = 0.0001
_LOOK_S: Final = 0.005
_DELAY_US: Final = 1000
_creating = threading.Lock()


def is_installed() -> bool:
    """Return whether NIXL is there."""
    return find_spec(_PACKAGE) is not None


class Ends:
    """The NIXL agents of this host, one per rail, and what they have registered.

    Args:
        host: Name of the agent.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._agents: dict[str, Any] = {}
        self._known: dict[tuple[str, int], tuple[Any, memoryview]] = {}
        self._number = 0

    def at(self, rail: Rail) -> Any:
        """Return the NIXL agent of a rail.

        Raises:
            UnavailableError: If NIXL is not installed.
        """
        with self._lock:
            found = self._agents.get(rail.name)
            if found is None:
                self._number += 1
                found = self._agents[rail.name] = _create(
                    f"{self._host}/{rail.name}/{self._number}", rail.device
                )
            return found

    def register(self, rail: Rail, region: Region) -> int:
        """Register a buffer with the agent of a rail, once, and return its address."""
        agent = self.at(rail)
        address = _address(region.view)
        with self._lock:
            if (rail.name, address) not in self._known:
                whole = [(address, region.view.nbytes, 0, "")]
                self._known[rail.name, address] = (agent.register_memory(whole, "DRAM"), region.view)
        return address

    def facts(self, rails: list[Rail], region: Region) -> dict[str, Any]:
        """Return what a sender needs to write into a buffer: its address, and each rail's NIXL agent."""
        address = 0
        ends = {}
        for rail in rails:
            address = self.register(rail, region)
            ends[rail.name] = base64.b64encode(self.at(rail).get_agent_metadata()).decode()
        return {"address": address, "nixl": ends}

    def drop(self, rail: Rail) -> None:
        """Give up the agent of a rail with its connections: nothing of it is written any more."""
        with self._lock:
            agent = self._agents.pop(rail.name, None)
            for key in [k for k in self._known if k[0] == rail.name]:
                registered, _ = self._known.pop(key)
                with contextlib.suppress(Exception):  # it is gone with its agent
                    agent.deregister_memory(registered)
        del agent

    def forget(self, region: Region) -> None:
        """Deregister a buffer on every rail."""
        address = _address(region.view)
        with self._lock:
            for key in [k for k in self._known if k[1] == address]:
                with contextlib.suppress(Exception):  # the agent may have been given up
                    self._agents[key[0]].deregister_memory(self._known[key][0])
                del self._known[key]

    def close(self, rails: list[Rail]) -> None:
        """Give up every agent."""
        for rail in rails:
            self.drop(rail)


def _create(name: str, device: str) -> Any:
    """Return a NIXL agent that uses one device."""
    if not is_installed():
        raise UnavailableError.one(
            "nixl-missing", "NIXL is not installed", fix="pip install --no-deps nixl-cu12"
        )
    library: Any = import_module(f"{_PACKAGE}._api")
    with _creating:  # UCX reads the environment when it starts
        wanted = {"UCX_NET_DEVICES": device}
        if "UCX_TLS" not in os.environ and device != "lo":
            wanted["UCX_TLS"] = "^shm"  # between hosts of one machine it would leave the rail for memory
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        silent = logging.root.manager.disable
        logging.disable(logging.INFO)
        try:
            with _patient(import_module(f"{_PACKAGE}._bindings")):
                strict = library.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
                settings = library.nixl_agent_config(backends=["UCX"], sync_mode=strict)
                return library.nixl_agent(name, settings)
        finally:
            logging.disable(silent)
            for key, value in before.items():
                os.environ.pop(key, None)
                if value is not None:
                    os.environ[key] = value


@contextlib.contextmanager
def _patient(bindings: Any) -> Iterator[None]:
    """Let the agents that the block makes wait for work instead of looking for it without pause.

    NIXL's Python sets the delay of its progress thread to 0, which costs a third of a core per agent that
    has nothing to do; with a delay it sleeps until its sockets wake it, and is no slower.
    """
    real = bindings.nixlAgentConfig

    def keep(config: Any, _asked: int) -> None:
        real.pthrDelay.__set__(config, _DELAY_US)

    bindings.nixlAgentConfig = type(
        "nixlAgentConfig", (real,), {"pthrDelay": property(lambda _: _DELAY_US, keep)}
    )
    try:
        yield
    finally:
        bindings.nixlAgentConfig = real


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


class Nixl:
    """Writes chunks by NIXL over one rail.

    Args:
        ends: The NIXL agents of this host.
        route: The rail.
    """

    def __init__(self, ends: Ends, route: Route) -> None:
        self._ends, self._route = ends, route
        self._agent = ends.at(route.here)
        self._remote: dict[str, str] = {}
        self._flying: deque[tuple[Any, Head, list[str]]] = deque()

    def send(self, line: Line, head: Head, region: Region, views: list[memoryview], spots: Spots) -> None:
        """Begin to write a chunk; `finish` waits for it."""
        del line
        peer = self._peer(str(spots.facts["nixl"][self._route.there.name]))
        self._ends.register(self._route.here, region)
        near = [(_address(view), view.nbytes, 0) for view in views]
        far = [(address, size, 0) for address, size in spots.addresses(head.chunk)]
        agent = self._agent
        try:
            handle = agent.initialize_xfer(
                "WRITE", agent.get_xfer_descs(near, "DRAM"), agent.get_xfer_descs(far, "DRAM"), peer
            )
            self._flying.append((handle, head, [agent.transfer(handle)]))
        except Exception as error:  # NIXL's own errors have no common base
            raise ConnectionResetError(f"NIXL: {error}") from error

    def finish(self, line: Line, most: int) -> int:
        """Wait until at most `most` chunks are on the way; tell of those that are there; return how many."""
        done, looked = 0, time.monotonic()
        while len(self._flying) > most:
            handle, head, state = self._flying[0]
            if state[0] != "DONE":
                try:
                    state[0] = self._agent.check_xfer_state(handle)
                except Exception as error:  # as above
                    raise ConnectionResetError(f"NIXL: {error}") from error
            if state[0] == "ERR":
                raise ConnectionResetError("NIXL: the transfer failed")
            if state[0] == "DONE":
                self._flying.popleft()
                self._agent.release_xfer_handle(handle)
                line.send_head(head._replace(placed=1))
                done += 1
                continue
            time.sleep(_NAP_S)
            if time.monotonic() - looked > _LOOK_S:
                looked = time.monotonic()
                _expect_open(line.sock)
        return done

    def _peer(self, meta: str) -> str:
        name = self._remote.get(meta)
        if name is None:
            try:
                found = self._agent.add_remote_agent(base64.b64decode(meta))
            except Exception as error:  # as above
                raise ConnectionResetError(f"NIXL: {error}") from error
            name = self._remote[meta] = found.decode() if isinstance(found, bytes) else str(found)
        return name

    def close(self) -> None:
        """Give up what is on the way; with it goes the rail's NIXL agent, so that nothing is sent later."""
        if not self._flying:
            return
        for handle, _, _ in self._flying:
            with contextlib.suppress(Exception):  # it ends with the agent
                self._agent.release_xfer_handle(handle)
        self._flying.clear()
        self._ends.drop(self._route.here)


def _expect_open(sock: socket.socket) -> None:
    """Refuse a connection that was broken.

    Raises:
        OSError: If it was.
    """
    try:
        if not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
            raise ConnectionResetError("the rail was broken")
    except BlockingIOError:
        return
