"""Every answer has the documented shape, and the OpenAPI document says the truth about it."""

import json
import math

import jsonschema
import pytest
from prometheus_client.parser import text_string_to_metric_families

from divvy.errors import problem_to_error
from divvy.service import schemas
from divvy.service.examples import EXAMPLES

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def busy_api(shared_api):
    """Something of everything: running, waiting, unallocated, ended jobs."""
    jobs = [
        shared_api.submit(account="lab.vision.train", gpus=4),
        shared_api.submit(account="lab.language", gpus=2, time_limit="4h", priority=3, kind="interactive"),
        shared_api.submit(account="lab.language", gpus=1, min_runtime="0", resumable=True),
    ]
    for job in jobs:
        shared_api.wait_state(job["id"], "protected", "unallocated")
    shared_api.world.engine.end(jobs[2]["id"], 7)
    shared_api.wait_state(jobs[2]["id"], "failed")
    waiting = shared_api.submit(account="lab.language", gpus=8)
    shared_api.wait(lambda: shared_api.get("/v1/queue")["jobs"][0]["reason"]["code"] != "accepted")
    shared_api.jobs = [job["id"] for job in [*jobs, waiting]]
    return shared_api


SHAPES = {
    "/v1/health": schemas.Health,
    "/v1/status": schemas.Status,
    "/v1/queue": schemas.Queue,
    "/v1/jobs": schemas.Jobs,
    "/v1/budget": schemas.BudgetView,
    "/v1/budget/history": schemas.BudgetHistory,
    "/v1/statement?hours=true": schemas.Statement,
    "/v1/decisions": schemas.Decisions,
    "/v1/decisions/2": schemas.Decision,
    "/v1/tokens": schemas.Tokens,
}


@pytest.mark.parametrize("path", SHAPES)
def test_every_answer_has_its_shape(busy_api, path):
    answer = busy_api.local.get(path)
    assert answer.status_code == 200, answer.text
    SHAPES[path].model_validate(answer.json())


@pytest.mark.parametrize("index", range(4))
def test_jobs_and_explanations_in_every_state_have_their_shape(busy_api, index):
    job = busy_api.jobs[index]
    schemas.Job.model_validate(busy_api.get(f"/v1/jobs/{job}"))
    found = busy_api.get(f"/v1/jobs/{job}/explain")
    schemas.Explanation.model_validate(found)
    assert found["headline"]["text"]


def test_every_example_has_its_shape(busy_api):
    document = busy_api.get("/openapi.json")
    checked = set()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert operation["summary"], f"{method} {path}"
            for status, response in operation["responses"].items():
                content = response.get("content", {}).get("application/json", {})
                if "example" in content:
                    schema = {**content["schema"], "components": document["components"]}
                    jsonschema.validate(content["example"], schema)
                    checked.add((path, method, status))
    assert len(checked) >= len(EXAMPLES)


def test_real_answers_obey_the_openapi_document(busy_api):
    document = busy_api.get("/openapi.json")
    for path in ("/v1/status", "/v1/queue", "/v1/jobs", "/v1/budget", "/v1/decisions"):
        schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(busy_api.get(path), {**schema, "components": document["components"]})


def test_problems_have_their_shape_and_read_back(busy_api):
    for path in ("/v1/jobs/none", "/v1/jobs?limit=0", "/v2"):
        answer = busy_api.local.get(path)
        schemas.Problem.model_validate(answer.json())
        assert answer.json()["status"] == answer.status_code
        error = problem_to_error(answer.json())
        assert (error.status, error.code) == (answer.status_code, answer.json()["code"])


def test_what_is_not_measured_is_null_with_its_reason_and_never_zero(busy_api):
    devices = [device for node in busy_api.get("/v1/status")["nodes"] for device in node["devices"]]
    assert len(devices) == 8
    for device in devices:
        assert device["utilisation"] is None
        assert "no monitor" in device["utilisation_reason"]
    busy = [device for device in devices if device["job"] is not None]
    assert len(busy) == 6
    assert {device["state"] for device in devices} == {"protected", "free"}


def test_the_age_of_the_data_grows_while_the_scheduler_stands_still(busy_api):
    busy_api.world.pause()
    first, second = busy_api.get("/v1/status"), None
    second = busy_api.wait(
        lambda: (s := busy_api.get("/v1/status"))["age_seconds"] > first["age_seconds"] + 0.2 and s
    )
    assert second["as_of"] == first["as_of"]
    busy_api.world.resume()
    busy_api.wait(lambda: busy_api.get("/v1/status")["as_of"] > first["as_of"])


def test_the_numbers_add_up(busy_api):
    status = busy_api.get("/v1/status")
    totals, accounts = status["totals"], {account["path"]: account for account in status["accounts"]}
    assert totals == {
        "gpus": 8,
        "used": 6,
        "allocated": 6,
        "unallocated": 0,
        "free": 2,
        "queued": 1,
        "running": 2,
    }
    assert accounts["lab"]["held"] == accounts["lab.vision"]["held"] + accounts["lab.language"]["held"] == 6
    assert accounts["lab.language"]["waiting_gpus"] == 8
    for account in accounts.values():
        assert math.isfinite(account["balance"])


def test_metrics_are_read_by_prometheus_and_agree_with_the_status(busy_api):
    text = busy_api.local.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    held = {
        sample.labels["account"]: sample.value for sample in families["divvy_account_held_devices"].samples
    }
    assert held == {account["path"]: account["held"] for account in busy_api.get("/v1/status")["accounts"]}
    states = {sample.labels["state"]: sample.value for sample in families["divvy_jobs"].samples}
    assert states == {"protected": 2, "queued": 1, "accepted": 0, "preempted": 0}
    assert families["divvy_data_age_seconds"].samples[0].value >= 0
    assert families["divvy_devices_free"].samples[0].value == 2
    routes = {sample.labels["route"] for sample in families["divvy_api_requests"].samples}
    assert "/v1/jobs/{job}" in routes, "routes, not paths: an id is no label"
    assert not any(job in text for job in busy_api.jobs)


def test_health_says_when_the_scheduler_is_silent(busy_api, monkeypatch):
    monkeypatch.setattr("divvy.service.routers.fleet.SILENT_SECONDS", 0.1)
    busy_api.world.pause()
    told = busy_api.wait(lambda: (h := busy_api.get("/v1/health"))["status"] == "stale" and h)
    assert told["scheduler"] == "silent"
    busy_api.world.resume()


def test_no_answer_holds_a_number_that_json_has_not(busy_api):
    for path in SHAPES:
        json.loads(busy_api.local.get(path).text, parse_constant=pytest.fail)
