"""Placement, drawn as tiny clusters: one digit of free devices per node."""

import pytest

from divvy.fleet.node import Node, NodeState
from divvy.planners.jobs.placement import FreeMap


def cluster(free: str, size: int = 8, **kwargs) -> FreeMap:
    nodes = [Node(f"n{i}", size, **kwargs) for i in range(len(free))]
    return FreeMap(nodes, [int(c) for c in free])


@pytest.mark.parametrize(
    ("free", "gpus", "expected"),
    [
        ("8318", 1, ((2, 1),)),
        ("8318", 2, ((1, 2),)),
        ("8318", 4, ((0, 4),)),
        ("8318", 16, ((0, 8), (3, 8))),
        ("8318", 11, ((0, 8), (1, 3))),
        ("8318", 12, ((0, 8), (3, 4))),
        ("8318", 17, ((0, 8), (2, 1), (3, 8))),
        ("8318", 20, None),
        ("7777", 8, None),
        ("0000", 1, None),
    ],
)
def test_best_fit_keeps_whole_nodes_free(free, gpus, expected):
    assert cluster(free).find(gpus) == expected


def test_per_node_spreads_evenly():
    assert cluster("8348").find(8, per_node=4) == ((0, 4), (2, 4))
    assert cluster("8318").find(8, per_node=4) == ((0, 4), (3, 4))
    assert cluster("8318").find(9, per_node=4) is None


def test_models_and_health_are_respected():
    nodes = [
        Node("a", 8, "A100-40GB"),
        Node("b", 8, "H100-80GB"),
        Node("c", 8, "H100-80GB", state=NodeState.DRAINING),
    ]
    free = FreeMap(nodes, [1, 8, 0])
    assert free.find(1, model="H100-80GB") == ((1, 1),)
    assert free.find(2, model="A100-40GB") is None
    assert free.find(1, model="V100-32GB") is None
    assert free.node_size("V100-32GB") == 0


def test_a_gang_prefers_one_domain_and_the_tightest():
    nodes = [Node(f"n{i}", 8, domain="east" if i < 4 else "west") for i in range(6)]
    free = FreeMap(nodes, [8, 8, 8, 8, 8, 8])
    assert free.find(16) == ((4, 8), (5, 8))
    assert free.find(24) == ((0, 8), (1, 8), (2, 8))
    assert free.find(40) == tuple((i, 8) for i in range(5))


def test_taking_devices_updates_every_index():
    free = cluster("88")
    free.take(((0, 8),))
    assert (free.total, free.largest(), free.find(16), free.find(8)) == (8, 8, None, ((1, 8),))
    free.set_free(0, -3)
    assert free.total == 8
