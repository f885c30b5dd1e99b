"""What a statement of a replay says besides occupancy, by hand: weights, prices, who pays of several."""

import csv
import json
import subprocess
import sys

import pytest

from divvy.fleet.budget import parse_budget
from divvy.planners.jobs.registry import create
from divvy.sim.accounts import claim
from divvy.sim.measures import Window, measure
from divvy.sim.replay import replay
from divvy.sim.scenario import Scenario, build_fleet
from divvy.sim.statement import replay_statement
from divvy.sim.traces.jsonlines import read_jsonlines

ACCOUNTS = "[accounts.a]\nshare = 50\n[accounts.b]\nshare = 50\n"
PRICED = "[policy]\nprotection_price = 2.0\n" + ACCOUNTS
FIXED = {"author": "u", "resumable": True, "time_limit": 0}
PRICES = (
    {"id": "whole", "submit": 0, "runtime": "3h", "gpus": 4, "account": "a", "min_runtime": "3h"} | FIXED,
    {"id": "half", "submit": 0, "runtime": "90m", "gpus": 4, "account": "b", "min_runtime": "3h"} | FIXED,
)


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def told(tmp_path, ending):
    trace, budget, out = (tmp_path / name for name in ("t.jsonl", "b.toml", f"out.{ending}"))
    trace.write_text(lines(PRICES))
    budget.write_text(PRICED)
    command = [sys.executable, "-m", "divvy", "simulate", str(trace), "--nodes", "1x8@H100-80GB", "-q"]
    rest = ["--policy", "budget", "--accounts", str(budget), "--warmup", "0", "--statement", str(out)]
    subprocess.run([*command, *rest], check=True, capture_output=True)
    ledger = csv.DictReader((tmp_path / "out.ledger.csv").read_text().splitlines())
    return out.read_text(), {line["id"]: line for line in ledger}


def test_charged_hours_are_hours_of_the_devices_that_are_there_whatever_these_weigh(tmp_path):
    statement, ledger = told(tmp_path, "json")
    rows = {row["account"]: row for row in json.loads(statement)["rows"]}
    assert int(ledger["1"]["weight"]) > 4, "otherwise nothing is weighed"
    assert rows["a"]["charged_gpu_hours"] == pytest.approx(4 * 3)
    assert rows["b"]["charged_gpu_hours"] == pytest.approx(4 * 1.5)
    # at twice the price, what was protected and used beyond the first hour costs once more
    assert rows["a"]["adjustments_gpu_hours"] == pytest.approx(4 * 2)
    assert rows["b"]["adjustments_gpu_hours"] == pytest.approx(4 * 0.5)


def test_every_adjustment_names_a_line_of_the_ledger_and_its_job(tmp_path):
    statement, ledger = told(tmp_path, "json")
    entries = {row["account"]: row["entries"] for row in json.loads(statement)["rows"] if row["leaf"]}
    for account, job in (("a", "whole"), ("b", "half")):
        (entry,) = entries[account]
        assert entry["cause"] == f"protection-price of {job}"
        line = ledger[str(entry["id"])]
        assert (line["account"], line["job"], line["cause"]) == (account, job, "protection-price")
        assert int(line["charge"]) == entry["charge"]


def test_the_hours_of_a_table_name_the_adjustments_too(tmp_path):
    statement, ledger = told(tmp_path, "csv")
    hours = [line for line in csv.DictReader(statement.splitlines()) if float(line["adjustments"])]
    assert {line["account"] for line in hours} == {"a", "b"}
    for line in hours:
        found = ledger[line["ledger_last"]]
        assert (found["cause"], found["account"]) == ("protection-price", line["account"])


def test_a_job_of_several_accounts_is_the_demand_of_the_one_that_paid():
    rows = (
        {"id": "old", "submit": 0, "runtime": "30h", "gpus": 8, "account": "a", "min_runtime": "15m"} | FIXED,
        {"id": "new", "submit": 93600, "runtime": "2h", "gpus": 8, "account": "a", "min_runtime": "15m"}
        | FIXED
        | {"or_accounts": ["b"]},
    )
    trace = read_jsonlines(lines(rows).encode(), "t")
    budget, claims = claim(trace, parse_budget(ACCOUNTS))
    done = replay(Scenario(trace, build_fleet(None, "2x8"), budget, claims), create("budget"))
    assert [done.record.payer[run] for run in range(2)] == ["", "b"], "a has had its share, b pays"
    window = Window(0, done.end)
    accounts = {figures.account: figures for figures in measure(done, window).accounts}
    assert (accounts["a"].owed, accounts["a"].delivered) == pytest.approx((8 * 30, 8 * 30))
    assert (accounts["b"].owed, accounts["b"].delivered) == pytest.approx((8 * 2, 8 * 2))
    statement, _ = replay_statement(done, window)
    for row in statement.rows:
        if row.leaf:
            assert row.owed.sum() / 3_600_000 == pytest.approx(accounts[row.account].owed)
