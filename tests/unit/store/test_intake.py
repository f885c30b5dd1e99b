import pytest

from divvy.adapters.store.database import open_database
from divvy.adapters.store.intake import IntakeWriter, job_id
from divvy.adapters.store.reader import Reader
from divvy.adapters.store.schema import prepare
from divvy.errors import ConflictError, DivvyError
from divvy.fleet.job import JobSpec, Phase


@pytest.fixture
def database(tmp_path):
    database = open_database(f"sqlite:///{tmp_path / 'divvy.db'}")
    prepare(database)
    yield database
    database.dispose()


def spec(name="", **fields):
    return JobSpec(name, "lab.vision", "ada", 2, 60_000)._replace(**fields)


START = {"argv": ["true"], "cwd": "/", "env": []}


def test_a_submission_is_readable_at_once_and_wakes_the_loop(database):
    wakes = []
    writer = IntakeWriter(database, lambda: wakes.append(1), lambda: 5_000)
    first = writer.submit(spec(), START, debug=True, actor="ada")
    second = writer.submit(spec(priority=3), START, debug=False, actor="ada")
    assert (first.job, second.job, len(wakes)) == (job_id(1), job_id(2), 2)
    reader = Reader(database)
    row = reader.job(first.job)
    assert row.label(0) == "accepted"
    assert (row.spec, row.debug, row.submitted) == (spec(first.job), True, 5_000)
    assert reader.launch(first.job) == START
    assert [r.id for r in reader.jobs()] == [second.job, first.job]
    assert [r.id for r in reader.jobs(before=row.number + 1, account="lab")] == [first.job]
    assert reader.jobs(phases=[Phase.QUEUED]) == []
    assert reader.count([None]) == 2
    assert writer.outcome(first.seq) is None
    assert reader.debug_gpu_time("ada", 0) == 120_000


def test_the_same_submission_again_changes_nothing_and_another_one_is_refused(database):
    writer = IntakeWriter(database, lambda: None)
    assert writer.submit(spec("mine"), START, debug=False, actor="ada").created
    assert not writer.submit(spec("mine"), START, debug=False, actor="ada").created
    with pytest.raises(ConflictError) as caught:
        writer.submit(spec("mine", gpus=3), START, debug=False, actor="ada")
    assert caught.value.code == "job-duplicate"
    assert Reader(database).count([None]) == 1


def test_a_chosen_id_that_looks_like_a_made_one_is_stepped_over(database):
    writer = IntakeWriter(database, lambda: None)
    writer.submit(spec(job_id(2)), START, debug=False, actor="ada")
    assert writer.submit(spec(), START, debug=False, actor="ada").job == job_id(3)


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "nonsense"])
def test_a_url_of_something_else_is_refused_without_its_password(url):
    with pytest.raises(DivvyError) as caught:
        open_database(url)
    assert caught.value.code == "store-url"
