"""Routes, costs, plans, peers: the truths that people measured come out of the model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from divvy.errors import InputError
from divvy.fleet.topology.graph import topology
from divvy.fleet.topology.read import build
from divvy.perf.transfer import Learned, overhead, predict
from divvy.planners.transfers.advice import STACKS, advise
from divvy.planners.transfers.bound import bound
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.columns import solve
from divvy.planners.transfers.incast import limits
from divvy.planners.transfers.network import Network
from divvy.planners.transfers.online import Online, plan
from divvy.planners.transfers.pairing import Request, pair, pairing_document, read_requests
from divvy.planners.transfers.plan import RoutePlan, Transfer, read_transfers, resolve
from divvy.planners.transfers.registry import PEERS, PLANNERS, choose
from divvy.planners.transfers.roads import Roads, roads
from divvy.sim.flows.compare import compare, run
from divvy.sim.flows.document import explain_document, plan_document
from divvy.sim.flows.fluid import simulate
from divvy.sim.flows.rates import check_rates, rate_lines

PCIE = """\
\tGPU0\tGPU1\tGPU2\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPIX\tSYS\tPIX\tSYS\t0-7\t0
GPU1\tPIX\t X \tSYS\tPIX\tSYS\t0-7\t0
GPU2\tSYS\tSYS\t X \tSYS\tNODE\t8-15\t1
NIC0\tPIX\tPIX\tSYS\t X \tSYS\t\t
NIC1\tSYS\tSYS\tNODE\tSYS\t X \t\t
"""
NVLINK = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tNV18\tNV18\tPIX\tSYS\t0-7\t0
GPU1\tNV18\t X \tNV18\tNV18\tNODE\tSYS\t0-7\t0
GPU2\tNV18\tNV18\t X \tNV18\tSYS\tPIX\t8-15\t1
GPU3\tNV18\tNV18\tNV18\t X \tSYS\tNODE\t8-15\t1
NIC0\tPIX\tNODE\tSYS\tSYS\t X \tSYS\t\t
NIC1\tSYS\tSYS\tPIX\tNODE\tSYS\t X \t\t
"""


def ways_of(text: str, *extra: tuple[str, str]) -> Roads:
    return roads(build([("m", text), *extra]))


def makespan(ways: Roads, transfers: list[Transfer], planner: str = "divvy") -> float:
    return run(ways, Finder(ways), transfers, planner)[1].makespan_s


NO_PEER = ("p2p", "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNS\tNS\nGPU1\tNS\tX\tNS\nGPU2\tNS\tNS\tX\n")


def test_without_peer_to_peer_a_pix_pair_is_slower_than_a_sys_pair():
    """NCCL issue 1309: both directions at once, as a ring sends them; the shared uplink is crossed twice each."""
    ways = ways_of(PCIE, NO_PEER)
    size = 10**9
    near = [Transfer("a", "GPU0", "GPU1", size), Transfer("b", "GPU1", "GPU0", size)]
    far = [Transfer("a", "GPU0", "GPU2", size), Transfer("b", "GPU2", "GPU0", size)]
    staged = {
        n: next(c for c in Finder(ways).between("GPU0", n) if c.kind == "host-staged")
        for n in ("GPU1", "GPU2")
    }
    uplink = next(i for i, name in enumerate(ways.labels) if name == "sw0 <-> hb0")
    assert dict(staged["GPU1"].path.uses)[uplink] == 2
    assert dict(staged["GPU2"].path.uses)[uplink] == 1
    fast_sockets = ways.capacity.copy()
    ways.capacity[
        [i for i, n in enumerate(ways.labels) if "numa0 -> numa1" in n or "numa1 -> numa0" in n]
    ] = 40.0
    assert makespan(ways, near) > 1.5 * makespan(ways, far)
    ways.capacity[:] = fast_sockets
    assert makespan(ways, near) > 1.2 * makespan(ways, far)


def test_staging_beats_gpudirect_through_a_host_bridge():
    """NCCL issue 465: a processor passes peer traffic worse than memory traffic."""
    ways = ways_of(PCIE.replace("NIC1\tSYS\tSYS\tNODE", "NIC1\tSYS\tSYS\tNODE"))
    found = {c.kind: c for c in Finder(ways).between("GPU2", "GPU0")}
    assert found["host-staged"].gb_per_s > found["pcie-p2p"].gb_per_s
    assert found["rdma-staged"].gb_per_s >= found["rdma-affine"].gb_per_s


def test_many_descriptors_make_nvlink_slower_than_rdma_until_they_are_gathered():
    """vLLM issue 55434."""
    size = 2 * 10**9
    pieces = 91_000
    nvlink = predict("nvlink", size, 450.0, 1).seconds + pieces * 2e-6
    rdma = predict("rdma-affine", size, 50.0, 1).seconds + pieces * 0.25e-6
    assert nvlink > rdma
    assert overhead("nvlink", size, pieces).coalesce
    assert predict("nvlink", size, 450.0, pieces).seconds < rdma
    assert not overhead("rdma-affine", size, 10).coalesce


def test_kinds_are_named_after_what_they_cross():
    kinds = {c.kind for c in Finder(ways_of(NVLINK)).between("GPU1", "GPU3")}
    assert {"nvlink", "pcie-p2p", "host-staged", "rdma-affine", "rdma-relay", "rdma-staged"} <= kinds


def test_plan_meets_the_bound_and_the_arc_program_agrees():
    ways = ways_of(NVLINK)
    finder = Finder(ways)
    batch = [
        Transfer("a", "GPU0", "GPU2", 10**9),
        Transfer("b", "GPU1", "GPU2", 10**9),
        Transfer("c", "GPU3", "GPU0", 10**8),
    ]
    made, outcome, split = run(ways, finder, batch, "divvy", keep_pieces=True)
    assert split is not None
    least = bound(ways, finder, batch, split)
    assert least <= outcome.makespan_s <= 1.02 * least
    assert split.bound_s == pytest.approx(arc_program(ways, batch), rel=2e-3)
    assert check_rates(ways, batch, made.flows, outcome) == []


def arc_program(ways: Roads, batch: list[Transfer]) -> float:
    """The same bound by the other formulation: bytes on every arc of the graph, no paths at all."""
    arcs, states, n = len(ways.arcs), len(ways.names), len(batch)
    cost = np.zeros(arcs * n + 1)
    cost[-1] = 1.0
    equal, right = np.zeros((states * n, arcs * n + 1)), np.zeros(states * n)
    upper = np.zeros((len(ways.capacity), arcs * n + 1))
    upper[:, -1] = -ways.capacity
    for k, transfer in enumerate(batch):
        for i, arc in enumerate(ways.arcs):
            equal[k * states + arc.tail, k * arcs + i] += 1.0
            equal[k * states + arc.head, k * arcs + i] -= 1.0
            for resource in arc.resources:
                upper[resource, k * arcs + i] += 1.0
        right[k * states + ways.sources[transfer.source]] += transfer.size_bytes / 1e9
        right[k * states + ways.sinks[transfer.target]] -= transfer.size_bytes / 1e9
    answer = linprog(
        cost, A_ub=upper, b_ub=np.zeros(len(ways.capacity)), A_eq=equal, b_eq=right, bounds=(0, None)
    )
    return float(answer.fun)


def test_releases_and_deadlines():
    ways = ways_of(NVLINK)
    finder = Finder(ways)
    late = [Transfer("a", "GPU0", "GPU1", 10**9), Transfer("b", "GPU0", "GPU1", 10**9, release_s=0.5)]
    outcome = run(ways, finder, late, "divvy")[1]
    assert outcome.by_transfer[0] < 0.01
    assert 0.5 < outcome.makespan_s < 0.51
    urgent = [
        Transfer("a", "GPU0", "GPU1", 4 * 10**9),
        Transfer("b", "GPU0", "GPU1", 10**9, deadline_s=0.003),
    ]
    outcome = run(ways, finder, urgent, "divvy")[1]
    assert outcome.by_transfer[1] <= 0.003 * 1.01
    many = [Transfer(f"t{i}", "GPU0", "GPU1", 10**8, release_s=i * 0.001) for i in range(20)]
    _, outcome, split = run(ways, finder, many, "divvy")
    assert split is None
    assert bound(ways, finder, many) <= outcome.makespan_s <= 1.2 * bound(ways, finder, many)


@pytest.mark.parametrize("planner", PLANNERS)
def test_every_planner_moves_every_byte_and_none_beats_the_bound(planner):
    ways = ways_of(NVLINK)
    finder = Finder(ways)
    batch = [
        Transfer(f"t{i}", f"GPU{i % 4}", f"GPU{(i + 1 + i // 4) % 4}", 10**8 * (i + 1))
        for i in range(8)
        if i % 4 != (i + 1 + i // 4) % 4
    ]
    made, outcome, _ = run(ways, finder, batch, planner, keep_pieces=True)
    assert made.refused == []
    assert check_rates(ways, batch, made.flows, outcome) == []
    assert outcome.makespan_s >= bound(ways, finder, batch) * (1 - 1e-6)
    if planner in PEERS:
        assert makespan(ways, batch) <= outcome.makespan_s * 1.02


def test_names_are_checked():
    assert choose("all") == list(PLANNERS)
    with pytest.raises(InputError, match="no planner"):
        choose("divvy,wishful")
    ways = ways_of(NVLINK)
    with pytest.raises(InputError) as caught:
        resolve(ways, [Transfer("a", "GPU0", "GPU9", 1), Transfer("b", "GPU1", "GPU1", 1)])
    assert len(caught.value.faults) == 2
    assert "GPU3" in caught.value.faults[0].allowed


def test_transfer_files_report_all_faults():
    good = read_transfers(
        "f", {"transfers": [{"from": "GPU0", "to": "GPU1", "bytes": "1.3GB", "release": "20ms"}]}
    )
    assert good[0].size_bytes == 1_300_000_000
    assert good[0].release_s == 0.02
    with pytest.raises(InputError) as caught:
        read_transfers(
            "f", [{"from": "GPU0", "bytes": -1}, {"from": "a", "to": "b", "bytes": 5, "deadline_s": 0}]
        )
    assert len(caught.value.faults) == 3


def test_documents_name_edges_shares_and_reasons():
    ways = ways_of(PCIE, NO_PEER)
    finder = Finder(ways)
    batch = [Transfer("a", "GPU0", "GPU1", 10**9)]
    made, outcome, split = run(ways, finder, batch, "divvy", keep_pieces=True)
    least = bound(ways, finder, batch, split)
    row = plan_document(ways, finder, batch, made, outcome, least)["transfers"][0]
    assert sum(route["share"] for route in row["routes"]) == pytest.approx(1.0)
    assert {"a": "sw0", "b": "hb0", "times": 2} in row["routes"][0]["edges"]
    told = explain_document(ways, finder, batch[0], made, outcome, least, both_ways_s=1.0)
    low, high = told["expected_s"]
    assert told["predicted_s"] < low < high
    assert any(c["chosen"] for c in told["candidates"])
    arrived = sum(
        line["gb_per_s"] * 1e9 * (line["t1"] - line["t0"])
        for line in rate_lines(ways, batch, made.flows, outcome)
        if line["b"] == "GPU1"
    )
    assert arrived == pytest.approx(10**9, rel=1e-6)


def test_no_way_is_reported_not_planned():
    apart = "\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n"
    ways = roads(build([("m", apart)]))
    cut = roads(ways.topo.with_links(k for k in ways.topo.links if k.kind != "socket"))
    results, unplanned = compare("x", cut, [Transfer("a", "GPU0", "GPU1", 10**9)], ["divvy"])
    assert results == []
    assert unplanned[0]["code"] == "no-link"


def test_incast_limit_keeps_the_makespan_and_the_order():
    ways = ways_of(NVLINK)
    finder = Finder(ways)
    batch = [Transfer(f"t{i}", f"GPU{i}", "GPU2", 10**9) for i in (0, 1, 3)]
    made = PLANNERS["uniform-rdma"](ways, finder, batch, 0)
    free, held = simulate(ways, made.flows), simulate(ways, made.flows, incast=limits(ways, 1))
    assert held.makespan_s == pytest.approx(free.makespan_s, rel=0.35)
    assert held.by_transfer[0] < free.by_transfer[0]


def test_online_planner_splits_over_what_is_free():
    ways = ways_of(NVLINK)
    made = plan(ways, Finder(ways), [Transfer("a", "GPU0", "GPU2", 4 * 10**9)])
    assert sum(flow.size_bytes for flow in made.flows) == pytest.approx(4e9)
    planner = Online(ways, Finder(ways))
    before = planner.predict(Transfer("b", "GPU1", "GPU2", 10**9))
    planner.place(0, Transfer("a", "GPU0", "GPU2", 4 * 10**9), RoutePlan("x"))
    assert planner.predict(Transfer("b", "GPU1", "GPU2", 10**9)) > before


def test_pairing_follows_time_and_what_is_cached_not_labels():
    ways = ways_of(PCIE)
    finder = Finder(ways)
    blocks = tuple(f"h{i}" for i in range(64))
    request = Request("r", "GPU0", 2**22, blocks)
    cold = pair(ways, finder, [request], ["GPU1", "GPU2"], {})[0]
    assert cold.target == "GPU1"
    warm = pair(ways, finder, [request], ["GPU1", "GPU2"], {"GPU2": frozenset(blocks[:60])})[0]
    assert warm.target == "GPU2"
    assert warm.sent_bytes == 4 * 2**22
    busy = pair(ways, finder, [request] * 6, ["GPU1", "GPU2"], {})
    assert {p.target for p in busy} == {"GPU1", "GPU2"}


def test_learning_replaces_the_defaults():
    learned = Learned("rdma-affine", 25.0)
    before = learned.predict(10**8, 100).seconds
    rng = np.random.default_rng(0)
    for _ in range(60):
        size, pieces = int(10 ** rng.uniform(4, 8.4)), int(2 ** rng.uniform(0, 12))
        learned.observe(size, pieces, 40e-6 + 1e-6 * (pieces - 1) + size / 10e9)
    size, pieces = 50_000_000, 1000
    truth = 40e-6 + 1e-6 * 999 + size / 10e9
    told = learned.predict(size, pieces)
    assert told.seconds == pytest.approx(truth, rel=0.1)
    assert told.low <= truth <= told.high
    assert before != learned.predict(10**8, 100).seconds
    with pytest.raises(ValueError, match="positive"):
        learned.observe(1, 1, 0.0)


@pytest.mark.parametrize("stack", STACKS)
def test_advice_names_the_near_nic(stack):
    document = advise(ways_of(NVLINK + "\nNIC Legend:\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"), stack)
    text = "\n".join(document["text"])
    assert document["for"] == stack
    if stack == "vllm-nixl":
        assert document["settings"]["ranks"]["GPU2"]["UCX_NET_DEVICES"] == "mlx5_1:1"
    elif stack == "mooncake":
        assert document["settings"]["nic_priority_matrix"]["cuda:0"][0] == ["mlx5_0"]
    elif stack == "nccl":
        assert "NCCL_IB_HCA" in text
    else:
        assert "nvidia.com/gpu.clique" in text
    with pytest.raises(InputError, match="no stack"):
        advise(ways_of(NVLINK), "sglang")


def test_the_program_holds_for_several_windows():
    ways = ways_of(NVLINK)
    batch = [Transfer("a", "GPU0", "GPU2", 10**9), Transfer("b", "GPU1", "GPU2", 10**9, release_s=0.001)]
    split = solve(ways, batch, [0.0, 0.001])
    assert split.bound_s <= split.makespan_s <= split.bound_s * 1.002
    assert split.gigabytes.sum() == pytest.approx(2.0)


def test_two_links_between_the_same_ends_carry_twice():
    ways = ways_of(NVLINK)
    links = ways.topo.links
    more = next(link for link in links if link.kind == "nvlink" and link.a == "GPU0")
    twin = next(link for link in links if link.kind == "nvlink" and link.a == "GPU1")
    wider = roads(ways.topo.with_links((*links, more, twin)))
    batch = [Transfer("a", "GPU0", "GPU1", 8 * 10**9)]
    assert makespan(wider, batch) < 0.6 * makespan(ways, batch)


def test_a_small_transfer_does_not_wait_for_a_route_that_starts_late():
    """4 MB take 20 us over NVLink; a part through memory would start after 35."""
    ways = ways_of(NVLINK)
    plan, outcome, _ = run(ways, Finder(ways), [Transfer("t", "GPU0", "GPU1", 4_000_000)], "divvy")
    assert {flow.kind for flow in plan.flows} <= {"nvlink", "nvlink-relay", "pcie-p2p"}
    assert outcome.makespan_s < 35e-6


def test_a_few_bytes_beside_large_transfers_are_planned_too():
    """100 bytes are below the solver's tolerance."""
    ways = ways_of(NVLINK)
    batch = [
        Transfer(f"t{i}", f"GPU{i}", "GPU3", size, i / 1000) for i, size in enumerate((2**28, 2**28, 100))
    ]
    plan, outcome, _ = run(ways, Finder(ways), batch, "divvy", keep_pieces=True)
    assert check_rates(ways, batch, plan.flows, outcome) == []
    assert sum(f.size_bytes for f in plan.flows if f.transfer == 2) == pytest.approx(100)


def test_the_order_of_states_does_not_depend_on_names():
    """The same links in reverse order, other names: the network of arrays is the same."""
    ways = ways_of(NVLINK)
    other = {v: f"{i:02d}-{v[::-1]}" for i, v in enumerate(reversed(ways.topo.vertices))}
    renamed = topology(
        "renamed",
        [replace(v, id=other[v.id]) for v in reversed(ways.topo.vertices.values())],
        [replace(k, a=other[k.a], b=other[k.b]) for k in reversed(ways.topo.links)],
        ways.topo.peering,
    )
    batch = [Transfer("a", "GPU0", "GPU1", 10**9), Transfer("b", "GPU2", "GPU1", 10**9)]
    moved = [replace(t, source=other[t.source], target=other[t.target]) for t in batch]
    first, second = Network(ways, batch), Network(roads(renamed), moved)
    for name in ("capacity", "heads", "pointer", "arc_row", "arc_resource", "latency"):
        assert np.array_equal(getattr(first, name), getattr(second, name)), name
    assert first.count < len(ways.names)


def test_a_plan_without_its_certificate_is_the_same_plan():
    ways = ways_of(NVLINK)
    batch = [Transfer(f"t{i}", f"GPU{i % 4}", f"GPU{(i + 1) % 4}", 10**9) for i in range(6)]
    quick = simulate(ways, PLANNERS["divvy"](ways, Finder(ways), batch, 0).flows).makespan_s
    assert quick == pytest.approx(makespan(ways, batch), rel=0.02)


def test_pairing_documents():
    ways = ways_of(NVLINK)
    body = {
        "block_bytes": 2**20,
        "requests": [{"from": "GPU0", "hash_ids": list(range(200))} for _ in range(4)],
        "targets": ["GPU2", "GPU3"],
        "cached": {"GPU3": list(range(150))},
    }
    document = pairing_document(ways, Finder(ways), read_requests("r", body, ways))
    assert document["pairs"][0]["target"] == "GPU3"
    assert document["figure"]["last_s"] <= document["baseline"]["last_s"]
    with pytest.raises(InputError) as caught:
        read_requests(
            "r", {"requests": [{"from": "x", "hash_ids": [1], "block_bytes": 1}, {}], "targets": ["y"]}, ways
        )
    assert len(caught.value.faults) == 3
