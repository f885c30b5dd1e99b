"""Connections of clients: requests in pieces, pipelined or endless, answered in order and within limits."""

from __future__ import annotations

import asyncio
import json
import re

from divvy.adapters.front import server
from divvy.adapters.front.config import Declared
from divvy.adapters.front.router import Router
from divvy.adapters.front.server import Client
from divvy.perf.latency import Cell, LatencyProfile
from divvy.planners.queries.desk import DOWN, HELD, UP, Desk, Query, Slot
from divvy.planners.queries.registry import find_rule

PROFILE = LatencyProfile("m", (Cell(1, 1, 1, 10_000), Cell(3, 1, 1, 5_000)))


class Wire:
    """What a client's connection is written to."""

    def __init__(self):
        self.out, self.closed, self.paused = b"", False, False

    def write(self, data):
        self.out += data

    def close(self):
        self.closed = True

    def pause_reading(self):
        self.paused = True

    def resume_reading(self):
        self.paused = False


def make(rule="elsa"):
    found, params = find_rule(rule)
    return Router(Desk(PROFILE, 1, found, params), "m", 10, rule, refuse_late=True, longest_seconds=0.0)


def talk(*parts, turns=3):
    wire = Wire()

    async def run():
        client = Client(make(), 20_000, 1000, lambda _: None)
        client.connection_made(wire)
        for part in parts:
            client.data_received(part)
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        client.connection_lost(None)

    asyncio.run(run())
    return wire


LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


def test_a_request_byte_by_byte_is_one_request():
    assert talk(*(LIVE[i : i + 1] for i in range(len(LIVE)))).out.count(b"200 OK") == 1


def test_pipelined_requests_are_answered_in_order():
    wire = talk(LIVE + b"GET /none HTTP/1.1\r\n\r\n" + LIVE, turns=9)
    assert re.findall(rb"HTTP/1.1 (\d+)", wire.out) == [b"200", b"404", b"200"]


def test_bodies_and_heads_beyond_the_limits_end_the_connection():
    long = talk(b"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: 1001\r\n\r\n")
    assert b" 413 " in long.out and long.closed
    chunks = talk(
        b"POST /v2/models/m/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 1500
    )
    assert b" 413 " in chunks.out and chunks.closed
    head = talk(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 9000)
    assert b" 431 " in head.out and head.closed
    assert b" 400 " in talk(b"\r\n\r\n").out


def test_a_request_that_does_not_end_is_told_so(monkeypatch):
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 0.0)
    wire = talk(b"GET / HT", b"TP", b"/1", turns=20)
    assert b" 408 " in wire.out and wire.closed


def declare(router):
    router.declare({n: Declared(Slot(g), "127.0.0.1", 1, "") for n, g in (("a", 1), ("b", 3))})


def test_a_held_slice_gets_nothing_until_it_is_admitted():
    desk = make().desk
    desk.declare({"a": Slot(1), "b": Slot(3)}, 0)
    desk.hold("a", 0)
    assert desk.posts["a"].state == HELD
    [(name, first)] = desk.arrive(Query(1, 0, 20_000), 0)
    assert name == "b" and desk.arrive(Query(1, 0, 20_000), 0) == []
    desk.declare({"a": Slot(1), "b": Slot(3)}, 0)
    assert desk.posts["a"].state == HELD, "a file that is read again admits nobody"
    desk.eject("a", 0)
    assert desk.posts["a"].state == HELD != DOWN
    desk.admit("a", 0)
    assert desk.posts["a"].state == UP
    assert desk.end("b", first, 5_000, good=True) and desk.waiting == 0


def test_lateness_is_predicted_from_what_runs_and_waits():
    desk = make().desk
    desk.declare({"a": Slot(1), "b": Slot(3)}, 0)
    assert desk.late_by(Query(1, 0, 5_000), 0) == 0
    assert desk.late_by(Query(1, 0, 4_000), 0) == 1_000
    desk.arrive(Query(1, 0, 6_000), 0)  # the small one would be late: it goes to b
    assert desk.busy_us("b", 1_000) == 4_000
    assert desk.late_by(Query(1, 1_000, 8_000), 1_000) == 1_000


def test_what_would_be_late_is_refused_and_what_waits_too_long_too():
    async def run():
        router = make()
        answers = []
        declare(router)
        assert (
            router.take(Query(1, server.now_us(), 100), lambda _: b"", answers.append, explain=False) is None
        )
        assert b" 503 " in answers[0] and b"Retry-After: 1" in answers[0]
        for name in ("a", "b"):
            assert router.hold(name)
        router.desk.posts["a"].state = DOWN
        router._refuse_late = False
        query = Query(1, server.now_us() - 1, 100)
        router.desk.arrive(query, query.arrived_us)
        router._tickets[id(query)] = server.Ticket(query, lambda _: b"", answers.append, explain=False)
        router._expire(server.now_us())
        assert b" 503 " in answers[1] and router.open == 0 and router.desk.waiting == 0
        rows = {row["name"]: row for row in json.loads(json.dumps(router.backends()))}
        assert rows["b"]["state"] == "held" and rows["a"]["wait_ms"] == 0

    asyncio.run(run())
