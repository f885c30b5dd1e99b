import json
import sys

import pytest

from divvy.cli import main

TRACE = [
    {"submit": 0, "runtime": "3h", "gpus": 2, "account": "red", "min_runtime": "1h"},
    {"submit": 600, "runtime": "2h", "gpus": 1, "account": "blue", "min_runtime": "15m"},
    {"submit": 700, "runtime": "1h", "gpus": 4, "account": "blue", "min_runtime": 0},
    {"event": "capacity", "at": 7200, "node": "node2", "gpus": 2, "state": "down"},
    {"event": "capacity", "at": 10800, "node": "node2", "gpus": 2},
]
KEYS = {
    "policy",
    "occupancy",
    "occupancy_while_contended",
    "useful_occupancy_while_contended",
    "delivered_over_owed",
    "worst_account",
    "accounts_at_95",
    "unallocated_share",
    "wait_seconds",
    "preemptions",
    "lost_gpu_hours",
    "lost_fraction",
    "wall_seconds",
    "events",
}
POLICIES = "budget,fairshare,fifo"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in TRACE), encoding="utf-8")
    return path


@pytest.fixture
def divvy(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["divvy", "simulate", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_the_report_has_the_documented_keys(divvy, trace):
    code, out, err = divvy(trace, "--nodes", "2x2", "--policy", POLICIES, "--warmup", "0", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["schema"] == "divvy.simulate/1"
    assert [entry["policy"] for entry in report["policies"]] == POLICIES.split(",")
    for entry in report["policies"]:
        assert set(entry) >= KEYS
        assert set(entry["delivered_over_owed"]) == {"period", "day", "hour"}
        assert {"account", "period", "hour"} <= set(entry["worst_account"])
        assert {"all", "debug", "le_15min", "ge_32gpu"} <= set(entry["wait_seconds"])
        assert all(set(waits) == {"p50", "p90", "n"} for waits in entry["wait_seconds"].values())
        assert entry["wait_seconds"]["ge_32gpu"] == {"p50": None, "p90": None, "n": 0}
        assert entry["wall_seconds"] > 0
        assert entry["refused"] == []
        assert entry["finished"] == 3
    assert report["fleet"] == {"gpus": 4, "nodes": 2, "largest_node": 2, "changes": 2}
    assert report["shares"] == {"red": 0.5, "blue": 0.5}


def test_several_seeds_give_means_intervals_and_paired_differences(divvy):
    code, out, _ = divvy("synthetic", "--nodes", "1x2", "--policy", "fifo,fairshare", "--seeds", 3, "--json")
    assert code == 0
    report = json.loads(out)
    assert report["seeds"] == [0, 1, 2]
    for entry in report["policies"]:
        periods = [run["delivered_over_owed"]["period"] for run in entry["runs"]]
        assert len(set(periods)) == 3
        low, high = entry["intervals"]["delivered_over_owed.period"]
        assert low <= entry["delivered_over_owed"]["period"] <= high
        assert entry["delivered_over_owed"]["period"] == pytest.approx(sum(periods) / 3, abs=1e-5)
    rows = {row["measure"]: row for row in report["paired"]}
    row = rows["delivered_over_owed.period"]
    assert (row["policy"], row["against"], row["n"]) == ("fairshare", "fifo", 3)
    one, two = (entry["delivered_over_owed"]["period"] for entry in report["policies"])
    assert row["difference"] == pytest.approx(two - one, abs=2e-5)


def test_a_row_with_two_faults_is_one_malformed_row(divvy, trace):
    with trace.open("a", encoding="utf-8") as file:
        file.write('{"submit": -1, "runtime": -5, "gpus": 0, "account": "blue"}\n{"oops"\n')
    arguments = (trace, "--gpus", 4, "--policy", "fifo", "--warmup", "0", "--on-error")
    code, out, _ = divvy(*arguments, "skip", "--json")
    assert code == 0
    found = json.loads(out)["trace"]
    assert found["skipped"] == 2
    assert len(found["faults"]) > 2
    code, _, err = divvy(*arguments, "fail")
    assert code == 2
    assert "t.jsonl has 2 malformed rows" in err


def test_jobs_submitted_at_once_have_no_demand_over_time(divvy, tmp_path):
    path = tmp_path / "one.jsonl"
    row = {"submit": 5, "runtime": "6h", "gpus": 8, "account": "a", "min_runtime": "1h"}
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    arguments = (path, "--gpus", 8, "--policy", "budget", "--warmup", "0")
    code, out, _ = divvy(*arguments, "--json")
    assert code == 0
    report = json.loads(out)
    assert report["trace"]["demand_over_supply"] is None
    assert report["window_seconds"] == [0, 21_600]
    assert report["policies"][0]["occupancy"] == 1
    assert report["policies"][0]["delivered_over_owed"] == {"period": 1, "day": 1, "hour": 1}
    code, out, _ = divvy(*arguments, "--report", tmp_path / "out")
    assert code == 0
    assert "all submitted at once" in out
    assert "all were submitted at once" in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_a_trace_of_which_nothing_fits_says_so(divvy, tmp_path):
    path = tmp_path / "big.jsonl"
    path.write_text('{"submit": 0, "runtime": "6h", "gpus": 8, "account": "a"}\n', encoding="utf-8")
    code, _, err = divvy(path, "--gpus", 4, "--policy", "budget", "--warmup", "0")
    assert code == 2
    assert "no job of the trace ever ran" in err
    assert "--gpus" in err


def test_people_get_a_table_and_the_warnings(divvy, trace):
    with trace.open("a", encoding="utf-8") as file:
        file.write('{"submit": 800, "runtime": 60, "gpus": 99, "account": "blue"}\n{"oops"\n')
    arguments = (trace, "--gpus", 4, "--policy", "fifo", "--warmup", "0", "--on-error")
    code, out, _ = divvy(*arguments, "skip")
    assert code == 0
    assert "POLICY" in out
    assert "1 malformed row was left out" in out
    assert "t.jsonl:7" in out
    assert "1 jobs never started" in out
    code, _, err = divvy(*arguments, "fail")
    assert code == 2
    assert "t.jsonl:7" in err


def test_only_names_are_printed_when_asked(divvy, trace):
    code, out, _ = divvy(trace, "--gpus", 4, "--policy", "fifo,fifo,fairshare", "--warmup", "0", "-q")
    assert (code, out) == (0, "fifo\nfairshare\n")


def test_events_go_to_one_file_or_to_one_each(divvy, trace, tmp_path):
    one = tmp_path / "one.jsonl"
    assert divvy(trace, "--gpus", 4, "--policy", "fifo", "--warmup", "0", "--events", one)[0] == 0
    lines = [json.loads(line) for line in one.read_text(encoding="utf-8").splitlines()]
    assert {line["event"] for line in lines} >= {"capacity", "submit", "start", "finish"}
    started = next(line for line in lines if line["event"] == "start")
    assert {"t", "job", "account", "author", "gpus", "kind", "min_runtime", "protected", "nodes"} <= set(
        started
    )
    many = tmp_path / "many.jsonl"
    arguments = ("--gpus", 4, "--policy", "fifo,fairshare", "--seeds", 2, "--warmup", "0", "--events", many)
    assert divvy(trace, *arguments)[0] == 0
    assert {path.name for path in tmp_path.glob("many*")} == {
        f"many.jsonl.{policy}.{seed}" for policy in ("fifo", "fairshare") for seed in (0, 1)
    }


def test_the_same_command_gives_the_same_report(divvy, trace):
    def run():
        out = divvy(trace, "--nodes", "2x2", "--policy", POLICIES, "--warmup", "0", "--json")[1]
        report = json.loads(out)
        for entry in report["policies"]:
            del entry["wall_seconds"]
        report["paired"] = [row for row in report["paired"] if row["measure"] != "wall_seconds"]
        return report

    assert run() == run()


def test_a_budget_file_and_a_contract_file_are_used(divvy, trace, tmp_path):
    budget = tmp_path / "budget.toml"
    budget.write_text('[accounts.lab]\nshare = 80\nslurm = ["re*"]\n', encoding="utf-8")
    rules = tmp_path / "rules.toml"
    rules.write_text('declare = "zero"\n', encoding="utf-8")
    code, out, _ = divvy(
        trace,
        "--gpus",
        4,
        "--policy",
        "fifo",
        "--warmup",
        "0",
        "--accounts",
        budget,
        "--contract",
        rules,
        "--json",
    )
    assert code == 0
    report = json.loads(out)
    assert report["unclaimed"] == {"blue": 2}
    assert report["renamed"] == {"red": "lab", "blue": "unfunded"}
    assert report["contract"] == "zero"


def test_the_overlay_adds_large_gangs(divvy, tmp_path):
    path = tmp_path / "large.jsonl"
    row = {"runtime": "10h", "gpus": 8, "account": "red"}
    path.write_text(
        "".join(json.dumps(row | {"submit": n * 900}) + "\n" for n in range(200)), encoding="utf-8"
    )
    arguments = ("--nodes", "16x8", "--policy", "fifo", "--warmup", "0", "--json")
    code, out, _ = divvy(path, *arguments, "--overlay", "gangs")
    assert code == 0
    (entry,) = json.loads(out)["policies"]
    assert (
        entry["jobs"] - 200 == entry["wait_seconds"]["overlay"]["n"] == entry["wait_seconds"]["ge_32gpu"]["n"]
    )
    assert entry["jobs"] > 202
    assert json.loads(divvy(path, *arguments)[1])["policies"][0]["jobs"] == 200
    small = divvy(path, "--nodes", "2x8", "--policy", "fifo", "--warmup", "0", "--overlay", "gangs")[1]
    assert "no gang of the overlay was submitted" in small


def test_reclaim_reports_what_came_back(divvy):
    code, out, _ = divvy("reclaim", "--nodes", "2x8", "--policy", "fairshare,fifo", "--json")
    assert code == 0
    fair, first = (entry["reclaim"] for entry in json.loads(out)["policies"])
    assert 0 < fair["delivered_over_entitlement"] <= 1.5
    assert first == {"delivered_over_entitlement": 0.0, "others_minimum": 0.0}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--gpus", "4", "--policy", "best"), "budget"),
        (("--gpus", "4", "--policy", ","), "no policy"),
        (("--gpus", "4", "--policy", "fifo"), "warm-up"),
        (("--policy", "fifo"), "--gpus"),
        (("--gpus", "5", "--nodes", "2x2", "--policy", "fifo"), "4 devices"),
        (("--gpus", "4", "--warmup", "soon"), "not a duration"),
        (("--gpus", "4", "--checkpoint", "30"), "not a duration"),
        (("--gpus", "4", "--overlay", "dragons"), "gangs"),
        (("--gpus", "4", "--format", "excel"), "philly, divvy"),
        (("--gpus", "4", "--accounts", "/nowhere.toml"), "cannot be read"),
        (("--gpus", "4", "--contract", "/nowhere.toml"), "cannot be read"),
        (("--gpus", "4", "--policy", "fifo", "--warmup", "0", "--events", "/nowhere/x"), "--events"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_can(divvy, trace, arguments, says):
    code, out, err = divvy(trace, *arguments)
    assert code != 0
    assert out == ""
    assert says in err
    assert "Traceback" not in err


def test_a_missing_file_names_the_built_in_workloads(divvy):
    code, _, err = divvy("/nowhere.csv", "--gpus", 4)
    assert code != 0
    assert "synthetic, reclaim" in err


def test_a_terminal_sees_a_bar(divvy, trace, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    code, out, _ = divvy(trace, "--gpus", 4, "--policy", "fifo", "--warmup", "0")
    assert code == 0
    assert "fifo" in out
