import numpy as np
import pytest

from divvy.control.codec import state_document
from divvy.control.state import FleetState
from divvy.fleet.budget import Policy, parse_budget
from divvy.fleet.event import NodeChanged, Placed, Started, Submitted
from divvy.fleet.job import JobSpec
from divvy.fleet.node import Node
from divvy.planners.jobs.registry import create
from divvy.sim.accounts import equal_shares
from divvy.sim.compare import Comparison, compare
from divvy.sim.foresight.interval import start_intervals
from divvy.sim.foresight.past import Arrival, Durations, Ended, Past, future
from divvy.sim.foresight.watch import Watch
from divvy.sim.scenario import Scenario, build_fleet
from divvy.sim.traces.trace import Trace, TraceJob
from divvy.units import DAY, HOUR, MINUTE

BUDGET = parse_budget("[accounts.a]\nshare = 50\n[accounts.b]\nshare = 50\n")
NOW = 100 * HOUR


def spec(name, account="a", gpus=4, minimum=HOUR, limit=2 * HOUR, author="ada"):
    return JobSpec(name, account, author, gpus, minimum, time_limit=limit)


def crowded(waiting):
    """One node of 4 devices, one protected run that began half an hour ago, some that wait."""
    state = FleetState(BUDGET, epoch=0)
    state.apply(NodeChanged(0, Node("n", 4)))
    state.apply(Submitted(NOW - HOUR, spec("running")))
    state.apply(Placed(NOW - 30 * MINUTE, "running", (("n", 4),), True))
    state.apply(Started(NOW - 30 * MINUTE, "running"))
    for each in waiting:
        state.apply(Submitted(NOW - MINUTE, each))
    return state_document(state.snapshot)


def ended(*minutes):
    return [Ended(spec(f"e{n}"), minute * MINUTE) for n, minute in enumerate(minutes)]


def test_a_job_starts_when_the_one_before_it_ends():
    past = Past(ended(*[60] * 30), [], NOW - DAY, NOW)
    found = start_intervals(crowded([spec("next")]), lambda: create("budget"), past, ["next"], futures=8)
    assert found["next"].p50 == found["next"].p90 == NOW + 30 * MINUTE, "all like it ran for an hour"
    assert (found["next"].futures, found["next"].seen) == (8, 8)


def test_the_width_is_that_of_what_is_not_known():
    past = Past(ended(*range(31, 91)), [], NOW - DAY, NOW)
    found = start_intervals(crowded([spec("next")]), lambda: create("budget"), past, ["next"], futures=30)
    low, high = (found["next"][place] - NOW for place in (0, 1))
    assert 10 * MINUTE < low < 50 * MINUTE
    assert low < high <= 60 * MINUTE
    again = start_intervals(crowded([spec("next")]), lambda: create("budget"), past, ["next"], futures=30)
    assert again == found, "the same seed gives the same answer"


def test_the_second_in_line_starts_later_and_submissions_to_come_are_counted():
    jobs = [spec("first"), spec("second", author="bob")]
    past = Past(ended(*[60] * 30), [], NOW - DAY, NOW)
    calm = start_intervals(crowded(jobs), lambda: create("fifo"), past, ["first", "second"], futures=4)
    assert calm["second"].p50 > calm["first"].p50
    urgent = [
        Arrival(NOW - DAY + n * HOUR, spec(f"x{n}", "b", minimum=30 * MINUTE), debug=False) for n in range(24)
    ]
    busy = Past(ended(*[60] * 30), urgent, NOW - DAY, NOW)
    other = start_intervals(crowded(jobs), lambda: create("budget"), busy, ["second"], futures=4)
    alone = start_intervals(crowded(jobs), lambda: create("budget"), past, ["second"], futures=4)
    assert other["second"].p90 > alone["second"].p90


def test_beyond_the_horizon_it_is_finite_and_told():
    crowd = [spec(f"w{n:03d}") for n in range(40)]
    past = Past(ended(*[60] * 30), [], NOW - DAY, NOW)
    found = start_intervals(
        crowded(crowd), lambda: create("budget"), past, ["w039"], futures=6, horizon=3 * HOUR
    )["w039"]
    assert found.seen == 0
    assert NOW + 3 * HOUR < found.p50 <= found.p90 < NOW + 60 * DAY


def test_a_state_is_not_changed_by_looking_ahead():
    document = crowded([spec("next")])
    before = repr(document)
    start_intervals(document, lambda: create("budget"), Past(ended(60), [], 0, NOW), ["next"], futures=2)
    assert repr(document) == before


def test_enough_ends_with_what_there_is():
    past = Past(ended(60), [], NOW - DAY, NOW)
    asked = []

    def enough():
        asked.append(1)
        return True

    assert start_intervals(crowded([spec("x")]), lambda: create("budget"), past, ["x"], enough=enough) == {}
    assert asked


def test_durations_follow_what_is_alike_and_what_has_been_survived():
    generator = np.random.default_rng(1)
    short = [Ended(spec(f"s{n}", author="ada", limit=10 * MINUTE), 5 * MINUTE) for n in range(50)]
    long = [Ended(spec(f"l{n}", author="bob", limit=10 * HOUR), 8 * HOUR) for n in range(50)]
    durations = Durations(short + long)
    assert durations.draw(spec("x", author="ada", limit=20 * MINUTE), 0, generator) == 10 * MINUTE, (
        "half its limit"
    )
    assert durations.draw(spec("x", author="bob", limit=10 * HOUR), HOUR, generator) == 7 * HOUR
    assert durations.draw(spec("x", author="bob", limit=10 * HOUR), 9 * HOUR, generator) <= HOUR
    assert Durations([]).draw(spec("x", limit=0), 0, generator) > 0


def test_the_future_is_the_past_again_at_the_same_time_of_day():
    generator = np.random.default_rng(2)
    arrivals = [Arrival(NOW - 3 * DAY + n * HOUR, spec(f"p{n}"), debug=False) for n in range(0, 72, 6)]
    made = future(Past([], arrivals, NOW - 3 * DAY, NOW), 2 * DAY, generator)
    assert [arrival.at for arrival in made] == sorted(arrival.at for arrival in made)
    assert {(arrival.at - NOW) % (6 * HOUR) for arrival in made} == {0}
    assert len(made) == pytest.approx(8, abs=1)
    assert len({arrival.spec.id for arrival in made}) == len(made)
    assert future(Past([], [], 0, NOW), DAY, generator) == []


def test_simulate_measures_start_intervals_and_leaves_the_replay_as_it_is():
    rng = np.random.default_rng(7)
    at = np.cumsum(rng.exponential(400, 400)).astype(int)
    jobs = tuple(
        TraceJob(f"j{n}", int(t) * 1000, int(rng.lognormal(7, 1)) * 1000, 1 + n % 3, "ab"[n % 2])
        for n, t in enumerate(at - at[0])
    )
    trace = Trace(jobs)
    budget, claims = equal_shares(trace, Policy())
    scenario = Scenario(trace, build_fleet(None, "2x4"), budget, claims)
    plain = Comparison(scenario, ("budget",), (0,), 6 * HOUR)
    watched = Comparison(scenario, ("budget",), (0,), 6 * HOUR, watch=Watch(6, 4, 4, 6 * HOUR))
    one, other = (compare(each, lambda: 0.0)["policies"][0] for each in (plain, watched))
    found = other.pop("start_interval")
    assert one.pop("start_interval") is None
    assert one == other
    assert 0 <= found["coverage"] <= 1
    assert found["n"] > 0
    assert found["median_width_seconds"] >= 0
