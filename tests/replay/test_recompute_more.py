"""The figures of the benchmarks, from the events alone: the reclaim scenario, and what a trick brought."""

import json
import math
from collections import defaultdict
from statistics import fmean

import pytest

from divvy.planners.jobs.registry import create
from divvy.sim.accounts import equal_shares
from divvy.sim.events import event_lines
from divvy.sim.experiment import part_of
from divvy.sim.gaming import Game, play
from divvy.sim.reclaim import reclaim_scenario, reclaimed
from divvy.sim.replay import replay
from divvy.sim.scenario import Scenario, build_fleet
from divvy.sim.traces.trace import Trace, TraceJob
from divvy.sim.tricks import LEAD, play_trick
from divvy.units import HOUR, MINUTE

JOBS = tuple(
    TraceJob(
        f"j{n:03d}", n * 12 * MINUTE, (1 + n % 5) * HOUR, (1, 1, 2, 4)[n % 4], ("red", "red", "blue")[n % 3]
    )
    for n in range(160)
)


def runs_of(lines):
    """Yield start, end, restore, lost and the line of every run that an events file tells of."""
    begun = {}
    for line in lines:
        if line["event"] == "start":
            begun[line["job"]] = line
        elif line["event"] in ("preempt", "finish"):
            yield begun.pop(line["job"])["t"], line["t"], line["restore"], line["lost"], line
    for line in begun.values():
        yield line["t"], None, line["restore"], 0.0, line


def overlap(a, b, c, d):
    return max(0.0, min(b, d) - max(a, c))


@pytest.mark.parametrize("policy", ["budget", "static", "kai"])
def test_the_reclaim_scenario(policy):
    done = replay(reclaim_scenario(build_fleet(None, "2x8")), create(policy))
    lines = list(map(json.loads, event_lines(done)))
    week, share = 7 * 24 * 3600.0, lines[0]["gpus"] / 10
    got, held = 0.0, defaultdict(lambda: [0.0] * 168)
    for start, end, restore, lost, line in runs_of(lines):
        if line["kind"] != "allocated":
            continue
        stop = week if end is None else end
        if line["account"] == "team10":
            got += line["gpus"] * overlap(start + restore, stop - lost, 0, week)
        else:
            for hour in range(168):
                held[line["account"]][hour] += line["gpus"] * overlap(
                    start, stop, hour * 3600, hour * 3600 + 3600
                )
    told = reclaimed(done)
    assert told["delivered_over_entitlement"] == pytest.approx(got / (share * week), rel=1e-6)
    least = min(min(hours[1:]) for hours in held.values()) / (share * 3600)
    assert told["others_minimum"] == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("trick", ["honest", "all 8 h", "split jobs", "sleepers", "zero-minimum harvesting"])
def test_what_a_trick_brought(trick):
    trace = Trace(JOBS)
    game = Game("budget", 0, "1x8", trick, "heavy", days=(0, 2), warmup=6 * HOUR)
    told = play(game, trace, lambda: 0.0)
    part = part_of(trace, game.days)
    budget, claims = equal_shares(part)
    scenario = Scenario(part, build_fleet(None, "1x8"), budget, claims, until=part.last_submission)
    honest = scenario.workload(0)
    workload, rows = play_trick(honest, trick, lambda spec: spec.account == "red", budget.policy)
    lines = list(map(json.loads, event_lines(replay(scenario, create("budget"), 0, workload=workload))))
    wish = {one.spec.id: honest.spec[one.wish].id for one in rows}
    end = part.last_submission / 1000
    hours, done, over = defaultdict(float), defaultdict(float), {}
    for start, stop, restore, lost, line in runs_of(lines):
        last = end if stop is None else stop
        worked = last - lost - start - restore
        if line["account"] == "red":
            parked = max(0.0, (LEAD / 1000 if trick == "sleepers" else 0.0) - done[line["job"]])
            useful = overlap(start + restore + parked, last - lost, 6 * 3600, end)
            hours[line["kind"]] += line["gpus"] * useful / 3600
        done[line["job"]] += worked
        if stop is not None and not line.get("requeued"):
            over.setdefault(wish[line["job"]], []).append(stop)
    assert told["account.allocated"] == pytest.approx(hours["allocated"], abs=1e-6)
    assert told["account.unallocated"] == pytest.approx(hours["unallocated"], abs=1e-6)
    pieces = defaultdict(int)
    for one in rows:
        pieces[wish[one.spec.id]] += 1
    logs = []
    for row, spec in enumerate(honest.spec):
        at = honest.submit[row] / 1000
        if spec.account == "red" and at >= 6 * 3600:
            ended = over.get(spec.id, [])
            last = max(ended) if len(ended) == pieces[spec.id] else end
            logs.append(math.log(max(1.0, (last - at) / max(honest.runtime[row] / 1000, 900))))
    assert told["account.slowdown"] == pytest.approx(math.exp(fmean(logs)), rel=1e-9)
    assert told["account.jobs"] == len(logs)
