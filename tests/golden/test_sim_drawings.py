from drawing import Script, draw, drawing, job, run

from divvy.fleet.node import Node, NodeState
from divvy.planners.jobs.registry import create
from divvy.sim.traces.trace import CapacityChange
from divvy.units import HOUR


def test_easy_lets_later_jobs_pass_only_where_they_delay_nobody():
    # B is blocked until 4. C is over by then and passes; D would be in the way and waits.
    done = run(
        create("fifo"),
        [4],
        job("A", 0, 4, 3),
        job("B", 0, 2, 4),
        job("D", 0, 5, 1),
        job("C", 0, 4, 1),
    )
    assert draw(done, 11) == drawing("""
        AAAABBDDDDD
        AAAABB.....
        AAAABB.....
        CCCCBB.....
    """)


def test_a_long_job_may_pass_on_what_the_reservation_leaves_over():
    # B needs 2 of 3 devices at 4: the third is free for D, however long it runs.
    done = run(create("fifo"), [3], job("A", 0, 4, 2), job("B", 0, 2, 2), job("D", 0, 9, 1))
    assert draw(done, 9) == drawing("""
        AAAABB...
        AAAABB...
        DDDDDDDDD
    """)


def test_a_job_that_ends_early_starts_the_next_one_early():
    # A said 6 hours and took 2; C would have fitted before 6, and is no longer needed there.
    done = run(create("fifo"), [2], job("A", 0, 2, 2, limit=6), job("B", 0, 2, 2), job("C", 0, 1, 1))
    assert draw(done, 5) == drawing("""
        AABBC
        AABB.
    """)


def test_a_gang_waits_for_a_whole_node_and_small_jobs_fill_up_the_other():
    done = run(
        create("fifo"),
        [2, 2],
        job("A", 0, 3, 1),
        job("B", 0, 5, 1),
        job("C", 0, 2, 2),
        job("D", 0, 4, 2),
        job("E", 0, 1, 1),
    )
    assert draw(done, 7) == drawing("""
        AAAE...
        BBBBB..

        CCDDDD.
        CCDDDD.
    """)


def test_a_gang_larger_than_a_node_takes_whole_nodes():
    done = run(create("fifo"), [2, 2, 2], job("A", 0, 1, 1), job("B", 0, 2, 6), job("C", 0, 1, 4))
    assert draw(done, 4) == drawing("""
        ABB.
        .BB.

        CBB.
        CBB.

        CBB.
        CBB.
    """)


def test_fifo_passes_over_a_gang_that_the_fleet_cannot_hold():
    done = run(create("fifo"), [2], job("A", 0, 1, 3), job("B", 0, 2, 2))
    assert draw(done, 2) == drawing("""
        BB
        BB
    """)
    assert done.record.first_start[done.workload.index["A"]] == -1


def test_fairshare_lets_the_account_that_has_used_less_go_first():
    # Both accounts have the same share; a has used 4 device-hours when B and C compete.
    done = run(
        create("fairshare"),
        [2],
        job("A", 0, 2, 2),
        job("B", 1, 2, 2),
        job("C", 1.5, 2, 2, account="b"),
    )
    assert draw(done, 6) == drawing("""
        AACCBB
        AACCBB
    """)


def test_a_preempted_job_restores_and_goes_on_from_its_checkpoint():
    # Checkpoints every 2 hours of work, the first within 2: what A did since is lost (!), B takes over.
    done = run(
        Script((0, None, "A"), (5, "A", "B"), (7, None, "A")),
        [1],
        job("A", 0, 8, 1),
        job("B", 5, 2, 1),
        checkpoint=2,
        restore=1,
    )
    phase = done.workload.phase[0] / HOUR
    record = done.record
    assert record.lost[0] == (5 - phase) * HOUR % (2 * HOUR)
    assert record.by[0] == "B"
    assert record.end[-1] - record.start[-1] == HOUR + 8 * HOUR - (5 * HOUR - record.lost[0])


def test_a_job_without_checkpoints_starts_over_and_one_that_is_not_resumable_ends():
    done = run(
        Script((0, None, "A"), (0, None, "C"), (2, "A", "B"), (3, "C", None), (3, None, "A")),
        [2],
        job("A", 0, 4, 1),
        job("C", 0, 4, 1, resumable=False),
        job("B", 2, 3, 1),
        restore=1,
    )
    assert draw(done, 8) == drawing("""
        !!BBB...
        !!!aAAAA
    """)
    assert done.record.over[done.workload.index["C"]] == 3 * HOUR


def test_a_node_that_dies_takes_its_jobs_along_and_serves_again_when_it_is_back():
    down = CapacityChange(2 * HOUR, Node("n1", 1, state=NodeState.DOWN))
    up = CapacityChange(4 * HOUR, Node("n1", 1))
    done = run(create("fifo"), [1, 1], job("A", 0, 6, 1), job("B", 0, 3, 1), capacity=[down, up])
    assert draw(done, 8) == drawing("""
        AAAAAA..

        !!##BBB.
    """)


def test_a_node_that_joins_is_used():
    new = CapacityChange(1 * HOUR, Node("n9", 1))
    done = run(create("fifo"), [1], job("A", 0, 3, 1), job("B", 0, 2, 1), capacity=[new])
    assert draw(done, 3) == drawing("""
        AAA

        #BB
    """)
