"""The replay against closed forms of queueing theory."""

from __future__ import annotations

from math import exp, lgamma, log

import numpy as np
import pytest

from divvy.perf.traffic import from_weights
from divvy.planners.queries.registry import find_rule
from divvy.sim.queries.arrivals import make_stream
from divvy.sim.queries.kernel import Load, replay
from divvy.sim.queries.twin import replay_plainly

TIME_US = 10_000
FIXED = from_weights({1: 1.0})


def mean_wait_seconds(servers, load, queries, seeds):
    rule, params = find_rule("fifs")
    service = np.array([[-1, TIME_US]] * servers, np.int64)
    rate = load * servers * 1e6 / TIME_US
    waits = []
    for seed in seeds:
        traffic = make_stream(FIXED, queries, seed).at(rate)
        run = replay(rule, params, traffic, 10**9, service, np.ones(servers))
        waits.append((run.start - traffic.arrivals).mean() / 1e6)
    return float(np.mean(waits))


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7, 0.85])
def test_m_d_1(load):
    expected = load * TIME_US / 1e6 / (2 * (1 - load))  # Pollaczek and Khinchine
    assert mean_wait_seconds(1, load, 400_000, range(4)) == pytest.approx(expected, rel=0.02)


def poisson(mean, n):
    return exp(n * log(mean) - mean - lgamma(n + 1))


def crommelin_mean_wait(servers, load):
    """Mean wait of M/D/c in service times (Crommelin 1932, as a series)."""
    offered = servers * load
    return sum(
        sum(poisson(k * offered, n) for n in range(k * servers, k * servers + 300))
        - sum(poisson(k * offered, n) for n in range(k * servers + 1, k * servers + 300)) / load
        for k in range(1, 300)
    )


@pytest.mark.parametrize(("servers", "load"), [(2, 0.6), (4, 0.7), (8, 0.8)])
def test_m_d_c(servers, load):
    found = mean_wait_seconds(servers, load, 400_000, range(4)) / (TIME_US / 1e6)
    assert found == pytest.approx(crommelin_mean_wait(servers, load), rel=0.02)


def test_the_series_agrees_with_the_closed_form_of_one_server():
    assert crommelin_mean_wait(1, 0.5) == pytest.approx(0.5 / (2 * (1 - 0.5)), rel=1e-6)


def test_littles_law_and_work_is_conserved():
    rule, params = find_rule("fifs")
    service = np.array([[-1, TIME_US]] * 3, np.int64)
    traffic = make_stream(FIXED, 50_000, 1).at(200.0)
    run = replay(rule, params, traffic, 10**9, service, np.ones(3))
    horizon = run.finish.max()
    in_system = sum(
        ((run.finish > t) & (traffic.arrivals <= t)).sum() for t in range(0, int(horizon), 997_001)
    )
    samples = len(range(0, int(horizon), 997_001))
    rate = 50_000 / horizon
    mean_time = (run.finish - traffic.arrivals).mean()
    assert in_system / samples == pytest.approx(rate * mean_time, rel=0.1)
    assert (run.finish - run.start).sum() == 50_000 * TIME_US


def test_the_last_query_of_a_stream_is_served_as_any_other():
    """The cheap slice is too slow for it: the dear one, as idle, takes it, though nothing comes after it."""
    rule, params = find_rule("divvy")
    load = Load(np.array([0], np.int64), np.array([1], np.int64), np.zeros(1, np.int64))
    service, price = np.array([[-1, 90_000], [-1, 20_000]], np.int64), np.array([1.0, 7.0])
    for way in (replay, replay_plainly):
        run = way(rule, params, load, 30_000, service, price)
        assert (run.chosen.tolist(), run.finish.tolist()) == ([1], [20_000])
