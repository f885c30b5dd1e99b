import csv
import json
import subprocess
import sys

import pytest

from divvy.control.statement_document import document
from divvy.fleet.budget import Policy
from divvy.planners.jobs.registry import create
from divvy.sim.accounts import equal_shares
from divvy.sim.measures import measure, window_of
from divvy.sim.replay import replay
from divvy.sim.scenario import Scenario, build_fleet
from divvy.sim.statement import replay_statement
from divvy.sim.synthetic import synthetic_trace
from divvy.sim.traces.trace import Trace
from divvy.units import DAY


@pytest.fixture(scope="module", params=["2x8", "1x8@H100-80GB,1x8@A100-80GB"])
def made(request):
    trace = synthetic_trace(16)
    scarce = replace_models if "," in request.param else None
    jobs = (job for job in trace.jobs if job.submit < 2 * DAY)
    short = Trace(tuple(map(scarce, jobs) if scarce else jobs))
    budget, claims = equal_shares(short, Policy())
    scenario = Scenario(short, build_fleet(None, request.param), budget, claims)
    run = replay(scenario, create("budget"))
    window = window_of(short.last_submission, run.end, DAY // 2)
    return run, window


def replace_models(job):
    """Let half of the accounts ask for one model only, so that shares are not all feasible."""
    picky = sum(job.account.encode()) % 2 == 0 and job.gpus <= 8
    return job._replace(model="H100-80GB") if picky else job


def test_the_statement_of_a_replay_says_what_its_measures_say(made):
    run, window = made
    figures = measure(run, window)
    statement, _ = replay_statement(run, window)
    told = document(statement, hours=True)
    rows = {row["account"]: row for row in told["rows"]}
    assert figures.preemptions > 0, "otherwise nothing would be lost or restored"
    for account in figures.accounts:
        row = rows[account.account]
        assert row["owed_gpu_hours"] == pytest.approx(account.owed)
        assert row["delivered_gpu_hours"] == pytest.approx(account.delivered)
        assert row["delivered_over_owed"] == pytest.approx(account.period)
        assert row["delivered_over_owed_hourly"] == pytest.approx(account.hour)
    assert told["totals"]["delivered_over_owed"] == pytest.approx(figures.period)
    assert told["totals"]["delivered_over_owed_hourly"] == pytest.approx(figures.hour)
    assert told["totals"]["lost_gpu_hours"] == pytest.approx(figures.lost_allocated)


def test_charges_are_those_of_the_ledger(made):
    run, _ = made
    whole, _ = replay_statement(run, type(made[1])(0, run.end))
    for row in (row for row in whole.rows if row.leaf):
        mine = [
            entry.charge
            for entry in run.ledger
            if entry.account == row.account and entry.allocated and entry.gpus
        ]
        assert row.charged == sum(mine)


@pytest.mark.parametrize("ending", ["csv", "json", "html"])
def test_simulate_writes_the_statement_and_its_ledger(tmp_path, ending):
    trace = tmp_path / "t.jsonl"
    rows = [
        {"submit": 600 * n, "id": f"j{n}", "account": "ab"[n % 2], "gpus": 1 + n % 2, "runtime": 5000}
        for n in range(24)
    ]
    trace.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    out = tmp_path / f"out.{ending}"
    command = [sys.executable, "-m", "divvy", "simulate", str(trace), "--gpus", "4", "--warmup", "0", "-q"]
    one = [*command, "--policy", "budget", "--statement", str(out)]
    subprocess.run(one, check=True, capture_output=True)
    ledger = {
        line["id"]: line for line in csv.DictReader((tmp_path / "out.ledger.csv").read_text().splitlines())
    }
    assert ledger
    assert out.stat().st_size > 1_000
    if ending == "json":
        told = json.loads(out.read_text())
        assert (told["schema"], told["policy"], told["seed"]) == ("divvy.statement/1", "budget", 0)
        for row in told["rows"]:
            for hour in row["hours"]:
                if hour["ledger"]["count"]:
                    assert ledger[str(hour["ledger"]["first"])]["account"] == row["account"]
    two = [*command, "--policy", "budget,fifo", "--statement", str(out)]
    subprocess.run(two, check=True, capture_output=True)
    assert {f"out.budget.0.{ending}", f"out.fifo.0.{ending}"} <= {path.name for path in tmp_path.iterdir()}
    bad = subprocess.run([*command, "--statement", "out.pdf"], capture_output=True, text=True, check=False)
    assert bad.returncode == 2
    assert "statement-format" in bad.stderr
