"""Optional rules of a budget over the API: they come into force with a version, refuse, hold back and explain."""

import time

import pytest

pytestmark = pytest.mark.e2e


def change(api, edit):
    """Make a new version of the budget."""
    present = api.get("/v1/budget")
    document = present["document"]
    edit(document)
    body = {"document": document, "reason": "test", "version": present["version"]}
    answer = api.local.put("/v1/budget", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_limit_holds_a_job_back_and_says_whose_it_is(api):
    change(api, lambda document: document["accounts"]["lab"]["language"].update(max_gpus=2))
    too_large = api.local.post(
        "/v1/jobs", json={"account": "lab.language", "gpus": 3, "argv": ["true"], "min_runtime": "1h"}
    )
    assert (too_large.status_code, too_large.json()["code"]) == (422, "gpus-limit")
    api.wait_state(api.submit(gpus=2)["id"], "protected")
    waits = api.submit(gpus=1)["id"]
    told = api.wait(
        lambda: (found := api.get(f"/v1/jobs/{waits}/explain"))["headline"]["code"] == "wait-limit" and found
    )
    assert "the limit of lab.language leaves 0" in told["headline"]["text"]
    api.wait_state(api.submit(gpus=1, account="lab.vision.eval")["id"], "protected")


def test_only_members_submit_and_several_accounts_may_pay(api):
    change(api, lambda document: document["accounts"]["lab"]["vision"].update(members=["nobody"]))
    body = {"account": "lab.language", "gpus": 1, "argv": ["true"], "min_runtime": "1h"}
    refused = api.local.post("/v1/jobs", json=body | {"or_accounts": ["lab.vision.train"]})
    assert (refused.status_code, refused.json()["code"]) == (422, "account-member")
    change(api, lambda document: document["accounts"]["lab"]["vision"].pop("members"))
    made = api.submit(or_accounts=["lab.vision.train", "lab.vision.eval"])
    assert made["accounts"] == ["lab.language", "lab.vision.train", "lab.vision.eval"]
    assert made["account"] == "lab.language", "it is under-served"


def test_a_dated_share_comes_into_force_as_a_version_of_its_own(api):
    at = time.time() + 1
    dated = [{"from": at, "share": 25}]
    made = change(api, lambda document: document["accounts"]["lab"]["language"].update(shares=dated))
    assert [entry["path"] for entry in made["changes"]] == ["accounts.lab.language.shares"]

    def language():
        return next(a for a in api.get("/v1/budget")["accounts"] if a["path"] == "lab.language")

    assert language()["share"] == 40
    api.wait(lambda: language()["share"] == 25)
    newest = api.get("/v1/budget/history")["versions"][0]
    assert (newest["author"], newest["version"]) == ("divvy", made["version"] + 1)
    assert newest["at"] == pytest.approx(at, abs=0.01)
