import math
from itertools import pairwise

import numpy as np
import pytest

from divvy.sim.intervals import interval, t95
from divvy.sim.measures import window_of
from divvy.sim.overlay import Overlay, add_gangs
from divvy.sim.steps import Steps, cells, ints, quantile
from divvy.sim.synthetic import LABS, reclaim_trace, synthetic_trace
from divvy.units import DAY, HOUR


@pytest.mark.parametrize("seed", range(20))
def test_integrals_agree_with_sums_over_milliseconds(seed):
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 50, 12)
    end = start + rng.integers(0, 30, 12)
    height = rng.integers(1, 9, 12)
    steps = Steps.of_intervals(start, end, height)
    value = [int(height[(start <= t) & (t < end)].sum()) for t in range(100)]
    assert list(steps.value(np.arange(100))) == value
    grid = np.unique(rng.integers(0, 100, 6))
    expected = [sum(value[a:b]) for a, b in pairwise(grid)]
    assert list(steps.between(grid)) == expected


def test_no_steps_are_nothing():
    nothing = Steps.of_intervals(ints([]), ints([]), ints([]))
    assert list(nothing.between(ints([0, 5, 9]))) == [0, 0]


def test_cells_end_with_the_window():
    assert list(cells(10, 31, 10)) == [10, 20, 30, 31]
    assert list(cells(10, 30, 10)) == [10, 20, 30]
    assert list(cells(10, 13, 10)) == [10, 13]


def test_quantiles_are_values_that_occurred():
    values = np.array([5.0, 1.0, 3.0, 2.0, 4.0])
    assert quantile(values, 0.5) == 3
    assert quantile(values, 0.9) == 5
    assert quantile(values, 0.2) == 1
    assert quantile(np.array([1.0, np.inf]), 0.9) == math.inf
    assert math.isnan(quantile(np.array([]), 0.5))


def test_intervals_are_students():
    assert t95(4) == 2.776
    assert t95(31) == pytest.approx(2.040, abs=0.001)
    assert t95(1000) == pytest.approx(1.962, abs=0.001)
    low, high = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (low + high) / 2 == 3
    assert high - 3 == pytest.approx(2.776 * math.sqrt(2.5 / 5))
    assert all(map(math.isnan, interval([1.0])))
    assert all(map(math.isnan, interval([1.0, math.inf])))
    with pytest.raises(ValueError, match="two"):
        t95(0)


def test_the_window_ends_with_the_last_submission_unless_all_are_in_the_warm_up():
    assert window_of(10 * DAY, 20 * DAY, 7 * DAY).end == 10 * DAY
    assert window_of(5 * HOUR, 9 * DAY, 7 * DAY).end == 9 * DAY


def test_the_built_in_workload_is_twice_the_fleet_and_varied():
    trace = synthetic_trace(64)
    total = sum(trace.gpu_time().values())
    assert total / (14 * DAY * 64) == pytest.approx(2, rel=0.02)
    assert set(trace.gpu_time()) == set(LABS)
    runtimes = np.array([job.runtime for job in trace.jobs]) / 1000
    assert np.median(runtimes) == pytest.approx(1144, rel=0.05)
    assert np.quantile(runtimes, 0.9) == pytest.approx(11266, rel=0.07)
    hour = np.array([job.submit for job in trace.jobs]) % DAY // HOUR
    assert np.sum((hour >= 9) & (hour < 15)) > 2 * np.sum((hour >= 21) | (hour < 3))
    assert max(job.gpus for job in synthetic_trace(4).jobs) <= 4
    assert trace == synthetic_trace(64)


def test_ten_accounts_have_more_to_do_than_they_can_get():
    trace = reclaim_trace(32)
    assert len(trace.gpu_time()) == 10
    for time in trace.gpu_time().values():
        assert time > 0.59 * 32 * 7 * DAY
    first = {job.account: job.submit for job in reversed(trace.jobs)}
    assert sorted(first.values()) == [0] * 9 + [48 * HOUR]


def test_gangs_are_worth_the_part_that_was_asked_for():
    trace = synthetic_trace(128)
    jobs = add_gangs(trace, Overlay(), 128, seed=3)
    gangs = [job for job in jobs if job.id.startswith("gang-")]
    worth = sum(job.gpus * job.runtime for job in gangs) / sum(trace.gpu_time().values())
    assert worth == pytest.approx(0.10, abs=0.0001)
    assert {job.gpus for job in gangs} == {64, 96, 128}
    assert [job.submit for job in jobs] == sorted(job.submit for job in jobs)
    assert max(job.submit for job in gangs) <= trace.last_submission
    assert jobs != add_gangs(trace, Overlay(), 128, seed=4)


def test_gangs_never_exceed_the_fleet():
    trace = synthetic_trace(70)
    assert {job.gpus for job in add_gangs(trace, Overlay(), 70, seed=1) if job.id.startswith("gang-")} == {64}
    assert add_gangs(trace, Overlay(), 63, seed=1) == trace.jobs
