"""The same store on a real PostgreSQL, started by the test itself."""

import json

import pytest
from test_interruption import check, run
from test_journal import life

from divvy.adapters.store import archive
from divvy.adapters.store.database import open_database
from divvy.adapters.store.ownership import sole_loop
from divvy.adapters.store.publisher import StorePublisher
from divvy.adapters.store.retention import Keep, Retention
from divvy.control.journal import replay
from divvy.control.view import View
from divvy.errors import ConflictError, DivvyError, UnavailableError
from divvy.fleet.job import Phase

pytestmark = pytest.mark.e2e


def test_a_life_on_postgresql_reads_and_replays_as_on_sqlite(make_world, postgresql, tiny):
    world, twin = make_world(postgresql.new()), make_world()
    assert life(world) == life(twin)
    assert world.reader.jobs() == twin.reader.jobs()
    assert world.reader.ledger() == twin.reader.ledger()
    assert world.reader.budgets() == twin.reader.budgets()
    assert world.reader.passes() == twin.reader.passes()
    for row in world.reader.passes():
        assert world.reader.entry(row.seq) == twin.reader.entry(row.seq)
    for job in world.reader.jobs():
        assert world.reader.history(job.id) == twin.reader.history(job.id)
    world.journal.checkpoint(world.state, world.now())
    world.start()
    world.step()
    state, after = archive.state_before(world.database, 1)
    verdicts = list(replay(state, archive.steps(world.database, after=after), tiny, lambda _seq: True))
    assert verdicts
    assert all(verdict.same for verdict in verdicts)


@pytest.mark.parametrize("kill_at", range(3, 90, 9))
def test_killed_in_the_middle_on_postgresql(make_world, postgresql, tiny, kill_at):
    world = make_world(postgresql.new())
    run(world, kill_at)
    check(world, tiny)


def test_reader_publisher_and_retention_on_postgresql(make_world, postgresql):
    world = make_world(postgresql.new())
    job = world.submit()
    plan = world.step(2)
    world.engine.end(job, 1)
    world.step()
    publisher = StorePublisher(world.database, "tiny", lambda: {"n1": [[0, job, None, "no counter"]]})
    publisher.publish(world.state.snapshot, plan, 5)
    publisher.close()
    view = View.from_document(json.loads(world.reader.published().text))
    assert [sight.node.name for sight in view.nodes] == ["n1", "n2"]
    assert len(world.reader.stints(0, 1 << 60)) == 1
    assert world.reader.debug_gpu_time("ada", 0) == 0
    world.journal.checkpoint(world.state, world.now())
    Retention(world.database, Keep(0, 0, 0)).sweep(world.time + 10)
    assert world.reader.job(job) is None
    assert world.reader.ledger(job_id=job)


def test_one_loop_per_database_on_postgresql(make_world, postgresql):
    world = make_world(postgresql.new())
    other = open_database(world.url)
    with sole_loop(world.database):
        with pytest.raises(ConflictError) as caught, sole_loop(other, wait_seconds=0.2):
            pass
        assert caught.value.code == "already-running"
    with sole_loop(other):
        pass
    other.dispose()


def test_a_server_that_does_not_answer_is_told_without_the_password(tmp_path):
    database = open_database(f"postgresql://divvy:secret@/none?host={tmp_path}")
    with pytest.raises(UnavailableError) as caught, database.read():
        pass
    assert caught.value.code == "store-unreachable"
    assert "secret" not in str(caught.value)
    database.dispose()


def test_a_loop_outlives_a_restart_of_the_server(make_world, postgresql):
    world = make_world(postgresql.new())
    first = world.submit()
    world.step(2)
    with world.database.writer.connect() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
    world.engine.end(first, 1)
    for _ in range(3):
        try:
            world.journal.flush()
            world.step()
        except DivvyError:
            continue
    assert world.reader.job(first).phase is Phase.FINISHED
