import json
import threading
import time

import pytest

pytestmark = pytest.mark.e2e


def events(answer):
    """Yield the events of a stream as (name, data)."""
    fields = {}
    for line in answer.iter_lines():
        if not line:
            if "data" in fields:
                yield fields.get("event"), json.loads(fields["data"])
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


def test_every_published_version_is_told(api):
    with api.local.stream("GET", "/v1/stream") as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        told = events(answer)
        name, first = next(told)
        assert name == "version"
        assert first["at"] == pytest.approx(time.time(), abs=5)
        threading.Timer(0.05, api.submit).start()
        version = first["version"]
        while version == first["version"]:
            _, data = next(told)
            version = data["version"]
        assert version > first["version"]
        status = api.get("/v1/status")
        assert status["version"] >= version, "what is told can be read"
    api.wait(lambda: api.app.state.service.streams == 0)


def test_a_silent_stream_still_beats(api, monkeypatch):
    monkeypatch.setattr("divvy.service.routers.fleet._HEARTBEAT_SECONDS", 0.05)
    api.world.pause()
    with api.local.stream("GET", "/v1/stream") as answer:
        assert any(line == ": still here" for line in answer.iter_lines())


def test_open_streams_do_not_keep_the_server_from_ending(api):
    with api.local.stream("GET", "/v1/stream") as answer:
        next(events(answer))
        began = time.monotonic()
        api.server.should_exit = True
        api.thread.join(10)
        assert time.monotonic() - began < 5
        assert not api.thread.is_alive()


def test_a_stream_ends_with_its_token(api):
    made = api.local.post("/v1/tokens", json={"user": "vic", "role": "viewer"}).json()
    with api.remote(made["token"]).stream("GET", "/v1/stream") as answer:
        told = events(answer)
        next(told)
        api.local.delete(f"/v1/tokens/{made['id']}")
        api.submit()
        assert len(list(told)) < 50, "it ends by itself, at the next version"
