import random

import pytest

from divvy.fleet.node import Node, NodeState
from divvy.planners.jobs.backfill import LimitQueue, Shape, Timeline, fitting
from divvy.planners.jobs.placement import FreeMap

ONE = Shape(1, 0, "")


def test_a_limit_queue_answers_like_a_plain_list():
    random.seed(5)
    queue, plain = LimitQueue("k", ONE), {}
    for row in range(400):
        if random.random() < 0.7:
            plain[row] = random.randrange(100)
            queue.add(row, plain[row])
        if plain and random.random() < 0.5:
            gone = random.choice(list(plain))
            assert queue.remove(gone)
            assert not queue.remove(gone)
            if random.random() < 0.3:
                queue.add(gone, plain[gone])
            else:
                del plain[gone]
        limit = random.randrange(100)
        assert queue.first(limit) == min((r for r, value in plain.items() if value <= limit), default=-1)
        assert queue.waiting == len(plain)
        if plain:
            assert queue.head() == min(plain)
            assert queue.shortest() == min(plain.values())


def test_a_row_that_comes_back_takes_its_old_place():
    queue = LimitQueue("k", ONE)
    for row in (3, 5, 9):
        queue.add(row, 10)
    queue.remove(3)
    assert queue.head() == 5
    queue.add(3, 10)
    assert queue.head() == 3


def fleet(*sizes):
    nodes = [Node(f"n{row}", size) for row, size in enumerate(sizes)]
    return nodes, FreeMap(nodes, [0] * len(sizes))


def test_the_reservation_is_the_first_moment_at_which_one_node_has_room():
    nodes, room = fleet(4, 4)
    timeline = Timeline()
    timeline.begin(1, 100, ((0, 4),))
    timeline.begin(2, 50, ((1, 2),))
    timeline.begin(3, 70, ((1, 2),))
    assert timeline.reserve(Shape(2, 0, ""), nodes, room, 0) == (50, ((1, 0),))
    assert timeline.reserve(Shape(3, 0, ""), nodes, room, 0) == (70, ((1, 1),))
    timeline.finish(2)
    room.set_free(1, 2)
    assert timeline.reserve(Shape(4, 0, ""), nodes, room, 0) == (70, ((1, 0),))


def test_a_large_gang_is_reserved_whole_nodes_and_the_rest_of_one_more():
    nodes, room = fleet(4, 4, 4)
    timeline = Timeline()
    for row, end in enumerate((100, 50, 80)):
        timeline.begin(row, end, ((row, 4),))
    held = timeline.reserve(Shape(6, 0, ""), nodes, room, 0)
    assert held == (80, ((1, 0), (2, 2)))
    assert timeline.reserve(Shape(12, 0, ""), nodes, room, 0) == (100, ((1, 0), (2, 0), (0, 0)))


def test_a_fixed_number_per_node_is_reserved_so():
    nodes, room = fleet(4, 4, 4)
    timeline = Timeline()
    for row, end in enumerate((100, 50, 80)):
        timeline.begin(row, end, ((row, 4),))
    assert timeline.reserve(Shape(4, 2, ""), nodes, room, 0) == (80, ((1, 2), (2, 2)))


def test_a_run_past_its_limit_is_expected_to_end_any_moment():
    nodes, room = fleet(4)
    timeline = Timeline()
    timeline.begin(1, 100, ((0, 4),))
    assert timeline.reserve(Shape(4, 0, ""), nodes, room, 500) == (501, ((0, 0),))


def test_no_reservation_where_no_end_makes_room():
    nodes, room = fleet(4, 4)
    nodes[1] = Node("n1", 4, state=NodeState.DOWN)
    room.set_node(1, nodes[1], 0)
    timeline = Timeline()
    timeline.begin(1, 100, ((0, 4),))
    assert timeline.reserve(Shape(8, 0, ""), nodes, room, 0) is None
    assert timeline.reserve(Shape(1, 0, "H100"), nodes, room, 0) is None


@pytest.mark.parametrize(
    ("shape", "fits"),
    [
        (Shape(4, 0, ""), True),
        (Shape(8, 0, ""), True),
        (Shape(9, 0, ""), False),
        (Shape(8, 2, ""), False),
        (Shape(4, 2, ""), True),
        (Shape(1, 0, "H100"), False),
    ],
)
def test_what_the_fleet_in_service_could_hold(shape, fits):
    nodes = [Node("a", 4), Node("b", 4), Node("c", 4, state=NodeState.DRAINING)]
    assert fitting([shape], nodes) == {shape: fits}
