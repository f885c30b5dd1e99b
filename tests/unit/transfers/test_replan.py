"""A link is slow or dead: what has arrived stays, the rest is planned over what is left."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divvy.errors import InputError
from divvy.fleet.topology.read import build
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.plan import Transfer
from divvy.planners.transfers.replan import Change, changed, remaining, replan
from divvy.planners.transfers.roads import roads
from divvy.sim.flows.fluid import simulate
from divvy.sim.flows.healing import heal
from divvy.sim.flows.rates import check_rates

MATRIX = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tNV18\tNV18\tPIX\tSYS\t0-7\t0
GPU1\tNV18\t X \tNV18\tNV18\tNODE\tSYS\t0-7\t0
GPU2\tNV18\tNV18\t X \tNV18\tSYS\tPIX\t8-15\t1
GPU3\tNV18\tNV18\tNV18\t X \tSYS\tNODE\t8-15\t1
NIC0\tPIX\tNODE\tSYS\tSYS\t X \tSYS\t\t
NIC1\tSYS\tSYS\tPIX\tNODE\tSYS\t X \t\t
"""
WAYS = roads(build([("m", MATRIX)]))
PLANE = next(k.b for k in WAYS.topo.links if k.kind == "nvlink")
BATCH = [Transfer("a", "GPU0", "GPU2", 4 * 10**9), Transfer("b", "GPU1", "GPU3", 10**9)]


def test_a_dead_nvlink_moves_the_rest_to_other_routes():
    again, document = heal(WAYS, Finder(WAYS), BATCH, [Change("GPU0", PLANE, 0.0)], 0.004)
    assert document["done"] == ["b"]
    assert 0 < document["moved"]["a"] < BATCH[0].size_bytes
    assert document["moved"]["a"] + again.rest[0].size_bytes == BATCH[0].size_bytes
    assert not {f.kind for f in again.plan.flows} & {"nvlink", "nvlink-relay"}
    assert document["without_s"] is None
    assert document["plan"]["makespan_s"] > document["before_s"] > document["at_s"]
    assert document["plan"]["transfers"][0]["start"] >= 0.004


def test_a_slow_nvlink_is_used_beside_others_and_the_new_plan_ends_sooner():
    _, document = heal(WAYS, Finder(WAYS), BATCH, [Change(PLANE, "gpu0", 20.0)], 0.002)
    kinds = {route["kind"] for row in document["plan"]["transfers"] for route in row["routes"]}
    assert "nvlink" in kinds
    assert len(kinds) > 1
    assert document["plan"]["makespan_s"] < document["without_s"]


def test_nothing_left_nothing_to_plan():
    again, document = heal(WAYS, Finder(WAYS), BATCH, [Change("GPU0", PLANE, 0.0)], 10.0)
    assert (again.rest, again.plan.flows, document["without_s"]) == ([], [], document["before_s"])
    assert document["plan"]["transfers"] == []


def test_what_has_no_way_any_more_is_refused():
    batch = [Transfer("a", "GPU0", "GPU1", 10**9)]
    mesh = build([("m", "\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n")])
    only = mesh.with_links(k for k in mesh.links if k.kind == "nvlink")
    again = replan(roads(only), batch, {"a": 1}, [Change("GPU0", "GPU1", 0.0)], 0.001)
    assert [r.code for r in again.refused] == ["no-link"]
    assert again.plan.flows == []


def test_wrong_links_and_wrong_progress_are_refused_together():
    with pytest.raises(InputError) as caught:
        changed(WAYS.topo, [Change("GPU0", "GPU9", 0.0), Change("x", "y", 1.0)])
    assert [f.code for f in caught.value.faults] == ["link-unknown", "link-unknown"]
    assert PLANE in caught.value.faults[0].allowed
    with pytest.raises(InputError) as caught:
        remaining(BATCH, {"a": 5 * 10**9, "c": 1, "b": -1}, 0.0)
    assert len(caught.value.faults) == 3


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(0, 2**28), min_size=3, max_size=3),
    st.sampled_from([0.0, 3.0, 100.0]),
    st.sampled_from(["GPU0", "GPU2", "NIC0"]),
    st.floats(0.0, 0.01),
    st.sampled_from(["divvy", "divvy-online"]),
)
def test_every_byte_is_planned_exactly_once(moved, rate, device, now, planner):
    batch = [Transfer(str(i), f"GPU{i}", "GPU3", 2**28, release_s=i / 1000) for i in range(3)]
    link = next(k for k in WAYS.topo.links if k.a == device and k.kind in ("nvlink", "network"))
    known = {str(i): m for i, m in enumerate(moved)}
    again = replan(WAYS, batch, known, [Change(link.a, link.b, rate)], now, planner=planner)
    outcome = simulate(again.ways, again.plan.flows, keep_pieces=True)
    assert check_rates(again.ways, again.rest, again.plan.flows, outcome) == []
    planned = {t.id: t.size_bytes for t in again.rest} | dict.fromkeys(again.done, 0)
    assert {name: planned[name] + known[name] for name in known} == {t.id: 2**28 for t in batch}
    assert all(start >= now for start in outcome.start_s)
    crossed = {a.link for f in again.plan.flows for a in (again.ways.arcs[i] for i in f.path.arcs)}
    ends = {again.ways.topo.links[i].ends for i in crossed if i >= 0}
    assert rate > 0 or link.ends not in ends
