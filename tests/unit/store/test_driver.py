"""The driver in a thread of its own, over a real store that can be made to fail."""

import os
import threading
import time
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from divvy.adapters.store.health import HealthFile, LoopHealth, read_health
from divvy.adapters.store.publisher import StorePublisher
from divvy.control.compact import compact
from divvy.control.driver import Driver
from divvy.errors import UnavailableError
from divvy.fleet.decision import Plan, Wait
from divvy.fleet.event import NodeChanged
from divvy.fleet.job import Phase
from divvy.fleet.node import Node
from divvy.fleet.reason import Reason


class Sleeper:
    """Wakes the loop all the time, so that tests are quick."""

    def __init__(self):
        self.stopped = False

    def wait(self, seconds):
        time.sleep(min(seconds, 0.01))
        return seconds > 0

    def rest(self, seconds):
        time.sleep(min(seconds, 0.02))


@pytest.fixture
def live(world):
    sleeper, reports = Sleeper(), []
    publisher = StorePublisher(world.database, "tiny", period_seconds=0.01)
    world.loop._publisher = publisher
    driver = Driver(
        world.loop,
        world.journal,
        world.inbox,
        publisher,
        SimpleNamespace(now=world.now),
        sleeper,
        lambda: None,
        lambda problem, _ms: reports.append(problem),
        lambda _now: None,
    )
    thread = threading.Thread(target=driver.run)
    thread.start()
    yield SimpleNamespace(world=world, reports=reports, sleeper=sleeper, thread=thread)
    sleeper.stopped = True
    thread.join()
    publisher.close()


def until(ask, seconds=10):
    limit = time.monotonic() + seconds
    while not ask():
        assert time.monotonic() < limit
        time.sleep(0.005)


class Disk:
    """The size that the database may have, for every connection alike; by default there is room."""

    def __init__(self, database):
        self.database = database
        self.pages = 1_000_000
        sa.event.listen(database.writer, "checkout", self.limit)

    def limit(self, connection, *_):
        connection.execute(f"PRAGMA max_page_count={self.pages}").fetchall()

    def fill(self):
        with self.database.reader.connect() as connection:
            self.pages = connection.exec_driver_sql("PRAGMA page_count").scalar()


def test_a_full_disk_stops_decisions_and_not_the_loop(live):
    world = live.world
    disk = Disk(world.database)
    first = world.submit()
    until(lambda: world.reader.job(first).phase is Phase.RUNNING)
    names = [world.submit(name=f"{'long' * 10}{n}", gpus=1) for n in range(3)]
    until(lambda: all(world.reader.job(name).phase is Phase.RUNNING for name in names))
    disk.fill()
    world.engine.end(first, 1)
    world.engine.end(names[0], 1)
    before = dict(world.engine.begun)
    for number in range(200):  # events until the file would have to grow
        world.engine.news.append(changed(world, number))
        if live.reports[-1]:
            break
        time.sleep(0.01)
    until(lambda: "no space left" in live.reports[-1])
    seq = world.reader.passes(limit=1)[0].seq
    time.sleep(0.1)
    assert world.engine.begun == before
    assert world.reader.passes(limit=1)[0].seq == seq
    assert world.journal.behind == 1
    disk.pages = 1_000_000
    until(lambda: live.reports[-1] == "")
    until(lambda: world.reader.job(first).phase is Phase.FINISHED)
    again = world.submit()
    until(lambda: world.reader.job(again).phase is Phase.RUNNING)
    assert max(world.engine.begun.values()) == 1
    live.sleeper.stopped = True
    live.thread.join()
    world.start()  # what was written while it was full is whole
    assert world.state.snapshot.version >= seq


def changed(world, number):
    return NodeChanged(world.now(), Node(f"extra-{number}", 1, domain=os.urandom(2000).hex()))


def test_the_view_is_published_and_never_older_than_the_last_pass(live):
    world = live.world
    job = world.submit()
    until(lambda: world.reader.job(job).phase is Phase.RUNNING)

    def seen():
        row = world.reader.published()
        return row is not None and row.version == world.state.snapshot.version

    until(seen)
    assert '"devices":null' in world.reader.published().text
    assert world.reader.published(newer_than=1 << 60) is None


def test_health_is_read_whole_and_fits_whatever_the_problem(tmp_path):
    path = tmp_path / "health"
    assert read_health(path) is None
    file = HealthFile(path)
    assert read_health(path) is None
    health = LoopHealth("stalled", 5, 6, problem="x" * 10_000)
    file.write(health)
    assert path.stat().st_size == 4096
    told = read_health(path)
    assert (told.state, told.pid) == ("stalled", 6)
    assert set(told.problem) == {"x"}
    data = path.read_bytes()
    path.write_bytes(data.replace(b"stalled", b"running"))  # half of another write
    assert read_health(path) is None
    file.close()


def test_a_failure_that_is_not_the_record_s_ends_the_process(world):
    """An engine that cannot be asked leaves events applied that nobody recorded: only a restart is right."""
    world.submit()
    sleeper = Sleeper()
    quiet = SimpleNamespace(tick=lambda: None, due_seconds=lambda: float("inf"))
    clock = SimpleNamespace(now=world.now)
    driver = Driver(
        world.loop,
        world.journal,
        world.inbox,
        quiet,
        clock,
        sleeper,
        lambda: None,
        lambda *_: None,
        lambda _: None,
    )

    def fail(_snapshot, _context):
        raise UnavailableError.one("x", "the planner's own trouble")

    world.loop._planner = SimpleNamespace(plan=fail)
    with pytest.raises(UnavailableError):
        driver.run()
    world.start()
    world.step()
    assert [row.phase for row in world.reader.jobs()] == [Phase.PLACED]


def test_housekeeping_is_not_starved_by_requests_that_never_stop(world):
    kept, sleeper = [], Sleeper()
    quiet = SimpleNamespace(tick=lambda: None, due_seconds=lambda: float("inf"))
    clock = SimpleNamespace(now=world.now)

    def keep(now):
        kept.append(now)
        sleeper.stopped = len(kept) == 2

    driver = Driver(
        world.loop, world.journal, world.inbox, quiet, clock, sleeper, lambda: 0, lambda *_: None, keep
    )
    driver.run()
    assert len(kept) == 2


def test_more_requests_than_one_pass_takes_wait_for_no_wake_up(world, monkeypatch):
    monkeypatch.setattr("divvy.adapters.store.inbox._BATCH", 2)
    names = [world.submit(gpus=1) for _ in range(5)]
    sleeper, passes = Sleeper(), []
    quiet = SimpleNamespace(tick=lambda: None, due_seconds=lambda: float("inf"))
    clock = SimpleNamespace(now=world.now)

    def report(_problem, _ms):
        passes.append(world.reader.count([None]))
        sleeper.stopped = passes[-1] == 0

    sleeper.wait = lambda seconds: time.sleep(min(seconds, 5)) is not None
    began = time.monotonic()
    Driver(
        world.loop, world.journal, world.inbox, quiet, clock, sleeper, lambda: None, report, lambda _: None
    ).run()
    assert passes == [3, 1, 0]
    assert time.monotonic() - began < 2  # two sleeps of a second, were it not so
    assert all(world.reader.job(name).attempt == 1 for name in names)


def test_a_view_offered_before_a_compaction_is_dropped_not_misread(world):
    """Compaction renumbers rows, so a plan from before it must not be rendered with the rows after it."""
    publisher = StorePublisher(world.database, "tiny", period_seconds=60)
    snapshot = world.loop.state.snapshot
    publisher.publish(snapshot, Plan(snapshot.version, 0), 0)
    wait = Wait(Reason.WAIT_CAPACITY, 1, 0, 0, 0, 0)
    publisher.publish(snapshot, Plan(snapshot.version, 0, waits=((len(snapshot.jobs) + 7, wait),)), 0)
    compact(world.loop.state, 0)
    publisher.close()  # would raise IndexError
