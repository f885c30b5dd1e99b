"""The same jobs under two budgets: paired job by job, and recomputable from the two events files."""

import json
from decimal import Decimal
from statistics import fmean

import pytest

from divvy.fleet.account import AccountSpec, build_tree
from divvy.fleet.budget import Budget, Policy
from divvy.sim.accounts import Claims
from divvy.sim.compare import Comparison, compare
from divvy.sim.events import event_lines
from divvy.sim.measures import window_of
from divvy.sim.scenario import Scenario, build_fleet
from divvy.sim.traces.trace import Trace, TraceJob
from divvy.sim.whatif import Arm, side_of, whatif
from divvy.units import HOUR, MINUTE

JOBS = tuple(
    TraceJob(
        f"j{n:03d}",
        n * 20 * MINUTE,
        (1 + n % 5) * HOUR,
        1 + n % 3,
        ("red", "red", "blue")[n % 3],
        min_runtime=(n % 4) * HOUR // 2,
    )
    for n in range(150)
)


def arm(name, policies, seeds, **shares):
    budget = Budget(
        Policy(), build_tree([AccountSpec(path, Decimal(share)) for path, share in shares.items()])
    )
    scenario = Scenario(
        Trace(JOBS), build_fleet(None, "1x4"), budget, Claims({"red": "red", "blue": "blue"}, {})
    )
    sides, lines = {}, {}

    def keep(run):
        sides[run.policy, run.seed] = side_of(
            run, window_of(scenario.trace.last_submission, run.end, 5 * HOUR)
        )
        lines[run.policy, run.seed] = [json.loads(line) for line in event_lines(run)]

    compare(Comparison(scenario, policies, seeds, 5 * HOUR), lambda: 0.0, on_replay=keep)
    return Arm(name, scenario, sides), lines


@pytest.fixture(scope="module")
def question():
    policies, seeds = ("budget", "static"), (0, 1)
    one, before = arm("one", policies, seeds, red=75, blue=25)
    two, after = arm("two", policies, seeds, red=25, blue=75)
    return whatif([one, two], policies, seeds), before, after


def waits(lines):
    submitted = {line["job"]: line for line in lines if line["event"] == "submit"}
    first = {}
    for line in lines:
        if line["event"] == "start":
            first.setdefault(line["job"], line["t"])
    end = lines[-1]["t"]
    counted = {
        job: line
        for job, line in submitted.items()
        if 5 * 3600 <= line["t"] < max(x["t"] for x in submitted.values())
    }
    return {job: first.get(job, end) - line["t"] for job, line in counted.items()}


@pytest.mark.parametrize("policy", ["budget", "static"])
def test_every_figure_follows_from_the_two_events_files(question, policy):
    entries, before, after = question
    entry = next(entry for entry in entries if entry["policy"] == policy)
    assert (entry["accounts"], entry["against"], entry["n"]) == ("two", "one", 2)
    account = {job.id: job.account for job in JOBS}
    for told in entry["by_account"]:
        means, medians, longer, shorter = [], [], [], []
        for seed in (0, 1):
            one, two = waits(before[policy, seed]), waits(after[policy, seed])
            assert set(one) == set(two)
            gaps = [two[job] - one[job] for job in one if account[job] == told["account"]]
            assert told["jobs"] == len(gaps)
            means.append(fmean(gaps))
            ordered = sorted(gaps)
            medians.append(ordered[-(-len(gaps) // 2) - 1])
            longer.append(sum(gap >= 60 for gap in gaps))
            shorter.append(sum(gap <= -60 for gap in gaps))
        assert told["wait_difference_seconds"]["mean"] == pytest.approx(fmean(means), abs=1e-2)
        assert told["wait_difference_seconds"]["median"] == pytest.approx(fmean(medians), abs=1e-2)
        assert told["longer"] == fmean(longer)
        assert told["shorter"] == fmean(shorter)
        assert told["longer"] + told["shorter"] + told["same"] == told["jobs"]


def test_who_gets_more_of_the_fleet_gains(question):
    entry = next(entry for entry in question[0] if entry["policy"] == "static")
    gains = {told["account"]: told for told in entry["by_account"]}
    assert (
        gains["red"]["charged_gain_gpu_hours"]["mean"] < 0 < gains["blue"]["charged_gain_gpu_hours"]["mean"]
    )
    assert gains["red"]["share"] == [0.75, 0.25]
    assert gains["red"]["longer"] > gains["red"]["shorter"]
    assert gains["blue"]["shorter"] > gains["blue"]["longer"]
    assert all(told["account"] == "red" for told in entry["waits_much_longer"])
    json.dumps(entry, allow_nan=False)
