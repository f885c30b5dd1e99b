"""A cluster model whose nodes are a machine that a file describes."""

from __future__ import annotations

import pytest

from divvy.errors import InputError
from divvy.fleet.topology.graph import Kind, LinkKind
from divvy.fleet.topology.read import build
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.roads import roads

MODEL = """switches: {spine: {switches: [leaf1, leaf2]}}
blocks:
- {switch: leaf1, nodes: ["n[1-2]"], annotations: {accelerator.topology/domain: d1}}
- {switch: leaf2, nodes: [n3]}
"""
MACHINE = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\tPIX\t0-7\t0
GPU1\tNV4\t X \tSYS\t8-15\t1
NIC0\tPIX\tSYS\t X \t\t

NIC Legend:

  NIC0: mlx5_0
"""
PORT = "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 200\n\t\tLink layer: InfiniBand\n"


def test_every_node_is_the_machine():
    topo = build([("c.yaml", MODEL), ("m.txt", MACHINE), ("p", PORT)])
    assert [v.id for v in topo.of_kind(Kind.GPU)] == [f"n{n}/GPU{g}" for n in (1, 2, 3) for g in (0, 1)]
    by_ends = {(k.a, k.b): k for k in topo.links}
    port = by_ends["n3/NIC0", "leaf2"]
    assert (port.gb_per_s, port.source.word, port.source.where) == (25.0, "width", "p")
    assert by_ends["n1/GPU0", "nvswitch:d1"].source.word == "label"
    assert by_ends["n1/GPU0", "nvswitch:d1"].gb_per_s == 56.25
    assert by_ends["n3/GPU0", "n3/GPU1"].kind is LinkKind.NVLINK
    assert (by_ends["leaf1", "spine"].gb_per_s, by_ends["leaf2", "spine"].gb_per_s) == (50.0, 25.0)
    assert "inside of the node assumed" not in {k.source.text for k in topo.links}


def test_what_is_wrong_with_the_machine_is_said_once():
    topo = build([("c.yaml", MODEL), ("m.txt", MACHINE)])
    shared = [f for f in topo.findings if f.code == "nic-shared"]
    assert len(shared) == 1
    assert shared[0].where.startswith("every node, ")


def test_routes_go_over_the_new_inside():
    topo = build([("m.txt", MACHINE), ("c.yaml", MODEL)])
    kinds = {c.kind for c in Finder(roads(topo)).between("n1/GPU0", "n3/GPU1")}
    assert kinds & {"rdma-affine", "rdma-other", "rdma-relay"}
    assert not any(k.startswith("nvlink") for k in kinds)


def test_a_machine_without_a_nic_is_told():
    topo = build([("c.yaml", MODEL), ("m.txt", "\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n")])
    assert "nic-missing" in {f.code for f in topo.findings}


def test_two_cluster_models_are_refused():
    with pytest.raises(InputError) as caught:
        build([("a.yaml", MODEL), ("b.yaml", MODEL)])
    assert caught.value.code == "inputs-do-not-merge"
