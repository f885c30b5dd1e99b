"""The desk of a live router decides as the replay does, and loses nothing when slices come and go."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from divvy.fleet.mig.skus import find_sku
from divvy.perf.fitted import fitted_profile
from divvy.perf.traffic import lognormal
from divvy.planners.queries.desk import DOWN, Desk, Query, Slot
from divvy.planners.queries.registry import RULES, find_rule
from divvy.planners.slices.base import Request
from divvy.sim.queries.arrivals import make_stream
from divvy.sim.queries.judge import service_table
from divvy.sim.queries.kernel import replay

SLICES = (1, 1, 2, 3, 7)
PROFILE = fitted_profile("resnet50")
SLO = 20_000


def run_live(rule_text, load, slices=SLICES):
    """Run queries through a desk with slices that take exactly the profile's time; return the finish times."""
    rule, params = find_rule(rule_text)
    desk = Desk(PROFILE, 32, rule, params)
    desk.declare({f"{i}": Slot(gpcs) for i, gpcs in enumerate(slices)}, 0)
    finish, ends, queries = np.full(load.arrivals.size, -1), [], {}

    def start(orders):
        for name, query in orders:
            time = PROFILE.latency_us(slices[int(name)], query.batch)
            heapq.heappush(ends, (clock[0] + time, int(name), id(query), name, query))

    clock = [0]

    def until(now):
        while ends and ends[0][0] <= now:
            clock[0], _, _, name, query = heapq.heappop(ends)
            finish[queries[id(query)]] = clock[0]
            start(desk.end(name, query, clock[0], good=True))

    alive = []
    for number, (now, batch) in enumerate(zip(load.arrivals.tolist(), load.batches.tolist(), strict=True)):
        until(now - 1)
        clock[0] = now
        query = Query(batch, now, SLO)
        alive.append(query)
        queries[id(query)] = number
        start(desk.arrive(query, now))
    until(1 << 60)
    assert not desk.waiting
    return finish


@pytest.mark.parametrize("rule", [*RULES, "divvy:near=1.3,growth=10,rescue=0.2"])
def test_the_desk_serves_as_the_replay_does(rule):
    load = make_stream(lognormal(4, 0.9, 32), 600, 7).at(260.0)
    request = Request(find_sku("A100-80GB"), 2, PROFILE, lognormal(4, 0.9, 32), SLO)
    table = service_table(request, SLICES)
    expected = replay(*find_rule(rule), load, SLO, table, np.array(SLICES, float))
    live = run_live(rule, load) - load.arrivals
    wanted = expected.finish - load.arrivals
    assert (live >= 0).all()
    for percent in (50, 95, 99):
        tolerance = 0.2 if rule == "pow2" else 0.05  # pow2 draws its own numbers
        assert np.percentile(live, percent) == pytest.approx(np.percentile(wanted, percent), rel=tolerance)


@pytest.mark.parametrize("rule", ["divvy", "elsa", "fifs"])
def test_a_slice_that_fails_or_drains_leaves_its_queries_to_the_others(rule):
    desk = Desk(PROFILE, 32, *find_rule(rule))
    desk.declare({"a": Slot(7), "b": Slot(3)}, 0)
    queries = [Query(1, 0, 1_000_000) for _ in range(6)]
    sent = [order for query in queries for order in desk.arrive(query, 0)]
    busy = dict(sent)
    victim = next(iter(busy))
    other = "b" if victim == "a" else "a"
    lost = busy[victim]
    orders = desk.end(victim, lost, 10, good=False)
    orders += desk.eject(victim, 10)
    lost.avoid = victim
    orders = [o for o in orders if o[0] != victim or o[1] is lost]
    orders += desk.arrive(lost, 10)
    assert desk.posts[victim].state == DOWN
    done, now = 0, 10
    while desk.posts[other].running is not None:
        now += 10_000
        done += 1
        desk.end(other, desk.posts[other].running, now, good=True)
    assert not desk.waiting
    assert desk.posts[other].served == done >= 4
    desk.admit(victim, now)
    desk.declare({victim: Slot(7)}, now)
    assert set(desk.posts) == {victim}


def test_a_query_that_is_withdrawn_is_not_sent_and_one_that_fits_nowhere_is_known():
    desk = Desk(PROFILE, 32, *find_rule("divvy"))
    assert not desk.runs_somewhere(1)
    desk.declare({"a": Slot(7)}, 0)
    first, second = Query(1, 0, SLO), Query(1, 0, SLO)
    assert desk.arrive(first, 0) == [("a", first)] and desk.arrive(second, 0) == []
    assert desk.withdraw(second, 1) and not desk.withdraw(first, 1)
    assert desk.end("a", first, 5_000, good=True) == []
    assert desk.runs_somewhere(32) and not desk.runs_somewhere(33)
