"""SIGKILL at random instants: nothing that was answered is lost, nothing runs twice, the ledger is exact."""

import contextlib
import json
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import pytest

from divvy.adapters.store import archive
from divvy.adapters.store.database import open_database
from divvy.adapters.store.health import read_health
from divvy.adapters.store.intake import IntakeWriter
from divvy.adapters.store.reader import Reader
from divvy.adapters.store.schema import prepare
from divvy.adapters.store.wake import wake
from divvy.bootstrap import LiveSettings, default_database, live_loop
from divvy.bootstrap.engines import local_engine
from divvy.control.journal import replay
from divvy.control.launch import LaunchSpec
from divvy.errors import DivvyError
from divvy.fleet.budget import parse_budget
from divvy.fleet.job import JobSpec
from divvy.planners.jobs import registry

pytestmark = pytest.mark.e2e

KILLS = 40
MARK = 'echo "$DIVVY_JOB_ID $DIVVY_ATTEMPT" >> "$0"; sleep "$1"; exit "$2"'


@contextlib.contextmanager
def opened(home):
    database = open_database(default_database(home))
    try:
        yield database
    finally:
        database.dispose()


class ForkedLoop:
    """The loop process, forked from one that has imported everything: it is ready in milliseconds."""

    def __init__(self, home):
        self.settings = LiveSettings(str(home), default_database(home), shape="4", slots=True)
        self.pid = 0

    def start(self):
        self.pid = os.fork()
        if self.pid == 0:
            try:
                with live_loop(self.settings, local_engine) as (driver, _):
                    driver.run()
            finally:
                os._exit(1)

    def kill(self):
        """Kill it; return whether it still lived."""
        with contextlib.suppress(ChildProcessError):
            ended, _ = os.waitpid(self.pid, os.WNOHANG)
            if not ended:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                return True
        return False


@pytest.fixture
def home():
    with tempfile.TemporaryDirectory(prefix="dk", ignore_cleanup_errors=True) as directory:
        path = Path(directory)
        with opened(path) as database:
            prepare(database)
            budget = parse_budget("[accounts.a]\nshare = 60\n[accounts.b]\nshare = 40\n")
            archive.found(database, budget, time.time_ns() // 1_000_000, "test", "kill test")
        yield path


def submit(home, draw, number):
    """Store a job; some can be preempted, some fail, some start again."""
    allocated = draw.random() < 0.7
    spec = JobSpec(
        f"k{number:04d}",
        draw.choice("ab"),
        "ada",
        draw.choice((1, 1, 2, 4)),
        200 if allocated else 0,
        resumable=draw.random() < 0.7,
        restart=draw.random() < 0.5,
    )
    code = draw.choice((0, 0, 0, 3))
    seconds = f"{draw.uniform(0.02, 0.7):.3f}"
    start = LaunchSpec(
        ("/bin/sh", "-c", MARK, str(home / "marks"), seconds, str(code)),
        "/",
        (),
        "root",
        os.getuid(),
        os.getgid(),
        warn_signal="",
        grace_seconds=0.1,
    )
    with opened(home) as database:
        writer = IntakeWriter(database, lambda: wake(home / "wake"))
        writer.submit(spec, start.to_document(), debug=False, actor="ada")
    return spec.id, code


def settle(home, codes, seconds):
    """Wait until every job is over."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        with opened(home) as database:
            rows = {row.id: row for row in Reader(database).jobs(limit=10_000)}
        if set(rows) == set(codes) and all(row.over for row in rows.values()):
            return rows
        time.sleep(0.1)
    raise AssertionError({name: row.label(0) for name, row in rows.items() if not row.over})


def check(home, rows, codes):
    for name, code in codes.items():
        if rows[name].phase.name in ("FINISHED", "FAILED"):
            assert rows[name].exit_code == code, name
    marks = (home / "marks").read_text().splitlines()
    assert len(marks) == len(set(marks)), "a run was begun twice"
    with opened(home) as database:
        reader = Reader(database)
        ledger = {(entry.job, entry.attempt): entry for entry in reader.ledger()}
        assert len(ledger) == len(reader.ledger())
        state, after = archive.state_before(database, 1)
        steps = archive.steps(database, after=after)
        verdicts = list(replay(state, steps, registry.create, lambda _seq: True))
    ran = {}
    for record in (home / "jobs").glob("*/*/ended.json"):
        ended = json.loads(record.read_text())
        if ended["began"]:
            key = (record.parent.parent.name, int(record.parent.name))
            ran[key] = (ended["started_steady_ms"], ended["ended_steady_ms"])
    assert set(ledger) == set(ran)
    # every loop there was told the same time: to the ms, whenever it was killed
    assert len({ledger[key].started - ran[key][0] for key in ran}) == 1
    assert len({ledger[key].ended - ran[key][1] for key in ran}) == 1
    assert all(e.ended - e.started == ran[key][1] - ran[key][0] for key, e in ledger.items())
    assert all(e.charge == (e.ended - e.started) * e.gpus for e in ledger.values())
    assert verdicts
    assert [v.differences() for v in verdicts if not v.same] == []


@pytest.fixture
def loop(home):
    loop = ForkedLoop(home)
    yield loop
    loop.kill()


def test_the_loop_is_killed_at_random_instants(home, loop):
    draw = random.Random(20260930)
    codes, alive = {}, 0
    began = time.monotonic()
    loop.start()
    while (health := read_health(home / "health")) is None or health.state != "running":
        time.sleep(0.01)
        assert os.waitpid(loop.pid, os.WNOHANG) == (0, 0), "the loop ended by itself"
    ready = time.monotonic() - began
    for number in range(KILLS):
        for each in range(draw.randint(0, 2)):
            name, code = submit(home, draw, 10 * number + each)
            codes[name] = code
        if codes and draw.random() < 0.2:
            with opened(home) as database:
                IntakeWriter(database, lambda: wake(home / "wake")).cancel(draw.choice(list(codes)), "ada")
        time.sleep(draw.uniform(0, 2 * ready) if draw.random() < 0.8 else draw.uniform(0, 1))
        alive += loop.kill()
        loop.start()
    rows = settle(home, codes, 60)
    assert loop.kill()
    assert alive == KILLS, "the loop ended by itself"
    check(home, rows, codes)


def test_loop_api_and_supervisor_are_killed_while_people_submit(make_plane):
    draw = random.Random(4)
    plane = make_plane().start()
    codes = {}
    for kill in ("loop", "api", "supervisor", "loop", "supervisor", "api"):
        for _ in range(3):
            code = draw.choice((0, 0, 5))
            name = f"k{len(codes):03d}"
            argv = [
                "/bin/sh",
                "-c",
                MARK,
                str(plane.home / "marks"),
                f"{draw.uniform(0.05, 2):.2f}",
                str(code),
            ]
            body = {"id": name, "account": draw.choice(("lab.vision", "lab.language")), "gpus": 1}
            plane.until(
                lambda b=body, a=argv: answered(plane, {**b, "argv": a, "cwd": "/", "min_runtime": "1m"})
            )
            codes[name] = code
        time.sleep(draw.uniform(0, 1))
        if kill == "supervisor":
            plane.process.kill()
            plane.process.wait()
            plane.start(wait=False)
        else:
            plane.until(lambda k=kill: plane.child(k)).kill()
    plane.until(plane.answers, 60)
    for name in codes:
        plane.until(lambda n=name: plane.over(n), 60)
    plane.stop()
    with opened(plane.home) as database:
        rows = {row.id: row for row in Reader(database).jobs(limit=100)}
    assert set(rows) == set(codes)
    check(plane.home, rows, codes)


def answered(plane, body):
    """Submit; without an answer, submit the same again: its id makes that harmless."""
    try:
        return plane.client.post("jobs", body=body)
    except DivvyError as error:
        if error.status == 503:
            return None
        raise
