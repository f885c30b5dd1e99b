"""A live API: a real SQLite store, the real loop with an engine that pretends, a real uvicorn on two sockets."""

import os
import pwd
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from divvy.adapters.store import archive
from divvy.adapters.store.database import open_database
from divvy.adapters.store.inbox import Inbox
from divvy.adapters.store.intake import IntakeWriter
from divvy.adapters.store.journal import StoreJournal
from divvy.adapters.store.publisher import StorePublisher
from divvy.adapters.store.reader import Reader
from divvy.adapters.store.schema import prepare
from divvy.adapters.store.tokens import TokenTable
from divvy.control.loop import Loop, goes_back
from divvy.control.ports import Launch
from divvy.fleet.budget import parse_budget
from divvy.fleet.event import NodeChanged, Started, Stopped
from divvy.fleet.job import StopCause
from divvy.fleet.node import Node
from divvy.planners.jobs import registry
from divvy.service.app import create_app
from divvy.service.identity import Role
from divvy.service.ports import Backend
from divvy.service.server import make_server
from divvy.service.tokens import make_token

BUDGET = """
[accounts.lab]
share = 100
owners = ["olga"]
[accounts.lab.vision]
share = 60
owners = ["vera"]
[accounts.lab.vision.train]
share = 50
[accounts.lab.vision.eval]
share = 50
[accounts.lab.language]
share = 40
"""


NODES = (Node("n1", 4), Node("n2", 4))


def wall():
    return time.time_ns() // 1_000_000


class PretendEngine:
    """Runs nothing: a job starts at once and ends when a test says so."""

    def __init__(self, nodes):
        self._news = [NodeChanged(wall(), node) for node in nodes]
        self._specs = {}
        self._lock = threading.Lock()

    def submit(self, orders):
        with self._lock:
            for order in orders:
                if isinstance(order, Launch):
                    self._specs[order.job] = order.spec
                    self._news.append(Started(wall(), order.job))
                elif order.job in self._specs:
                    self._end(order.job, order.cause, None)
        return []

    def poll(self):
        with self._lock:
            news, self._news = self._news, []
        return news

    def end(self, job, code=0):
        with self._lock:
            self._end(job, StopCause.FINISHED if code == 0 else StopCause.FAILED, code)

    def running(self):
        with self._lock:
            return list(self._specs)

    def _end(self, job, cause, code):
        spec = self._specs.pop(job)
        self._news.append(Stopped(wall(), job, cause, goes_back(spec, cause), code))


class World:
    """The scheduler's side, in a thread."""

    def __init__(self, home: Path, nodes=NODES):
        self.home = home
        self.database = open_database(f"sqlite:///{home / 'divvy.db'}")
        prepare(self.database)
        archive.found(self.database, parse_budget(BUDGET), wall(), "test", "first")
        self.reader = Reader(self.database)
        self.intake = IntakeWriter(self.database, lambda: None)
        self.tokens = TokenTable(self.database)
        self.engine = PretendEngine(nodes)
        self._paused = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loop")
        self._thread.start()

    def _run(self):
        tenure = archive.take_over(self.database, "test")
        charges = []
        loaded = archive.load(self.database, charges.append)
        inbox = Inbox(self.database, loaded.state, wall, self.reader.budget().version)
        journal = StoreJournal(
            self.database,
            inbox,
            charges,
            "budget",
            0,
            stamp=lambda: (wall(), "boot", 0),
            seq=loaded.seq,
            since_base=loaded.since_base,
            term=tenure.term,
        )
        publisher = StorePublisher(self.database, "budget", None, 0.02)
        clock, planner = SimpleNamespace(now=wall), registry.create("budget")
        loop = Loop(loaded.state, planner, clock, self.engine, inbox, journal, publisher)
        loop.recover()
        while not self._stop.wait(0.01):
            if self._paused.is_set():
                continue
            loop.step()
            for refusal in loop.refused:
                inbox.refuse(refusal.event, refusal.error)
            loop.refused.clear()
            inbox.settle()
        publisher.close()

    def pause(self):
        self._paused.set()
        time.sleep(0.1)

    def resume(self):
        self._paused.clear()

    def token(self, user, role, accounts=(), expires=None):
        token, row = make_token(
            user, Role[role.upper()], accounts=accounts, now=wall(), created_by="test", expires=expires
        )
        self.tokens.add(row)
        return token

    def close(self):
        self._stop.set()
        self._thread.join()
        self.database.dispose()


class Api:
    """A running server and clients for it."""

    def __init__(self, world: World, daemon_uid: int):
        self.world = world
        self.backend = Backend(world.reader, world.intake, world.tokens, wall, world.home, daemon_uid)
        self.app = create_app(self.backend)
        self.path = world.home / "socket"
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(str(self.path))
        self.path.chmod(0o666)
        tcp = socket.socket()
        tcp.bind(("127.0.0.1", 0))
        for listener in (unix, tcp):
            listener.listen(64)
        self.url = f"http://127.0.0.1:{tcp.getsockname()[1]}"
        ready = threading.Event()
        self.server = make_server(self.app, ready.set)
        self.thread = threading.Thread(target=self.server.run, args=([unix, tcp],), name="api")
        self.thread.start()
        assert ready.wait(20)
        self._clients = []
        self.local = self._client(transport=httpx.HTTPTransport(uds=str(self.path)), base_url="http://unix")
        self.wait(
            lambda: self.get("/v1/health")["status"] == "ok" and self.get("/v1/status")["totals"]["gpus"]
        )

    def _client(self, **options):
        self._clients.append(httpx.Client(timeout=20, **options))
        return self._clients[-1]

    def remote(self, token=None, **headers):
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return self._client(base_url=self.url, headers=headers)

    def get(self, path, **params):
        return self.local.get(path, params=params).raise_for_status().json()

    def submit(self, client=None, status=201, **fields):
        body = {"account": "lab.language", "gpus": 1, "argv": ["sleep", "1"], "min_runtime": "1h"} | fields
        found = (client or self.local).post("/v1/jobs", json=body)
        assert found.status_code == status, found.text
        return found.json()

    def wait(self, check, seconds=10):
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            found = check()
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"not within {seconds} s")

    def wait_state(self, job, *states):
        def reached():
            found = self.get(f"/v1/jobs/{job}")
            return found if found["state"] in states else None

        return self.wait(reached)

    def close(self):
        for client in self._clients:
            client.close()
        self.server.should_exit = True
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.world.close()


def daemon_uid():
    """A daemon that is not root, so that tokens may speak for people this machine does not know."""
    return os.geteuid() or 54_321


@pytest.fixture
def api(tmp_path):
    made = Api(World(tmp_path), daemon_uid())
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared_api(tmp_path_factory):
    """One API for tests that leave nothing behind that others would notice."""
    made = Api(World(tmp_path_factory.mktemp("api")), daemon_uid())
    yield made
    made.close()


@pytest.fixture(scope="session")
def me():
    return pwd.getpwuid(os.geteuid()).pw_name
