"""POST /v1/slices: a ledger entry once, whoever may."""

import time

import pytest

from divvy.adapters.front.charges import Charges
from divvy.cli.client import Client, Target

pytestmark = pytest.mark.e2e


def batch(name, account="lab.language", **fields):
    rows = [{"model": "A100-80GB.3g", "microseconds": 2_000_000}, {"model": "gpu", "microseconds": 1500}]
    return {"id": name, "account": account, "until_at": time.time(), "slices": rows} | fields


def entries(api, account="lab.language"):
    row = next(r for r in api.get("/v1/statement")["rows"] if r["account"] == account)
    return [(entry["charge"], entry["cause"]) for entry in row["entries"]]


def test_a_batch_is_charged_once_however_often_it_comes(api):
    first = api.local.post("/v1/slices", json=batch("r1")).json()
    again = api.local.post("/v1/slices", json=batch("r1")).json()
    expected = 134 * 2000 + 2  # 312 x 3/7 is 134; half a millisecond counts as one
    assert first == {
        "schema": "divvy.slices/1", "id": "r1", "account": "lab.language", "charge": expected,
        "created": True, "pending": False,
    }  # fmt: skip
    assert (again["created"], again["charge"]) == (False, expected)
    assert entries(api).count((expected, "slices")) == 1
    other = api.local.post("/v1/slices", json=batch("r1", "lab.vision.train"))
    assert (other.status_code, other.json()["code"]) == (409, "slices-duplicate")
    assert entries(api, "lab.vision.train") == []


def test_owners_charge_what_they_own_and_nothing_else(api):
    vera = api.remote(api.world.token("vera", "owner"))
    assert vera.post("/v1/slices", json=batch("v1", "lab.vision.eval")).status_code == 200
    refused = vera.post("/v1/slices", json=batch("v2"))
    assert (refused.status_code, refused.json()["code"]) == (403, "account-denied")


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"until_at": 1.0}, 409),
        ({"account": "lab"}, 422),
        ({"account": "lab.none"}, 404),
        ({"slices": []}, 422),
        ({"slices": [{"model": "gpu", "microseconds": -1}]}, 422),
        ({"slices": [{"model": "gpu", "microseconds": 1.5}]}, 422),
        ({"id": "../x"}, 422),
    ],
)
def test_what_cannot_be_charged_is_refused(api, fields, status):
    assert api.local.post("/v1/slices", json=batch("bad", **fields)).status_code == status


def test_a_routers_batches_reach_the_ledger_once_though_the_answer_was_lost(api, tmp_path):
    client = Client(Target("unix", api.path))
    answers = []

    def post(batch):
        answers.append(client.post("slices", body=batch))
        if len(answers) == 1:
            raise OSError("the answer was lost")

    told = []
    charges = Charges(tmp_path, "A100-80GB", post, told.append)
    charges.cut({"lab.vision.eval": {1: 3_000_000, 7: 1_000_000}})
    time.sleep(0.005)  # batches go in the order of the ms in which they were cut
    charges.cut({"lab.nowhere": {1: 5}})
    charges.send()
    assert len(charges.waiting()) == 2
    charges.send()
    amount = 45 * 3000 + 312 * 1000
    assert [(one["charge"], one["created"]) for one in answers] == [(amount, True), (amount, False)]
    assert entries(api, "lab.vision.eval").count((amount, "slices")) == 1
    assert (charges.waiting(), charges.refused, len(list(tmp_path.glob("*.refused")))) == ([], 1, 1)
