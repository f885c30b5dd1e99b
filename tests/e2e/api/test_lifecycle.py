import pytest

pytestmark = pytest.mark.e2e


def test_a_job_is_stored_runs_and_ends(api):
    job = api.submit(argv=["sleep", "1"], env={"A": "b"}, name="first")
    assert (job["state"], job["argv"], job["env"], job["name"]) == (
        "accepted",
        ["sleep", "1"],
        {"A": "b"},
        "first",
    )
    running = api.wait_state(job["id"], "protected")
    assert running["placement"] == [{"node": "n1", "gpus": 1}]
    api.world.engine.end(job["id"], 3)
    ended = api.wait_state(job["id"], "failed")
    assert (ended["exit_code"], ended["attempt"], ended["waiting_seconds"]) == (3, 1, None)
