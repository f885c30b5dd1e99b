"""What a router shows of itself: bounded, true to its shape, and never in the way where nobody takes it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from divvy.adapters.front.backend import Backend
from divvy.adapters.front.config import Declared
from divvy.adapters.front.http1 import Head
from divvy.adapters.front.models import Model, Models
from divvy.adapters.front.router import Router, now_us
from divvy.adapters.front.showing import MOST, Showing
from divvy.errors import UnavailableError
from divvy.perf.profile_csv import read_profile
from divvy.planners.queries.desk import Desk, Query, Slot
from divvy.planners.queries.registry import find_rule
from divvy.service.shown import check_document

ADDRESS = "http://127.0.0.1:8090"


@pytest.fixture
def asked(monkeypatch):
    """What slices were asked, in order: each is answered by calling it."""
    found = []
    monkeypatch.setattr(Backend, "ask", lambda _self, _request, _seconds, done: found.append(done))
    return found


def make(slices=1, model="m"):
    rule, params = find_rule("divvy")
    profile = read_profile("model,slice,batch,latency_ms\nm,1,1,10\n", "m", "m.csv")
    router = Router(Desk(profile, 1, rule, params), model, 100, rule.name)
    router.declare({f"{model}{n}": Declared(Slot(1, 1.0), "127.0.0.1", 9, "") for n in range(slices)})
    return router


def served(*routers):
    return Models({one.model: Model(one, 20_000) for one in routers})


def query(router, asked, status, slo_us):
    router.take(Query(1, now_us(), slo_us), lambda _: b"", lambda _: None, explain=False)
    asked.pop()(Head((b"HTTP/1.1", str(status).encode(), b""), {}, 0), b"")


def test_queries_are_counted_by_how_they_ended(asked):
    router, showing = make(), Showing(print, print)
    first = showing.document(served(router), ADDRESS, ended=False)
    assert first["models"][0]["attainment"] is None
    assert first["models"][0]["rate_qps"] is None
    for status, slo_us in ((200, 10**9), (200, 10**9), (200, 10**9), (200, -1), (400, 10**9)):
        query(router, asked, status, slo_us)
    document = showing.document(served(router), ADDRESS, ended=False)
    check_document(document)
    (model,) = document["models"]
    assert (model["met"], model["late"], model["attainment"], model["slo_ms"]) == (3, 1, 0.75, 20.0)
    assert model["rate_qps"] > 0
    (backend,) = document["backends"]
    assert (backend["served"], backend["failed"], backend["state"], backend["model"]) == (4, 1, "up", "m")


def test_a_slice_that_fails_is_lost_and_shown_down(asked):
    router, showing = make(), Showing(print, print)
    showing.document(served(router), ADDRESS, ended=False)
    query(router, asked, 503, 10**9)
    document = showing.document(served(router), ADDRESS, ended=True)
    check_document(document)
    assert (document["state"], document["backends"][0]["state"]) == ("ended", "down")
    assert (document["models"][0]["lost"], document["models"][0]["attainment"]) == (1, 0.0)


def test_many_slices_are_cut_and_counted(asked):
    document = Showing(print, print).document(served(make(MOST + 3)), ADDRESS, ended=False)
    check_document(document)
    assert (len(document["backends"]), document["left_out"]) == (MOST, 3)


def test_several_models_are_counted_apart(asked):
    one, other, showing = make(), make(model="n"), Showing(print, print)
    showing.document(served(one, other), ADDRESS, ended=False)
    query(one, asked, 200, 10**9)
    query(other, asked, 200, -1)
    document = showing.document(served(one, other), ADDRESS, ended=False)
    check_document(document)
    assert [(row["model"], row["attainment"]) for row in document["models"]] == [("m", 1.0), ("n", 0.0)]
    assert [(row["name"], row["model"]) for row in document["backends"]] == [("m0", "m"), ("n0", "n")]


def test_a_control_plane_that_is_away_is_told_once_and_tried_again(asked):
    told, taken, here, came = [], [], threading.Event(), threading.Event()

    def put(document):
        if not here.is_set():
            raise UnavailableError.one("server-unreachable", "nobody is there")
        taken.append(document["state"])
        came.set()

    async def run():
        ended = asyncio.Event()
        showing = asyncio.create_task(Showing(put, told.append, 0.01).run(served(make()), ADDRESS, ended))
        await asyncio.sleep(0.1)
        here.set()
        assert await asyncio.to_thread(came.wait, 5)
        ended.set()
        await asyncio.wait_for(showing, 5)

    asyncio.run(run())
    assert len(told) == 1 and "nobody is there" in told[0]
    assert (taken[0], taken[-1]) == ("serving", "ended")


def test_a_slow_control_plane_does_not_stop_the_loop(asked):
    begun, go = threading.Event(), threading.Event()

    def put(_document):
        begun.set()
        go.wait(10)

    async def run():
        ended = asyncio.Event()
        showing = asyncio.create_task(Showing(put, print, 0.01).run(served(make()), ADDRESS, ended))
        assert await asyncio.to_thread(begun.wait, 5)
        router = make()
        query(router, asked, 200, 10**9)  # while the document is on the way
        assert router.met == 1 and not showing.done()
        go.set()
        ended.set()
        await asyncio.wait_for(showing, 5)

    asyncio.run(run())
