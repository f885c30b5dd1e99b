"""The replay kernel and its plain twin agree to the bit, for every rule."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divvy.planners.queries.registry import RULES, find_rule
from divvy.sim.queries.kernel import Load, replay
from divvy.sim.queries.twin import replay_plainly

SPECS = [*RULES, "elsa:alpha=1.3,beta=0.7", "divvy:near=2,growth=0.5", "divvy:batching=1", "divvy:rescue=1"]


@st.composite
def cases(draw):
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    slices = int(generator.integers(1, 7))
    widest = int(generator.integers(1, 9))
    n = int(generator.integers(1, 120))
    sizes = np.sort(generator.choice([1, 2, 3, 4, 7], slices))
    base = generator.integers(1, 60, widest + 1)
    service = np.maximum(base[None, :] * 12 // sizes[:, None], 1).astype(np.int64)
    holes = generator.random(service.shape) < 0.1
    service[holes] = -1
    gap = int(generator.integers(1, 60))
    arrivals = np.cumsum(generator.integers(0, gap, n)).astype(np.int64)
    batches = generator.integers(1, widest + 1, n).astype(np.int64)
    slo = int(generator.integers(20, 900))
    price = sizes * generator.choice([1.0, 0.7, 1.3], slices)
    return Load(arrivals, batches, generator.integers(0, 1 << 40, n)), slo, service, price


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_kernel_and_twin_agree(spec, case):
    load, slo, service, price = case
    rule, params = find_rule(spec)
    fast = replay(rule, params, load, slo, service, price)
    slow = replay_plainly(rule, params, load, slo, service, price)
    np.testing.assert_array_equal(fast.chosen, slow.chosen)
    np.testing.assert_array_equal(fast.start, slow.start)
    np.testing.assert_array_equal(fast.finish, slow.finish)


@settings(max_examples=60, deadline=None)
@given(case=cases(), spec=st.sampled_from(SPECS))
def test_every_query_is_served_once_and_slices_run_one_thing_at_a_time(case, spec):
    load, slo, service, price = case
    rule, params = find_rule(spec)
    run = replay(rule, params, load, slo, service, price)
    able = (service[:, load.batches] >= 0).any(axis=0)
    np.testing.assert_array_equal(run.chosen >= 0, able)
    served = run.chosen >= 0
    assert (run.start[served] >= load.arrivals[served]).all()
    for s in range(service.shape[0]):
        mine = np.flatnonzero(run.chosen == s)
        spans = sorted({(int(run.start[q]), int(run.finish[q])) for q in mine})
        assert all(one[1] <= two[0] for one, two in pairwise(spans))
        if "batching" not in spec:
            assert len(spans) == len(mine)
            expected = service[s, load.batches[mine]]
            np.testing.assert_array_equal(run.finish[mine] - run.start[mine], expected)
