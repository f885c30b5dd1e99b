"""The simulator against closed forms of queueing theory: single-device jobs under fifo."""

import math
import random
from decimal import Decimal

import numpy as np
import pytest

from divvy.fleet.account import AccountSpec, build_tree
from divvy.fleet.budget import Budget, Policy
from divvy.fleet.node import Node
from divvy.planners.jobs.registry import create
from divvy.sim.accounts import Claims
from divvy.sim.engine import Pace
from divvy.sim.replay import replay
from divvy.sim.scenario import Scenario
from divvy.sim.traces.trace import Trace, TraceJob
from divvy.units import HOUR

SERVICE = HOUR
JOBS = 12_000


def queue(servers, load, service, seed=7):
    """Return waits and times in the system of a queue with Poisson arrivals, in mean services."""
    rng = random.Random(seed)
    at, made = 0.0, []
    for number in range(JOBS):
        runtime = max(1, round(service(rng) * SERVICE))
        made.append(
            TraceJob(f"j{number}", int(at), runtime, 1, "a", "u", 0, resumable=True, time_limit=runtime)
        )
        at += rng.expovariate(load * servers / SERVICE)
    budget = Budget(Policy(), build_tree([AccountSpec("a", Decimal(100))]))
    done = replay(
        Scenario(Trace(tuple(made)), (Node("pool", servers),), budget, Claims({"a": "a"}, {}), pace=Pace(0)),
        create("fifo"),
    )
    assert all(over >= 0 for over in done.record.over)
    submit = np.array(done.workload.submit)
    wait = np.array(done.record.first_start) - submit
    stay = np.array(done.record.over) - submit
    settled = slice(JOBS // 10, None)
    return wait[settled] / SERVICE, stay[settled] / SERVICE, submit[settled] / SERVICE


def erlang_c(servers, load):
    offered = servers * load
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) / (1 - load)
    return last / (sum(terms) + last)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.7)])
def test_exponential_services_wait_as_erlang_says(servers, load):
    wait, _, _ = queue(servers, load, lambda rng: rng.expovariate(1))
    waits_at_all = erlang_c(servers, load)
    mean = waits_at_all / (servers * (1 - load))
    assert np.mean(wait > 0) == pytest.approx(waits_at_all, rel=0.05)
    assert wait.mean() == pytest.approx(mean, rel=0.08)
    p90 = math.log(waits_at_all / 0.1) / (servers * (1 - load))
    assert np.quantile(wait, 0.9) == pytest.approx(p90, rel=0.1)


def test_constant_services_wait_half_as_long():
    wait, _, _ = queue(1, 0.6, lambda _rng: 1.0)
    assert wait.mean() == pytest.approx(0.6 / (2 * 0.4), rel=0.08)


def test_the_number_in_the_system_is_arrivals_times_stay():
    _, stay, submit = queue(4, 0.7, lambda rng: rng.expovariate(1), seed=11)
    start, end = submit[0], submit[-1]
    leave = submit + stay
    inside = np.sum(np.minimum(leave, end) - np.maximum(submit, start)) / (end - start)
    rate = len(stay) / (end - start)
    assert inside == pytest.approx(rate * stay.mean(), rel=0.01)
