import os
import threading
import time
from pathlib import Path

import pytest

from divvy.errors import NotFoundError
from divvy.service.logs import open_log

pytestmark = pytest.mark.e2e


@pytest.fixture
def run(api):
    """A running job with the directory of its first run."""
    job = api.submit()["id"]
    api.wait_state(job, "protected")
    place = api.world.home / "jobs" / job / "1"
    place.mkdir(parents=True)
    return job, place


def logs(api, job, **query):
    return api.local.get(f"/v1/jobs/{job}/logs", params=query)


def test_a_log_is_read_from_any_byte_on(api, run):
    job, place = run
    (place / "stdout").write_bytes(b"0123456789")
    (place / "stderr").write_bytes(b"\xff\x00oops")
    assert logs(api, job).content == b"0123456789"
    assert logs(api, job, offset=7).content == b"789"
    assert logs(api, job, offset=-3).content == b"789"
    assert logs(api, job, offset=-99).content == b"0123456789"
    assert logs(api, job, offset=99).content == b""
    part = logs(api, job, offset=2, limit=3)
    assert (part.content, part.headers["x-divvy-next-offset"], part.headers["x-divvy-size"]) == (
        b"234",
        "5",
        "10",
    )
    assert part.headers["content-type"] == "text/plain; charset=utf-8"
    assert logs(api, job, stream="stderr").content == b"\xff\x00oops", "bytes, exactly as they were written"


def test_a_log_outlives_its_job_and_each_run_has_its_own(api, run):
    job, place = run
    (place / "stdout").write_text("first")
    api.world.engine.end(job, 0)
    api.wait_state(job, "finished")
    assert logs(api, job).text == "first"
    assert logs(api, job, attempt=1).text == "first"
    assert logs(api, job, attempt=2).json()["code"] == "log-none"


def test_a_job_that_has_not_started_has_no_log_yet(api):
    api.world.pause()
    job = api.submit()["id"]
    refusal = logs(api, job).json()
    assert refusal["code"] == "log-none"
    assert "not started" in refusal["detail"]
    api.world.resume()


def follow(api, job, got, **query):
    def read():
        with api.local.stream("GET", f"/v1/jobs/{job}/logs", params={"follow": True, **query}) as answer:
            got.extend(answer.iter_bytes())

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def test_a_followed_log_goes_on_until_the_job_ends_and_loses_nothing(api, run):
    job, place = run
    log = (place / "stdout").open("wb", buffering=0)
    log.write(b"skipped|")
    got = []
    thread = follow(api, job, got, offset=8)
    for number in range(20):
        log.write(b"%d " % number)
        time.sleep(0.01)
    api.wait(lambda: b"".join(got).endswith(b"19 "))
    assert thread.is_alive(), "the job still runs"
    log.write(b"last words")
    api.world.engine.end(job)
    thread.join(10)
    log.close()
    assert not thread.is_alive()
    assert b"".join(got) == b"".join(b"%d " % number for number in range(20)) + b"last words"


def test_a_follower_waits_for_the_start_and_goes_on_into_the_next_run(api):
    api.world.pause()
    job = api.submit(min_runtime="50ms", resumable=True)["id"]
    got = []
    thread = follow(api, job, got)
    api.world.resume()
    node = api.wait_state(job, "interruptible")["placement"][0]["node"]
    home = api.world.home / "jobs" / job
    (home / "1").mkdir(parents=True)
    (home / "1" / "stdout").write_text("one;")
    api.wait(lambda: b"".join(got) == b"one;")
    (home / "2").mkdir()
    (home / "2" / "stdout").write_text("two;")
    api.local.post(f"/v1/nodes/{node}/drain", json={"reason": "move it"})
    api.wait(lambda: api.get(f"/v1/jobs/{job}")["attempt"] == 2)
    api.wait(lambda: b"".join(got) == b"one;two;")
    api.world.engine.end(job)
    thread.join(10)
    assert not thread.is_alive()


def open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_follower_that_goes_away_is_forgotten(api, run):
    job, place = run
    (place / "stdout").write_text("x")
    before = open_files()
    with api.local.stream("GET", f"/v1/jobs/{job}/logs", params={"follow": True}) as answer:
        pieces = answer.iter_bytes()
        assert next(pieces) == b"x"
        assert api.app.state.service.streams == 1
    api.wait(lambda: api.app.state.service.streams == 0)
    api.wait(lambda: open_files() <= before)


def test_there_is_an_end_to_how_many_may_follow(api, run, monkeypatch):
    monkeypatch.setattr("divvy.service.context.MAX_STREAMS", 0)
    answer = logs(api, run[0], follow=True)
    assert (answer.status_code, answer.json()["code"]) == (503, "streams-full")


# -- the file may be anything -----------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path):
    made = tmp_path / "home" / "jobs" / "j1" / "1"
    made.mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    return made


def read(place, job="j1", stream="stdout"):
    log = open_log(place.parents[2], job, 1, stream)
    return None if log is None else b"".join(log.chunks(0, 100))


def test_a_plain_file_is_read_and_a_missing_one_is_none(place):
    assert read(place) is None
    (place / "stdout").write_text("ok")
    assert read(place) == b"ok"


def test_no_step_of_the_path_may_be_a_link(place, tmp_path):
    (place / "stdout").symlink_to(tmp_path / "secret")
    with pytest.raises(NotFoundError) as caught:
        read(place)
    assert caught.value.code == "log-unreadable"
    (tmp_path / "home" / "jobs" / "j2").symlink_to(place.parent)
    with pytest.raises(NotFoundError):
        read(place, "j2")
    (place.parent.parent / "j3").mkdir()
    (place.parent.parent / "j3" / "1").symlink_to(place)
    with pytest.raises(NotFoundError):
        read(place, "j3", "other")


def test_a_second_name_of_another_file_is_not_followed(place, tmp_path):
    (place / "stdout").hardlink_to(tmp_path / "secret")
    with pytest.raises(NotFoundError):
        read(place)


def test_a_pipe_a_directory_and_a_device_are_no_logs(place):
    os.mkfifo(place / "stdout")
    (place / "stderr").mkdir()
    for stream in ("stdout", "stderr"):
        with pytest.raises(NotFoundError):  # and it does not wait for a writer
            read(place, stream=stream)


@pytest.mark.parametrize("job", ["..", ".", "", "../j1", "j1/1", "/etc"])
def test_a_name_cannot_leave_the_directory(place, job):
    (place / "stdout").write_text("ok")
    assert read(place, job) is None


def test_a_followed_log_ends_with_the_token(api, run):
    job, place = run
    (place / "stdout").write_text("x")
    made = api.local.post("/v1/tokens", json={"user": "adam", "role": "admin"}).json()
    client = api.remote(made["token"])
    with client.stream("GET", f"/v1/jobs/{job}/logs", params={"follow": True}) as answer:
        pieces = answer.iter_bytes()
        assert next(pieces) == b"x"
        api.local.delete(f"/v1/tokens/{made['id']}")
        (place / "stdout").write_text("xsecret")
        assert b"secret" not in b"".join(list(pieces)[1:])
    api.wait(lambda: api.app.state.service.streams == 0)
