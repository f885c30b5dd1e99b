"""The loop is killed at every statement that it sends to the store, and once more while it recovers."""

import pytest
import sqlalchemy as sa

from divvy.adapters.store import archive
from divvy.control.journal import replay
from divvy.fleet.job import Phase


class Killed(BaseException):
    """Not an Exception, so that nothing can handle it."""


class Killer:
    """Raises at the n-th statement or commit of the loop; the API's own work is not counted."""

    def __init__(self, database, world_calls):
        self.left = None
        self.counted = 0
        self.world_calls = world_calls
        for engine in (database.writer, database.reader):
            sa.event.listen(engine, "before_cursor_execute", self.count)
            sa.event.listen(engine, "commit", self.count)

    def count(self, *_):
        if self.world_calls:
            return
        self.counted += 1
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                self.left = None
                raise Killed


def scenario(world, calls):
    """Yield after each act of the outside world; the loop steps in between."""
    names = {}

    def outside(act):
        calls.append(1)
        try:
            act()
        finally:
            calls.clear()

    def submit(name, **fields):
        outside(lambda: names.setdefault(name, world.submit(name, **fields)))

    submit("one")
    submit("spare", gpus=4, min_runtime=0)
    yield
    yield
    submit("urgent", gpus=4)
    yield
    yield
    outside(lambda: world.intake.cancel("one", "ada"))
    yield
    world.engine.end("urgent", 1)
    yield
    yield
    if ("spare", 2) in world.engine.runs:
        world.engine.end("spare", 2)
    yield
    yield


def run(world, kill_at=None, again_at=None):
    calls = []
    killer = Killer(world.database, calls)
    killer.left = kill_at
    for turn, _ in enumerate(scenario(world, calls)):
        while True:
            try:
                world.step()
                if turn == 4:
                    world.journal.checkpoint(world.state, world.now())
                break
            except Killed:
                killer.left, again_at = again_at, None
                while True:
                    try:
                        world.start()
                        break
                    except Killed:
                        continue
    counted, killer.left = killer.counted, None
    for _ in range(3):  # whatever a kill delayed by a turn comes to its end
        for job, attempt in world.engine.running():
            world.engine.end(job, attempt)
        world.step(2)
    return counted


def check(world, tiny):
    rows = {row.id: row for row in world.reader.jobs()}
    assert set(rows) == {"one", "spare", "urgent"}
    assert all(row.over for row in rows.values())
    assert rows["urgent"].phase is Phase.FINISHED
    assert max(world.engine.begun.values()) == 1
    ran = {key: (run[1], run[2]) for key, run in world.engine.runs.items()}
    ledger = {(entry.job, entry.attempt): (entry.started, entry.ended) for entry in world.reader.ledger()}
    assert ledger == ran
    assert world.reader.count([None]) == 0
    with world.database.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM intake WHERE consumed IS NULL").scalar() == 0
    state, at = archive.state_before(world.database, 1)
    verdicts = list(replay(state, archive.steps(world.database, after=at), tiny, lambda _seq: True))
    assert verdicts
    assert all(verdict.same for verdict in verdicts)


def test_killed_at_every_statement_nothing_is_lost_or_doubled(make_world, tiny, shm):
    whole = run(make_world(shm.new()))
    assert whole > 60
    for kill_at in range(1, whole + 1):
        world = make_world(shm.new())
        run(world, kill_at)
        check(world, tiny)


@pytest.mark.parametrize("seed", range(12))
def test_killed_again_while_it_recovers(make_world, tiny, shm, seed):
    world = make_world(shm.new())
    run(world, kill_at=5 + 9 * seed, again_at=1 + 2 * seed)
    check(world, tiny)
