import json

import pytest

pytestmark = pytest.mark.e2e


def test_what_is_answered_is_stored_even_if_the_scheduler_stands_still(api):
    api.world.pause()
    made = api.submit()
    assert made["state"] == "accepted"
    assert api.world.reader.job(made["id"]) is not None
    assert api.get(f"/v1/jobs/{made['id']}")["state"] == "accepted"
    queued = api.get("/v1/queue")["jobs"]
    assert [(job["id"], job["reason"]["code"]) for job in queued] == [(made["id"], "accepted")]
    explained = api.get(f"/v1/jobs/{made['id']}/explain")
    assert explained["headline"]["code"] == "accepted"
    api.world.resume()
    api.wait_state(made["id"], "protected")


def test_a_retry_with_the_same_id_is_harmless_and_another_job_with_it_is_refused(api):
    first = api.submit(id="train-1", name="a")
    again = api.submit(id="train-1", name="a", status=200)
    assert (again["id"], again["submitted_at"]) == ("train-1", first["submitted_at"])
    other = api.local.post(
        "/v1/jobs",
        json={"account": "lab.language", "gpus": 2, "argv": ["other"], "min_runtime": "1h", "id": "train-1"},
    )
    assert (other.status_code, other.json()["code"]) == (409, "job-duplicate")
    eve = api.remote(api.world.token("eve", "submitter", ["lab"]))
    api.submit(eve, id="train-1", name="a", status=409)
    assert len(api.get("/v1/jobs")["jobs"]) == 1


def test_ids_are_short_and_sort_in_order_of_submission(api):
    made = [api.submit()["id"] for _ in range(3)]
    assert made == sorted(made)
    assert all(len(job) == 8 for job in made)


def test_the_queue_says_who_is_ahead_and_why(api):
    running = api.submit(account="lab.vision.train", gpus=4)
    wide = api.submit(account="lab.vision.train", gpus=4)
    api.wait_state(wide["id"], "protected")
    first = api.submit(account="lab.language", gpus=2)
    second = api.submit(account="lab.language", gpus=2, name="mine")

    def settled():
        found = api.get("/v1/queue")
        known = found["total"] == 2 and found["jobs"][0]["reason"]["code"] not in ("accepted", "wait-next")
        return found if known else None

    queue = api.wait(settled)
    assert [job["id"] for job in queue["jobs"]] == [first["id"], second["id"]]
    assert [(job["position"], job["ahead"], job["ahead_count"]) for job in queue["jobs"]] == [
        (1, [], 0),
        (2, [first["id"]], 1),
    ]
    assert queue["jobs"][0]["reason"]["code"].startswith("wait-"), "what the planner said"
    told = api.get(f"/v1/jobs/{second['id']}/explain")
    assert told["ahead"][0]["id"] == first["id"]
    assert told["account"]["path"] == "lab.language"
    assert told["account"]["floor"] == pytest.approx(0.7 * 0.4 * 8)
    holders = {job["id"] for job in api.get(f"/v1/jobs/{first['id']}/explain")["ahead"]}
    assert holders == {running["id"], wide["id"]}
    assert [job["id"] for job in api.get("/v1/queue", limit=1)["jobs"]] == [first["id"]]
    assert api.get("/v1/queue", account="lab.vision")["jobs"] == []
    stranger = api.remote(api.world.token("vic", "viewer")).get("/v1/queue").json()["jobs"]
    assert [job["name"] for job in stranger] == ["", ""]


def test_a_preempted_job_learns_by_whom(api):
    spare = api.submit(gpus=4, min_runtime="0", resumable=True)
    more = api.submit(gpus=4, min_runtime="0", resumable=True)
    for job in (spare, more):
        api.wait_state(job["id"], "unallocated")
    taker = api.submit(account="lab.vision.train", gpus=4)
    api.wait_state(taker["id"], "protected")
    victim = api.wait(
        lambda: next(
            (j for j in (spare, more) if api.get(f"/v1/jobs/{j['id']}")["state"] == "preempted(1)"), None
        )
    )
    told = api.get(f"/v1/jobs/{victim['id']}/explain")
    assert told["numbers"]["preempted_by"] == taker["id"]
    assert any(
        reason["code"] == "preempted-unallocated" and taker["id"] in reason["text"]
        for reason in told["reasons"]
    )
    assert [line["event"] for line in told["history"]] == [
        "submitted",
        "placed",
        "started",
        "stopping",
        "stopped",
    ]


def test_a_cancelled_job_ends_once(api):
    job = api.submit()["id"]
    api.wait_state(job, "protected")
    assert api.local.delete(f"/v1/jobs/{job}").status_code == 202
    ended = api.wait_state(job, "cancelled")
    assert ended["cause"] == "cancelled"
    again = api.local.delete(f"/v1/jobs/{job}")
    assert (again.status_code, again.json()["code"]) == (409, "job-over")


def test_a_job_can_be_cancelled_before_the_scheduler_has_seen_it(api):
    api.world.pause()
    job = api.submit()["id"]
    assert api.local.delete(f"/v1/jobs/{job}").json() == {
        "schema": "divvy.cancel/1",
        "job": job,
        "state": "accepted",
    }
    api.world.resume()
    api.wait_state(job, "cancelled")


def test_jobs_are_listed_by_state_account_and_author_page_by_page(api):
    eve = api.remote(api.world.token("eve", "submitter", ["lab"]))
    made = [api.submit(client, gpus=1)["id"] for client in (api.local, eve, api.local, eve, api.local)]
    for job in made:
        api.wait_state(job, "protected")
    api.world.engine.end(made[0])
    api.wait_state(made[0], "finished")

    def ids(**query):
        return [job["id"] for job in api.get("/v1/jobs", **query)["jobs"]]

    assert ids() == made[::-1]
    assert ids(author="eve") == [made[3], made[1]]
    assert ids(state="ended") == ids(state="finished") == [made[0]]
    assert ids(state="running") == made[:0:-1]
    assert ids(account="lab") == made[::-1]
    assert ids(account="lab.vision") == []
    first = api.get("/v1/jobs", limit=2)
    second = api.get("/v1/jobs", limit=2, before=first["next"])
    third = api.get("/v1/jobs", limit=2, before=second["next"])
    assert [j["id"] for page in (first, second, third) for j in page["jobs"]] == made[::-1]
    assert third["next"] is None


def test_the_debug_rule_is_bounded_per_author_and_day_and_survives_a_restart(api):
    quick = {"gpus": 8, "min_runtime": "15m"}
    given = [api.submit(**quick)["debug"] for _ in range(9)]
    assert given == [True] * 8 + [False]
    assert not api.submit(gpus=1, min_runtime="16m")["debug"]
    fresh = type(api.app.state.service.submissions)(api.world.reader, api.world.intake)
    api.app.state.service.submissions = fresh  # as a new API process would be
    assert not api.submit(**quick)["debug"]
    eve = api.remote(api.world.token("eve", "submitter", ["lab"]))
    assert api.submit(eve, **quick)["debug"]


def test_a_job_that_the_scheduler_refuses_says_why(api):
    api.world.pause()
    job = api.submit(account="lab.vision.train")["id"]
    moved = json.loads(json.dumps(api.get("/v1/budget")["document"]))
    del moved["accounts"]["lab"]["vision"]["train"]
    api.world.intake.change_budget(moved, "gone", 1, "root")
    with api.world.database.write() as connection:  # the change was asked for first
        connection.exec_driver_sql("UPDATE intake SET seq = -seq")
    api.world.resume()
    ended = api.wait_state(job, "failed")
    assert "no account 'lab.vision.train'" in ended["note"]
    told = api.get(f"/v1/jobs/{job}/explain")
    assert told["headline"]["code"] == "refused"
    assert told["account"] is None
