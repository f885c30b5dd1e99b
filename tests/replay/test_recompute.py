"""Every published figure, computed a second time from the events file alone, by the definitions only.

Nothing here uses the simulator's arithmetic: plain loops over seconds, hours and jobs.
"""

import json
import math
from collections import defaultdict
from itertools import count, pairwise

import pytest
from workloads import scenario

from divvy.planners.jobs.registry import PLANNERS
from divvy.sim.compare import Comparison, compare
from divvy.sim.events import event_lines
from divvy.units import DAY

POLICIES = tuple(sorted(PLANNERS))
HOUR_S, DAY_S = 3600.0, 86400.0
WARMUP_S = DAY_S


class History:
    """What an events file says."""

    def __init__(self, lines):
        self.jobs, self.runs, self.capacity = {}, [], []
        open_runs = {}
        last = -1.0
        for line in map(json.loads, lines):
            assert line["t"] >= last, "in the order of time"
            last = line["t"]
            if line["event"] == "capacity":
                self.capacity.append((line["t"], line["gpus"]))
                self.shares = line.get("shares", getattr(self, "shares", None))
                continue
            job = self.jobs.setdefault(line["job"], {"starts": []})
            if line["event"] == "submit":
                job |= line | {"submit": line["t"], "over": math.inf}
            elif line["event"] == "start":
                job["starts"].append(line["t"])
                open_runs[line["job"]] = line["t"]
            else:
                start = open_runs.pop(line["job"])
                self.runs.append((line["job"], start, line["t"], line["restore"], line["lost"], line))
                if not line.get("requeued"):
                    job["over"] = line["t"]
        assert not open_runs
        self.end = last
        self.until = max(job["submit"] for job in self.jobs.values())

    def capacity_at(self, t):
        return [gpus for at, gpus in self.capacity if at <= t][-1]


def overlap(a, b, c, d):
    return max(0.0, min(b, d) - max(a, c))


def useful(run):
    _, start, end, restore, lost, _ = run
    return start + restore, end - lost


def cells(history):
    edges = [WARMUP_S]
    while edges[-1] + HOUR_S < history.until:
        edges.append(edges[-1] + HOUR_S)
    return [*edges, history.until]


def capacity_in(history, a, b):
    edges = [t for t, _ in history.capacity] + [math.inf]
    return sum(
        gpus * overlap(t, following, a, b)
        for (t, gpus), following in zip(history.capacity, edges[1:], strict=True)
    )


def per_cell(spans, edges):
    """Return GPU-seconds per cell of (start, end, gpus) spans."""
    sums = [0.0] * (len(edges) - 1)
    for start, end, gpus in spans:
        for cell in range(len(sums)):
            sums[cell] += gpus * overlap(start, end, edges[cell], edges[cell + 1])
    return sums


def owed_and_delivered(history):
    edges = cells(history)
    offered = [capacity_in(history, a, b) for a, b in pairwise(edges)]
    table = {}
    for account, share in history.shares.items():
        mine = [j for j in history.jobs.values() if j["account"] == account and j["kind"] == "allocated"]
        demand = per_cell([(j["submit"], j["over"], j["gpus"]) for j in mine], edges)
        spans = [
            (*useful(r), r[5]["gpus"])
            for r in history.runs
            if r[5]["account"] == account and r[5]["kind"] == "allocated"
        ]
        owed = [min(share * cap, want) for cap, want in zip(offered, demand, strict=True)]
        table[account] = (owed, per_cell(spans, edges))
    return table


def capped(owed, delivered, hours):
    groups = defaultdict(lambda: [0.0, 0.0])
    for cell, (due, got) in enumerate(zip(owed, delivered, strict=True)):
        groups[cell // hours][0] += due
        groups[cell // hours][1] += got
    return sum(min(due, got) for due, got in groups.values()), sum(due for due, _ in groups.values())


def nearest_rank(values, part):
    ordered = sorted(values)
    return next(v for n, v in zip(count(1), ordered) if n >= part * len(ordered))


@pytest.fixture(scope="module")
def told():
    lines = {}
    report = compare(
        Comparison(scenario(2), POLICIES, (2,), DAY),
        iter(range(1000)).__next__,
        on_replay=lambda done: lines.setdefault(done.policy, list(event_lines(done))),
    )
    return {entry["policy"]: (entry, History(lines[entry["policy"]])) for entry in report["policies"]}


@pytest.fixture(params=POLICIES)
def pair(request, told):
    return told[request.param]


def test_delivered_over_owed(pair):
    entry, history = pair
    table = owed_and_delivered(history)
    for name, hours in (("period", 10**9), ("day", 24), ("hour", 1)):
        sums = [capped(*columns, hours) for columns in table.values()]
        figure = sum(got for got, _ in sums) / sum(due for _, due in sums)
        assert entry["delivered_over_owed"][name] == pytest.approx(figure, abs=1e-6)
    for account in entry["accounts"]:
        owed, delivered = table[account["account"]]
        assert account["owed_gpu_hours"] == pytest.approx(sum(owed) / 3600, abs=1e-5)
        assert account["delivered_gpu_hours"] == pytest.approx(sum(delivered) / 3600, abs=1e-5)
        got, due = capped(owed, delivered, 1)
        assert account["delivered_over_owed"]["hour"] == pytest.approx(got / due, abs=1e-6)


def test_the_worst_account_and_how_many_are_served(pair):
    entry, history = pair
    table = owed_and_delivered(history)
    period, hour = {}, {}
    for account, columns in table.items():
        if sum(columns[0]) >= 100 * 3600:
            got, due = capped(*columns, 10**9)
            period[account] = got / due
            got, due = capped(*columns, 1)
            hour[account] = got / due
    assert len(period) == 3
    worst = entry["worst_account"]
    assert worst["period"] == pytest.approx(min(period.values()), abs=1e-6)
    assert worst["hour"] == pytest.approx(min(hour.values()), abs=1e-6)
    assert period[worst["account"]] == pytest.approx(min(period.values()), abs=1e-6)
    assert hour[worst["hour_account"]] == pytest.approx(min(hour.values()), abs=1e-6)
    assert entry["accounts_at_95"] == [sum(v >= 0.95 for v in period.values()), len(period)]


def test_occupancy_by_walking_from_moment_to_moment(pair):
    entry, history = pair
    a, b = WARMUP_S, history.until
    moments = {a, b, *(t for t, _ in history.capacity)}
    for job in history.jobs.values():
        moments |= {job["submit"], job["over"]}
    for run in history.runs:
        moments |= {run[1], run[2], *useful(run)}
    walk = sorted(t for t in moments if a <= t <= b)
    held = contended_held = contended_useful = contended_capacity = 0.0
    for t, following in pairwise(walk):
        length = following - t
        here = sum(r[5]["gpus"] for r in history.runs if r[1] <= t < r[2])
        held += here * length
        want = sum(j["gpus"] for j in history.jobs.values() if j["submit"] <= t < j["over"])
        there = history.capacity_at(t)
        if want > there:
            contended_held += here * length
            contended_useful += length * sum(
                r[5]["gpus"] for r in history.runs if useful(r)[0] <= t < useful(r)[1]
            )
            contended_capacity += there * length
    assert entry["occupancy"] == pytest.approx(held / capacity_in(history, a, b), abs=1e-6)
    assert entry["occupancy_while_contended"] == pytest.approx(contended_held / contended_capacity, abs=1e-6)
    assert entry["useful_occupancy_while_contended"] == pytest.approx(
        contended_useful / contended_capacity, abs=1e-6
    )
    assert entry["contended_fraction"] == pytest.approx(
        contended_capacity / capacity_in(history, a, b), abs=1e-6
    )
    # What never starts asks for ever: then there is no moment without contention.
    assert 0 < entry["contended_fraction"] < 1 or entry["never_started"]


def test_losses_and_preemptions(pair):
    entry, history = pair
    a, b = WARMUP_S, history.until
    lost = held = lost_allocated = 0.0
    for _, start, end, restore, gone, line in history.runs:
        wasted = overlap(start, start + restore, a, b) + overlap(end - gone, end, a, b)
        lost += line["gpus"] * wasted
        lost_allocated += line["gpus"] * wasted * (line["kind"] == "allocated")
        held += line["gpus"] * overlap(start, end, a, b)
    ends = [r[5] for r in history.runs if a <= r[2] < b and r[5]["event"] == "preempt"]
    assert entry["preemptions"] == sum(line["cause"] != "node_lost" for line in ends)
    assert entry["node_losses"] == sum(line["cause"] == "node_lost" for line in ends)
    assert entry["lost_gpu_hours"] == pytest.approx(lost / 3600, abs=1e-5)
    assert entry["lost_allocated_gpu_hours"] == pytest.approx(lost_allocated / 3600, abs=1e-5)
    assert entry["lost_fraction"] == pytest.approx(lost / held, abs=1e-6)


def test_the_share_of_unallocated_time(pair):
    entry, history = pair
    sums = defaultdict(float)
    for run in history.runs:
        sums[run[5]["kind"]] += run[5]["gpus"] * overlap(*useful(run), WARMUP_S, history.until)
    figure = sums["unallocated"] / (sums["unallocated"] + sums["allocated"])
    assert entry["unallocated_share"] == pytest.approx(figure, abs=1e-6)


def behind(job, jobs):
    """Return whether another favoured job of the account, submitted before, was still waiting."""
    mine = [j for j in jobs[: jobs.index(job)] if j["debug"] and j["account"] == job["account"]]
    return any((j["starts"] or [math.inf])[0] > job["submit"] for j in mine)


def test_waits(pair):
    entry, history = pair
    counted = [j for j in history.jobs.values() if WARMUP_S <= j["submit"] < history.until]
    classes = {
        "all": counted,
        "debug": [j for j in counted if 0 < j["min_runtime"] <= 900 and j["gpus"] <= 8],
        "debug_favoured": [j for j in counted if j["debug"]],
        "debug_first": [j for j in counted if j["debug"] and not behind(j, list(history.jobs.values()))],
        "le_15min": [j for j in counted if j["runtime"] <= 900],
        "ge_32gpu": [j for j in counted if j["gpus"] >= 32],
    }
    for name, members in classes.items():
        told = entry["wait_seconds"][name]
        assert told["n"] == len(members)
        waits = [(j["starts"] or [math.inf])[0] - j["submit"] for j in members]
        for key, part in (("p50", 0.5), ("p90", 0.9)):
            if waits and nearest_rank(waits, part) < math.inf:
                assert told[key] == pytest.approx(nearest_rank(waits, part), abs=1e-3)
            else:
                assert told[key] is None
    assert len(classes["debug"]) > 30


def test_a_preemption_names_who_took_the_devices(told):
    _, history = told["budget"]
    taken = [r[5] for r in history.runs if r[5]["event"] == "preempt" and r[5]["cause"] == "preempted"]
    assert taken
    for line in taken:
        assert line["by"] in history.jobs
        assert line["t"] in history.jobs[line["by"]]["starts"]
        assert sum(line["nodes"].values()) == line["gpus"]


def test_events_are_counted(pair):
    entry, history = pair
    assert entry["events"] == len(history.jobs) + 2 * len(history.runs) + len(history.capacity)
