import copy

import pytest

from divvy.units import HOUR

pytestmark = pytest.mark.e2e


def put(client, document, version, reason="test"):
    return client.put("/v1/budget", json={"document": document, "reason": reason, "version": version})


def patch(client, path, share, version):
    body = {"share": share, "reason": "test", "version": version}
    return client.patch(f"/v1/budget/accounts/{path}", json=body)


def document(api):
    budget = api.get("/v1/budget")
    return copy.deepcopy(budget["document"]), budget["version"]


def test_a_change_makes_a_version_with_author_and_reason(api, me):
    made = patch(api.local, "lab.language", 30, 1).json()
    assert made == {
        "schema": "divvy.budget.change/1",
        "version": 2,
        "pending": False,
        "changes": [{"path": "accounts.lab.language.share", "from": 40, "to": 30}],
    }
    budget = api.wait(lambda: (b := api.get("/v1/budget"))["version"] == 2 and b)
    shares = {account["path"]: account["effective_share"] for account in budget["accounts"]}
    assert shares["lab.language"] == pytest.approx(0.3)
    newest, first = api.get("/v1/budget/history")["versions"]
    assert (newest["version"], newest["author"], newest["reason"], first["version"]) == (2, me, "test", 1)
    assert newest["changes"] == made["changes"]


def test_a_stale_version_is_refused_with_the_present_one(api):
    assert patch(api.local, "lab.language", 30, 1).status_code == 200
    stale = patch(api.local, "lab.language", 20, 1)
    assert stale.status_code == 409
    assert stale.json()["faults"][0] == {
        "code": "budget-stale",
        "path": "version",
        "message": "the change was made from version 1 of the budget, version 2 is in force",
        "allowed": "2",
        "fix": "read the present version and make the change again",
    }


def test_two_changes_from_one_version_cannot_both_win(api):
    api.world.pause()
    wanted, version = document(api)
    for share in (10, 20):
        wanted["accounts"]["lab"]["language"]["share"] = share
        api.world.intake.change_budget(wanted, "race", version, "root")
    api.world.resume()
    api.wait(lambda: api.get("/v1/budget")["version"] == 2)
    assert api.get("/v1/budget")["document"]["accounts"]["lab"]["language"]["share"] == 10
    assert len(api.get("/v1/budget/history")["versions"]) == 2


def test_all_faults_of_a_document_come_at_once(api):
    wanted, version = document(api)
    wanted["policy"]["floor"] = 2
    wanted["accounts"]["lab"]["language"]["share"] = 50
    wanted["accounts"]["lab"]["vision"]["colour"] = "red"
    answer = put(api.local, wanted, version)
    assert answer.status_code == 422
    assert {fault["code"] for fault in answer.json()["faults"]} == {
        "policy-value",
        "share-sum",
        "account-key",
    }


def test_an_account_with_live_jobs_is_not_dropped(api):
    job = api.submit()["id"]
    api.wait_state(job, "protected")
    wanted, version = document(api)
    del wanted["accounts"]["lab"]["language"]
    answer = put(api.local, wanted, version)
    assert (answer.status_code, answer.json()["code"]) == (409, "account-in-use")


def test_a_change_is_pending_while_the_scheduler_stands_still(api, monkeypatch):
    monkeypatch.setattr("divvy.service.context.VERDICT_SECONDS", 0.1)
    api.world.pause()
    answer = patch(api.local, "lab.language", 30, 1)
    assert (answer.status_code, answer.json()["pending"]) == (202, True)
    api.world.resume()
    api.wait(lambda: api.get("/v1/budget")["version"] == 2)


def test_owners_split_what_lies_below_them(api):
    owners = {user: api.remote(api.world.token(user, "owner")) for user in ("vera", "olga", "eve")}
    version = 1
    for user, path, status in (
        ("vera", "lab.vision.train", 200),  # owner of lab.vision splits it among its children
        ("vera", "lab.vision", 403),  # its own share is the business of those above
        ("vera", "lab.language", 403),
        ("olga", "lab.vision.train", 200),  # owner of lab, above
        ("olga", "lab.language", 200),
        ("olga", "lab", 403),  # the top belongs to administrators
        ("eve", "lab.vision.train", 403),
        ("vera", "lab.nothing", 404),
    ):
        answer = patch(owners[user], path, 20 + version, version)
        assert answer.status_code == status, answer.text
        assert answer.json().get("code", "") == {403: "share-not-yours", 404: "account-unknown"}.get(
            status, ""
        )
        version = answer.json().get("version", version)


def test_an_owner_may_add_below_and_appoint_but_not_touch_the_policy(api):
    vera = api.remote(api.world.token("vera", "owner"))
    wanted, version = document(api)
    vision = wanted["accounts"]["lab"]["vision"]
    vision["eval"]["share"] = 30
    vision["new"] = {"share": 20, "owners": ["nina"], "deep": {"share": 100}}
    assert put(vera, wanted, version).status_code == 200
    assert (
        patch(api.remote(api.world.token("nina", "owner")), "lab.vision.new.deep", 90, 2).status_code == 200
    )
    wanted, version = document(api)
    wanted["policy"]["floor"] = 0.5
    assert put(vera, wanted, version).json()["faults"][0]["path"] == "policy.floor"


@pytest.mark.parametrize("share", [float("nan"), float("inf"), -1, 101, 1e308])
def test_a_share_that_is_no_share_is_refused(shared_api, share):
    answer = shared_api.local.patch(
        "/v1/budget/accounts/lab.language",
        content=f'{{"share": {share}, "reason": "x", "version": 1}}'.replace("nan", "NaN").replace(
            "inf", "Infinity"
        ),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 422


def test_a_deep_document_and_a_control_character_are_refused(api):
    deep = {"share": 100}
    for _ in range(200):
        deep = {"share": 100, "a": deep}
    assert put(api.local, {"accounts": {"lab": deep}}, 1).json()["code"] == "budget-depth"
    assert put(api.local, document(api)[0], 1, reason="a\x1b[2Jb").json()["code"] == "text-control"


def test_the_statement_counts_what_ran(api):
    job = api.submit(gpus=4)["id"]
    free = api.submit(gpus=2, min_runtime="0")["id"]
    api.wait_state(job, "protected")
    api.wait_state(free, "unallocated")
    open_runs = {row["account"]: row for row in api.get("/v1/statement")["rows"]}
    assert open_runs["lab.language"]["delivered_gpu_hours"] > 0, (
        "what still runs counts as far as it has come"
    )
    for each in (job, free):
        api.world.engine.end(each)
    ended = api.wait_state(job, "finished")
    api.wait_state(free, "finished")
    statement = api.get("/v1/statement", hours=True)
    rows = {row["account"]: row for row in statement["rows"]}
    language = rows["lab.language"]
    ran_ms = round(ended["running_seconds"] * 1000)
    assert language["charged"] == 4 * ran_ms, "to the millisecond"
    assert language["delivered_gpu_hours"] == pytest.approx(4 * ran_ms / HOUR)
    assert language["unallocated_gpu_hours"] > 0
    assert rows["lab"]["charged"] == language["charged"]
    assert 0 < language["delivered_over_owed"] <= 1.0, "the moment before it started was owed too"
    assert sum(hour["delivered"] for hour in language["hours"]) == pytest.approx(
        language["delivered_gpu_hours"]
    )
    assert language["declared_gpu_hours"] == 4.0
    below = api.get("/v1/statement", account="lab.vision")["rows"]
    assert {row["account"] for row in below} == {"lab.vision", "lab.vision.train", "lab.vision.eval"}
    assert api.local.get("/v1/statement?account=lab.no").status_code == 404


def test_a_run_that_nothing_resumes_is_lost_but_charged(api):
    job = api.submit(gpus=4, min_runtime="50ms")["id"]
    node = api.wait_state(job, "interruptible")["placement"][0]["node"]
    assert api.local.post(f"/v1/nodes/{node}/drain", json={"reason": "fan"}).status_code == 202
    ended = api.wait_state(job, "preempted")
    assert ended["cause"] == "drained"
    row = next(row for row in api.get("/v1/statement")["rows"] if row["account"] == "lab.language")
    assert row["lost_gpu_hours"] == pytest.approx(4 * ended["running_seconds"] / 3600)
    assert (row["delivered_gpu_hours"], row["charged_gpu_hours"]) == (0.0, row["lost_gpu_hours"])
    told = api.get(f"/v1/jobs/{job}/explain")
    assert "preempted-drain" in [reason["code"] for reason in told["reasons"]]


def test_maintenance_is_announced_begins_and_ends_by_itself(api):
    now = api.get("/v1/health")["as_of"]
    wrong = api.local.post("/v1/nodes/n1/drain", json={"reason": "fan", "from_at": now + 9, "until_at": now})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "drain-window")
    window = {"reason": "fan", "from_at": now + 1, "until_at": now + 2}
    told = api.local.post("/v1/nodes/n1/drain", json=window).json()
    assert (told["state"], told["from_at"], told["until_at"]) == ("up", now + 1, now + 2)

    def node():
        return next(n for n in api.get("/v1/status")["nodes"] if n["name"] == "n1")

    api.wait(lambda: node()["maintenance"] and "fan" in node()["maintenance"]["cause"])
    api.wait(lambda: node()["state"] == "draining")
    api.wait(lambda: node()["state"] == "up" and node()["maintenance"] is None)


def test_a_fatal_fault_ends_what_runs_and_refunds_it(api):
    job = api.submit(gpus=4, min_runtime="1h", resumable=True)["id"]
    node = api.wait_state(job, "protected")["placement"][0]["node"]
    wrong = api.local.post(f"/v1/nodes/{node}/fault", json={"code": "xid-13"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "fault-application")
    assert api.local.post(f"/v1/nodes/{node}/fault", json={"code": "xid-79"}).json()["state"] == "down"

    def refunds():
        rows = api.get("/v1/statement")["rows"]
        return [
            entry
            for row in rows
            for entry in row["entries"]
            if entry["cause"].startswith("refund-node-failure")
        ]

    api.wait(refunds)
    assert all(entry["charge"] < 0 for entry in refunds())
    assert api.get(f"/v1/jobs/{job}")["attempt"] >= 1
    assert api.local.delete(f"/v1/nodes/{node}/fault").status_code == 202
    api.wait(lambda: all(n["state"] == "up" for n in api.get("/v1/status")["nodes"]))
    again = api.local.delete(f"/v1/nodes/{node}/fault")
    assert (again.status_code, again.json()["code"]) == (409, "node-well")


def test_a_drained_node_comes_back(api):
    assert api.local.post("/v1/nodes/n1/drain", json={"reason": "fan"}).json()["state"] == "draining"
    drained = api.wait(lambda: [n for n in api.get("/v1/status")["nodes"] if n["state"] == "draining"])[0]
    assert (drained["name"], drained["free"], drained["devices"][0]["state"]) == ("n1", 0, "draining")
    assert "fan" in drained["cause"]
    assert api.local.delete("/v1/nodes/n1/drain").json()["state"] == "up"
    api.wait(lambda: all(n["state"] == "up" for n in api.get("/v1/status")["nodes"]))
    again = api.local.delete("/v1/nodes/n1/drain")
    assert (again.status_code, again.json()["code"]) == (409, "node-state")
