"""Packing several models: the batching replay against its twin, programs against by-hand cases, legality."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divvy.cli.slice_pack import read_scenario
from divvy.errors import InputError
from divvy.fleet.mig.layout import faults
from divvy.fleet.mig.skus import find_sku
from divvy.perf.fitted import fitted_profile
from divvy.perf.profile_csv import read_profile
from divvy.planners.slices.pack import Demand, best_batch, configurations, lower_bound_gpus, pack
from divvy.sim.queries.batched import Process, processes_of, serve, serve_plainly
from divvy.sim.queries.packs import PackJudge, pack_document, pack_fleet, processes_by_demand

A100 = find_sku("A100-80GB")
HAND = read_profile(
    "slice,batch,processes,latency_ms\n1,1,1,10\n1,8,1,40\n1,1,2,12\n1,8,2,60\n7,1,1,2\n7,8,1,10\n", "hand"
)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_batching_kernel_and_twin_agree(seed):
    generator = np.random.default_rng(seed)
    arrivals = np.cumsum(generator.integers(0, 30, int(generator.integers(1, 150))))
    processes = []
    for index in range(int(generator.integers(1, 6))):
        limit = int(generator.integers(1, 7))
        times = np.sort(generator.integers(1, 150, limit))
        processes.append(Process(index, limit, (0, *times.tolist())))
    for fast, plain in zip(serve(arrivals, processes), serve_plainly(arrivals, processes), strict=True):
        np.testing.assert_array_equal(fast, plain)


def test_full_batches_wait_and_dynamic_ones_do_not():
    arrivals = np.array([0, 100, 200, 300])
    one = [Process(0, 2, (0, 10, 15))]
    assert serve(arrivals, one)[0].tolist() == [10, 110, 210, 310]
    assert serve(arrivals, one, full=True)[0].tolist() == [115, 115, 315, 315]


def test_processes_share_a_slice():
    found = processes_of(HAND, 3, 1, 2, 8)
    assert len(found) == 2
    assert found[0].times_us[1] == 12_000
    assert found[0].times_us[8] == 60_000
    with pytest.raises(InputError):
        processes_of(HAND, 0, 2, 1, 8)


def test_configurations_keep_to_the_share_of_the_objective():
    assert best_batch(HAND, 1, 1, 40_000) == (8, pytest.approx(200))
    assert best_batch(HAND, 1, 1, 9_000) == (0, 0.0)
    options = configurations(A100, [Demand("hand", HAND, 100, 100_000)], [0.5])
    # Two processes with 6 each take 46 ms: 262/s, more than one process with 8 in 40 ms.
    assert {(o.size, o.processes, o.batch) for o in options} == {(1, 2, 6), (7, 1, 8)}


def test_fewest_gpus_by_hand():
    # At most 267/s per 1g slice (two processes, 60 ms for 8), 800/s for 7g: one GPU carries less than 2500/s.
    demand = [Demand("hand", HAND, 2_500, 1_000_000)]
    packing = pack(A100, demand, configurations(A100, demand, [0.5]), [1.0])
    assert packing is not None
    assert len(packing.per_gpu) == 2
    assert lower_bound_gpus(A100, demand) == 2
    assert lower_bound_gpus(A100, [Demand("hand", HAND, 1_300, 1_000_000)]) == 1


def test_a_packed_fleet_is_legal_proved_and_complete():
    demands = [
        Demand("resnet50", fitted_profile("resnet50"), 1_463, 138_000),
        Demand("vgg16", fitted_profile("vgg16"), 780, 227_000),
        Demand("bert", fitted_profile("bert"), 46, 4_294_000, 99.0),
    ]
    fleet = pack_fleet(A100, demands, 2)
    for layout in fleet.layouts:
        assert faults(A100, layout) == []
    assert all(one.met for one in fleet.served)
    assert len(fleet.layouts) >= fleet.lower_bound
    judge = PackJudge(demands)
    processes = processes_by_demand(demands, fleet.units)
    for index in range(3):  # again, from the units alone
        again = judge.serve(index, processes[index], (1_000, 1_001))
        assert again.achieved_ms == fleet.served[index].achieved_ms <= demands[index].slo_us / 1e3
    document = pack_document(A100, demands, fleet)
    assert {m["model"] for m in document["models"]} == {"resnet50", "vgg16", "bert"}
    assert pack_fleet(A100, demands, 2) == fleet


def test_more_gpus_give_more_headroom_and_too_few_are_refused():
    demands = [Demand("resnet50", fitted_profile("resnet50"), 4_000, 60_000)]
    two, four = (pack_fleet(A100, demands, 1, gpus).headroom for gpus in (2, 4))
    assert 1 <= two < four
    with pytest.raises(InputError, match="cannot carry"):
        pack_fleet(A100, [Demand("resnet50", fitted_profile("resnet50"), 40_000, 60_000)], 1, 2)
    with pytest.raises(InputError, match="within its objective"):
        pack_fleet(A100, [Demand("resnet50", fitted_profile("resnet50"), 10, 1_000)], 1)


def test_scenarios_report_every_fault():
    profiles = {"a": HAND, "b": HAND}
    read = read_scenario("model,rate_qps,slo_ms,percentile\na,5,100,\n", {"a": HAND})
    assert (read[0].rate_qps, read[0].slo_us, read[0].percentile) == (5, 100_000, 95)
    with pytest.raises(InputError) as caught:
        read_scenario("model,rate_qps,slo_ms,percentile\nz,5,1,\na,0,-1,100\n", profiles, "s.csv")
    assert [f.path for f in caught.value.faults] == ["s.csv:2", "s.csv:3", "s.csv:3", "s.csv:3"]
    for text in ("", "model,rate\na,1\n", "model,rate_qps,slo_ms\n"):
        with pytest.raises(InputError):
            read_scenario(text, profiles)
