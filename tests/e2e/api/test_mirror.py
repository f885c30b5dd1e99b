"""The mirror holds what the store holds, whatever happens in between."""

import asyncio
import random
from types import SimpleNamespace

import pytest

from divvy.errors import UnavailableError
from divvy.fleet.job import Phase
from divvy.service.mirror import LIVE, Mirror

pytestmark = pytest.mark.e2e


def same(api):
    """Return whether the mirror and the store have the same live jobs in the same phases."""
    board = api.app.state.service.mirror.board
    stored = {row.spec.id: row.phase for row in api.world.reader.jobs(phases=LIVE, limit=10_000)}
    return stored == {name: job.phase for name, job in board.jobs.items()} and (
        board.waiting == sum(phase in (None, Phase.QUEUED) for phase in stored.values())
    )


def test_it_keeps_up_with_a_busy_day(api):
    draw = random.Random(7)
    live = []
    for _ in range(60):
        live.append(api.submit(gpus=draw.choice((1, 2, 4)), min_runtime=draw.choice(("0", "1h")))["id"])
        name = draw.choice(live)
        if draw.random() < 0.3:
            api.local.delete(f"/v1/jobs/{name}")
        elif name in api.world.engine.running():
            api.world.engine.end(name, draw.choice((0, 1)))
    api.wait(lambda: same(api))
    newest = api.world.reader.jobs(limit=1)[0].number
    api.wait(lambda: api.app.state.service.mirror._number_seen == newest)


def test_a_row_that_a_request_read_too_early_does_not_stay(api):
    job = api.submit()["id"]
    api.wait_state(job, "protected")
    early = api.world.reader.job(job)
    api.world.engine.end(job)
    api.wait_state(job, "finished")
    mirror = api.app.state.service.mirror
    mirror.put(early)
    api.wait(lambda: job not in mirror.board.jobs)


def test_a_row_read_later_than_the_others_hides_no_change(api):
    jobs = [api.submit()["id"] for _ in range(3)]
    for job in jobs:
        api.wait_state(job, "protected")
    api.world.pause()
    reader = api.world.reader
    mirror = Mirror(reader)
    asyncio.run(mirror.refresh())

    class Late:
        """Between the two reads of a refresh, everything moves on."""

        def __getattr__(self, name):
            return getattr(reader, name)

        def jobs_changed(self, *marks):
            found = reader.jobs_changed(*marks)
            for job in jobs:
                api.world.engine.end(job)
            api.world.resume()
            api.wait(lambda: all(reader.job(job).phase is Phase.FINISHED for job in jobs))
            mirror._reader = reader
            return found

    mirror._reader = Late()
    mirror.put(reader.job(jobs[2]))
    asyncio.run(mirror.refresh())
    asyncio.run(mirror.refresh())
    assert mirror.board.jobs == {}


def test_a_fresh_mirror_loads_the_same(api):
    for _ in range(5):
        api.submit(gpus=4)
    api.wait(lambda: not api.app.state.service.mirror.board.unseen)
    api.world.pause()
    api.wait(lambda: same(api))
    fresh = Mirror(api.world.reader)
    asyncio.run(fresh.refresh())
    old = api.app.state.service.mirror
    assert [*fresh.board.order(fresh.seen())] == [*old.board.order(old.seen())]


class Broken:
    """A store that cannot be read."""

    def __getattr__(self, _name):
        def fail(*_args, **_options):
            raise UnavailableError.one("store-unreachable", "the disk is gone")

        return fail


def test_a_store_that_cannot_be_read_makes_the_data_old_and_comes_back(api):
    service = api.app.state.service
    before = api.get("/v1/status")["as_of"]
    reader, service.mirror._reader = service.mirror._reader, Broken()
    api.wait(lambda: service.mirror.fault is not None)
    assert api.get("/v1/status")["as_of"] >= before, "what is known is still shown, with its age"
    text = api.local.get("/metrics").text
    assert "divvy_store_readable 0.0" in text
    service.mirror._reader = reader
    api.wait(lambda: service.mirror.fault is None)


def test_a_state_that_cannot_be_understood_makes_the_data_old_too(api):
    class Damaged:
        def __getattr__(self, name):
            return getattr(reader, name)

        def published(self, *_marks):
            return SimpleNamespace(at=1, text='{"version": 1}')

    mirror = api.app.state.service.mirror
    reader, mirror._reader = mirror._reader, Damaged()
    api.wait(lambda: mirror.fault is not None)
    assert mirror.fault.code == "mirror-failed"
    mirror._reader = reader
    api.wait(lambda: mirror.fault is None)


def test_before_the_first_pass_the_answer_is_to_try_again():
    mirror = Mirror(Broken())
    with pytest.raises(UnavailableError) as caught:
        mirror.seen()
    assert caught.value.code == "scheduler-starting"
