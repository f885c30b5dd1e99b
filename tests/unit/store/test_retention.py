from divvy.adapters.store import archive
from divvy.adapters.store.retention import Keep, Retention
from divvy.control.codec import canonical, state_document
from divvy.control.journal import replay


def busy(world, rounds):
    """Jobs that come and go, with a base snapshot now and then; the world is an hour older after each round."""
    for _ in range(rounds):
        job = world.submit()
        world.step(2)
        world.engine.end(job, world.state.snapshot.jobs.attempt[world.state.snapshot.jobs.row[job]])
        world.step()
        world.journal.checkpoint(world.state, world.now())
        world.time += 3_600_000


def counts(world):
    names = ("job", "launch", "history", "intake", "journal", "base", "blob", "ledger")
    with world.database.read() as connection:
        return {n: connection.exec_driver_sql(f"SELECT count(*) FROM {n}").scalar() for n in names}  # noqa: S608


def test_old_rows_go_and_what_stays_can_be_re_run(world, tiny):
    busy(world, 10)
    running = world.submit()
    world.step(2)
    before = counts(world)
    hour = 3_600_000
    retention = Retention(world.database, Keep(5 * hour, 5 * hour, 5 * hour))
    while retention.sweep(world.time):
        retention._not_before = 0
    after = counts(world)
    assert after["ledger"] == before["ledger"] == 10
    assert after["job"] == after["launch"] == 5  # four that ended within five hours, and the one that runs
    assert after["history"] == 4 * 4 + 3
    assert after["base"] == after["blob"] == 5
    assert 0 < after["journal"] < before["journal"]
    assert after["intake"] < before["intake"]
    assert world.reader.job(running) is not None
    oldest, newest = archive.bounds(world.database)
    state, at = archive.state_before(world.database, oldest)
    verdicts = list(replay(state, archive.steps(world.database, after=at), tiny, lambda _seq: True))
    assert all(verdict.same for verdict in verdicts)
    assert verdicts[-1].seq == newest
    loaded = archive.load(world.database).state
    assert canonical(state_document(loaded.snapshot)) == canonical(state_document(world.state.snapshot))


def test_two_base_snapshots_always_stay(world):
    busy(world, 4)
    retention = Retention(world.database, Keep(0, 0, 0))
    while retention.sweep(world.time + 10_000):
        retention._not_before = 0
    assert counts(world)["base"] == 2
    world.start()
    busy(world, 1)


def test_it_rests_after_it_has_found_nothing(world):
    retention = Retention(world.database, Keep())
    assert retention.sweep(5_000) == 0
    busy(world, 1)
    assert retention.sweep(6_000) == 0
    assert retention._not_before == 65_000
