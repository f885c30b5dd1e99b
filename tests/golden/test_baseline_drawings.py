"""What the documentation of each baseline says, as drawings of tiny clusters."""

from drawing import draw, drawing, job, run

from divvy.planners.jobs.kai import KaiPlanner
from divvy.planners.jobs.registry import create
from divvy.units import HOUR


def test_static_devices_stand_idle_while_others_wait():
    done = run(create("static"), [4], job("A", 0, 2, 2), job("B", 0, 2, 2), job("C", 3, 1, 2, account="b"))
    assert draw(done, 4) == drawing("""
        AABB
        AABB
        ...C
        ...C
    """)


def test_static_never_starts_what_exceeds_the_own_devices():
    done = run(create("static"), [4], job("A", 0, 2, 3), job("C", 0, 1, 2, account="b"))
    assert done.record.first_start[done.workload.index["A"]] == -1


def test_priority_what_opted_out_runs_to_its_end_and_its_team_is_capped():
    # Both teams may keep 2 of 4. A and B opted out; C of the same team waits although devices are free.
    done = run(
        create("priority"),
        [4],
        job("A", 0, 3, 1, min_runtime=HOUR),
        job("B", 0, 2, 1, min_runtime=HOUR),
        job("C", 0, 1, 1, min_runtime=HOUR),
        job("D", 0, 1, 1, account="b"),
    )
    assert draw(done, 3) == drawing("""
        AAA
        BBC
        D..
        ...
    """)


def test_priority_preempts_only_what_did_not_opt_out():
    # A holds everything and did not opt out; B did, and takes the place of the latest started.
    done = run(
        create("priority"),
        [2],
        job("A", 0, 4, 1),
        job("Z", 0, 4, 1),
        job("B", 1, 2, 1, account="b", min_runtime=HOUR),
    )
    assert draw(done, 7) == drawing("""
        AAAA...
        !BBZZZZ
    """)


def test_priority_orders_all_teams_together():
    done = run(
        create("priority"),
        [1],
        job("A", 0, 1, 1),
        job("B", 0.1, 1, 1),
        job("C", 0.2, 1, 1, account="b", priority=5),
    )
    assert (
        done.record.first_start[done.workload.index["C"]] < done.record.first_start[done.workload.index["B"]]
    )


def test_kueue_lends_what_nobody_uses_and_takes_it_back_at_once():
    # Nominal quota 2 each; B borrows, and goes when the other queue asks for its own. A has no protection.
    done = run(
        create("kueue"),
        [4],
        job("A", 0, 4, 2, min_runtime=8 * HOUR),
        job("B", 0, 4, 2, min_runtime=8 * HOUR),
        job("C", 1, 1, 2, account="b"),
    )
    assert draw(done, 6) == drawing("""
        AAAA..
        AAAA..
        !CBBBB
        !CBBBB
    """)


def test_kueue_a_job_that_would_borrow_preempts_nobody():
    # C asks for 3 with a quota of 2: it waits until devices are free.
    done = run(create("kueue"), [4], job("A", 0, 2, 4), job("C", 1, 1, 3, account="b"))
    assert draw(done, 3) == drawing("""
        AAC
        AAC
        AAC
        AA.
    """)


def test_kueue_preempts_lower_priority_of_the_own_queue():
    done = run(create("kueue"), [2], job("A", 0, 3, 2), job("B", 1, 1, 2, priority=1))
    assert draw(done, 5) == drawing("""
        !BAAA
        !BAAA
    """)


def test_kueue_victims_that_are_not_needed_stay():
    # The latest admitted would go first: S and T. For a whole node both must, for one device only T.
    jobs = (job("A", 0, 4, 2), job("S", 0.25, 4, 1), job("T", 0.5, 4, 1))
    for gpus, gone in ((2, {"S", "T"}), (1, {"T"})):
        done = run(create("kueue"), [2, 2], *jobs, job("C", 1, 1, gpus, account="b"))
        record = done.record
        victims = [record.job[n] for n, by in enumerate(record.by) if by == "C"]
        assert {done.workload.spec[row].id for row in victims} == gone


def test_kueue_lets_go_of_a_victim_that_turned_out_not_to_help():
    # T is the latest and comes first, but only A's node can hold C: T stays.
    done = run(
        create("kueue"),
        [2, 1, 1],
        job("U", 0, 4, 1),
        job("A", 0.25, 4, 2),
        job("T", 0.5, 4, 1),
        job("C", 1, 1, 2, account="b"),
    )
    record = done.record
    victims = [record.job[n] for n, by in enumerate(record.by) if by == "C"]
    assert [done.workload.spec[row].id for row in victims] == ["A"]


def test_kai_protects_for_the_minimum_runtime_of_the_queue_and_not_for_what_a_job_declares():
    done = run(
        KaiPlanner(default=2 * HOUR),
        [4],
        job("A", 0, 6, 2, min_runtime=8 * HOUR),
        job("B", 0, 6, 2, min_runtime=8 * HOUR),
        job("C", 1, 1, 2, account="b"),
    )
    assert draw(done, 9) == drawing("""
        AAAAAA...
        AAAAAA...
        !!CBBBBBB
        !!CBBBBBB
    """)


def test_kai_a_queue_within_its_fair_share_is_no_victim():
    done = run(
        KaiPlanner(default=0),
        [4],
        job("A", 0, 3, 2),
        job("C", 0, 3, 2, account="b"),
        job("D", 1, 1, 1, account="b"),
    )
    assert draw(done, 4) == drawing("""
        AAAD
        AAA.
        CCC.
        CCC.
    """)
