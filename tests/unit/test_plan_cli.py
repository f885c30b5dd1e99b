"""`divvy plan` and `divvy apply` on files: exit codes, stale plans, what is refused."""

import json
import os
import sys

import pytest

from divvy.cli import main
from divvy.control.journal import Entry
from divvy.control.shadow import shadow_report
from divvy.fleet.event import Placed, Started, Submitted
from divvy.fleet.job import JobSpec
from divvy.service.schemas.one_plan import ApplyView, OnePlanView, ShadowView

FLEET = """
[fleet]
nodes = "2x4@A100-80GB"
slices = "homogeneous:7"
dispatcher = "fifs"

[accounts.train]
share = 50
[accounts.serve]
share = 50

[[services]]
name = "images"
account = "serve"
sku = "A100-80GB"
profile = "fitted:resnet50"
batch = "fixed:4"
rate_qps = RATE
slo = 60
most = 3

[[jobs]]
id = "gang"
account = "train"
gpus = 4
min_runtime = "2h"
"""


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "fleet.toml"
    path.write_text(FLEET.replace("RATE", "100"), encoding="utf-8")
    return path


@pytest.fixture
def divvy(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["divvy", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run


def document(answer):
    return answer[0], json.loads(answer[1])


def test_plan_apply_and_a_stale_plan(fleet, divvy):
    code, first = document(divvy("plan", "--fleet", fleet, "--json"))
    assert (code, first["schema"]) == (1, "divvy.plan/1")
    OnePlanView.model_validate(first)
    assert {one["job"] for one in first["jobs"]["start"]} == {"gang", "images.1"}
    assert all(one["text"] for one in first["jobs"]["start"])
    assert first["slices"][0]["price"]["seconds"][1] == 70
    assert first["services"][0]["gpus"][0]["layout"] == [{"profile": "7g.80gb", "start": 0, "size": 8}]
    assert first["changes"] == 3
    # Nothing was written: the same plan again.
    again = document(divvy("plan", "--fleet", fleet, "--json"))[1]
    assert {**again, "at": 0} == {**first, "at": 0}

    version = first["version"]
    code, _, err = divvy("apply", "--fleet", fleet, "--version", version + 1)
    assert code == 2
    assert str(version) in err
    code, done = document(divvy("apply", "--fleet", fleet, "--version", version, "--json"))
    assert (code, done["schema"], done["left"]) == (0, "divvy.apply/1", [])
    ApplyView.model_validate(done)
    code, _, err = divvy("apply", "--fleet", fleet, "--version", version, "--json")
    assert code == 2
    assert json.loads(err)["code"] == "plan-stale"
    assert f"{done['now']} now" in err
    code, then = document(divvy("plan", "--fleet", fleet, "--json"))
    assert (code, then["changes"], then["version"]) == (0, 0, done["now"])


def test_a_changed_file_makes_the_plan_stale(fleet, divvy):
    version = document(divvy("plan", "--fleet", fleet, "--json"))[1]["version"]
    fleet.write_text(FLEET.replace("RATE", "100") + '[[jobs]]\nid = "new"\naccount = "train"\ngpus = 1\n')
    assert divvy("apply", "--fleet", fleet, "--version", version)[0] == 2


def test_more_demand_takes_more_gpus_and_less_gives_them_back(fleet, divvy):
    def settle():
        found = document(divvy("plan", "--fleet", fleet, "--json"))[1]
        assert divvy("apply", "--fleet", fleet, "--version", found["version"])[0] == 0
        return found

    settle()
    fleet.write_text(FLEET.replace("RATE", "1e6"), encoding="utf-8")
    grown = settle()
    assert grown["services"][0]["wanted_gpus"] == 3
    assert len(grown["services"][0]["gpus"]) == 3
    fleet.write_text(FLEET.replace("RATE", "0"), encoding="utf-8")
    found = document(divvy("plan", "--fleet", fleet, "--json"))[1]
    assert found["services"][0]["gpus"] == []


def test_an_account_may_go_with_its_jobs(fleet, divvy):
    version = document(divvy("plan", "--fleet", fleet, "--json"))[1]["version"]
    assert divvy("apply", "--fleet", fleet, "--version", version)[0] == 0
    text = FLEET.replace("RATE", "100").replace("[accounts.train]", "[accounts.other]")
    fleet.write_text(text.replace('"train"', '"other"').replace('"gang"', '"new"'), encoding="utf-8")
    code, then = document(divvy("plan", "--fleet", fleet, "--json"))
    assert code == 1
    assert [one["job"] for one in then["jobs"]["start"]] == ["new"]


def test_a_job_that_is_asked_for_otherwise_starts_anew(fleet, divvy):
    version = document(divvy("plan", "--fleet", fleet, "--json"))[1]["version"]
    assert divvy("apply", "--fleet", fleet, "--version", version)[0] == 0
    fleet.write_text(FLEET.replace("RATE", "100").replace("gpus = 4", "gpus = 2"), encoding="utf-8")
    then = document(divvy("plan", "--fleet", fleet, "--json"))[1]
    assert [(one["job"], one["gpus"]) for one in then["jobs"]["start"]] == [("gang", 2)]
    assert divvy("apply", "--fleet", fleet, "--version", then["version"])[0] == 0
    assert divvy("plan", "--fleet", fleet)[0] == 0


def test_text_and_ids(fleet, divvy):
    code, out, _ = divvy("plan", "--fleet", fleet)
    assert code == 1
    for words in (
        "3 changes",
        "gang",
        "started on free devices",
        "uncut -> 7g.80gb@0",
        "divvy apply --version",
    ):
        assert words in out
    code, out, _ = divvy("plan", "--fleet", fleet, "-q")
    assert out.split() == ["gang", "images.1", "images"]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("", {"fleet-nodes", "accounts-empty"}),
        ("[fleet", {"fleet-syntax"}),
        ("deep = " + "[" * 5_000, {"fleet-syntax"}),
        ("digits = " + "9" * 5_000, {"fleet-syntax"}),
        (
            "[fleet]\nnodes = '1x1'\ntopology = ['none.txt', '.']\n[accounts.a]\nshare = 1\n",
            {"fleet-topology"},
        ),
        ("[fleet]\nnodes = '1x1'\ntopology = 3\n[accounts.a]\nshare = 1\n", {"fleet-value"}),
        (
            """[fleet]\nnodes = '1x1'\n[accounts.a]\nshare = 1
            [[jobs]]\nid = 'a'\naccount = 'a'\ngpus = 99999999999999999999999
            [[jobs]]\nid = "b\\u001b[31m"\naccount = 'a'\ngpus = 1\n""",
            {"job-value"},
        ),
        ("[fleet]\nnodes = 'x'\n[accounts.a]\nshare = 1\n", {"fleet-shape"}),
        ("[fleet]\nnodes = '1x1'\nplanner = 'no'\n[accounts.a]\nshare = 1\n", {"policy-unknown"}),
        ("[fleet]\nnodes = '1x1'\nslices = 'no'\n[accounts.a]\nshare = 1\n", {"unknown-planner"}),
        (
            "[what]\n[fleet]\nnodes = '1x1'\nx = 1\n[accounts.a]\nshare = 120\n",
            {"fleet-key", "share-range", "share-sum"},
        ),
        (
            "[fleet]\nnodes = '1x1'\n[accounts.a]\nshare = 1\n[[jobs]]\nid = 'a'\naccount = 'b'\ngpus = -1\nmin_runtime = '5'\n",
            {"account-unknown", "job-value"},
        ),
        (
            """[fleet]\nnodes = '1x1'\n[accounts.a]\nshare = 1\n[[services]]\nname = 's'\naccount = 'a'
            sku = 'X'\nprofile = 'fitted:bert'\nrate_qps = 1\nslo = 9\n""",
            {"mig-unknown-sku", "fleet-model"},
        ),
    ],
)
def test_every_fault_of_a_fleet_file_ends_with_2(tmp_path, divvy, text, codes):
    path = tmp_path / "f.toml"
    path.write_text(text, encoding="utf-8")
    code, out, err = divvy("plan", "--fleet", path, "--json")
    assert (code, out) == (2, "")
    assert {fault["code"] for fault in json.loads(err)["faults"]} == codes


def test_what_cannot_be_planned_ends_with_2(fleet, divvy, tmp_path):
    assert divvy("plan", "--fleet", tmp_path / "none.toml")[0] == 2
    assert divvy("plan", "--home", tmp_path / "nowhere")[0] == 2
    assert divvy("plan", "--fleet", fleet, "--services", fleet)[0] == 2
    assert divvy("plan", "--at", "2027-01-01")[0] == 2
    state = tmp_path / "fleet.state.json"
    damaged = '{"schema": "divvy.fleet.state/1"}', '{"schema": "divvy.fleet.state/1", "state": 3, "at": "x"}'
    for text in ("", "{", "[]", "[" * 100_000, '{"schema": "x"}', *damaged):
        state.write_text(text)
        assert divvy("plan", "--fleet", fleet)[0] == 2
    state.write_text('{"schema": "divvy.fleet.state/1", "at": 1, "state": {"format": 1}, "tenancy": {}}')
    assert divvy("plan", "--fleet", fleet)[0] == 2
    assert divvy("apply", "--fleet", fleet)[0] == 2
    os.mkfifo(tmp_path / "pipe")
    assert divvy("apply", "--fleet", fleet, "--version", 0, "--state", tmp_path / "pipe")[0] == 2
    assert (tmp_path / "pipe").is_fifo()


def test_a_time_before_the_state_is_refused(fleet, divvy):
    at = ("--at", "2030-01-01T00:00Z")
    version = document(divvy("plan", "--fleet", fleet, "--json", *at))[1]["version"]
    assert divvy("apply", "--fleet", fleet, "--version", version, *at)[0] == 0
    code, _, err = divvy("plan", "--fleet", fleet, "--at", "2029-01-01T00:00Z")
    assert code == 2
    assert "plan-time" in err


# -- shadow --------------------------------------------------------------------------------------------------


def entry(seq, at, happened=(), decisions=(), slots=(), carried_out=()):
    plan = {"now": at, "decisions": list(decisions), "slots": list(slots)}
    return Entry(seq, at, seq, "budget", 0, tuple(happened), plan, tuple(carried_out))


def start(job):
    return {"do": "start", "job": job, "account": "a", "gpus": 2, "reason": "started_free"}


def test_shadow_compares_the_first_answer_with_what_the_engine_did():
    specs = [JobSpec(name, "a", "ada", 2, 1_000) for name in ("x", "y", "z")]
    steps = [
        entry(1, 1_000, [Submitted(1_000, spec) for spec in specs], [start("x"), start("y")]),
        entry(
            2, 2_000, (), [start("x"), {"do": "preempt", "job": "z", "by": "y"}], [{"do": "hold", "job": "y"}]
        ),
        entry(3, 61_000, [Started(61_000, "x", (("n", 2),)), Started(500, "z", (("n", 2),))]),
        entry(4, 62_000, (), [start("z")], carried_out=[Placed(62_000, "z", (("n", 2),), True)]),
    ]
    report = shadow_report(steps, 0)
    ShadowView.model_validate(report)
    assert (report["passes"], report["starts"], report["preemptions"], report["holds"]) == (2, 2, 1, 1)
    assert [(row["job"], row["sooner_seconds"]) for row in report["jobs"]] == [("x", 60.0), ("y", None)]
    assert report["sooner_seconds"] == {"p5": 60.0, "p50": 60.0, "p95": 60.0}
    late = shadow_report(steps, 1_500)
    assert [(row["job"], row["sooner_seconds"]) for row in late["jobs"]] == [("x", 59.0)]
    assert shadow_report([], 0)["sooner_seconds"] is None
