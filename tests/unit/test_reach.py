"""What certainly fits nowhere: the bound, and that only growth makes it look again."""

from types import SimpleNamespace

from divvy.fleet.node import Node
from divvy.planners.jobs.holdings import Run
from divvy.planners.jobs.placement import FreeMap
from divvy.planners.jobs.queue import Head
from divvy.planners.jobs.reach import Reach

BATCH = (0, True)
ME, OTHER = 1, 2


def world(free=(0, 0, 0), held=40, floor=10.0):
    loose = FreeMap([Node(f"n{row}", 8) for row in range(len(free))], free)
    return SimpleNamespace(loose=loose, held=[0, 0, held], floors=[0.0, 0.0, floor])


def head(gpus, rank=BATCH, per_node=0):
    return Head(rank, 0.0, 0, 7, gpus, per_node, "")


def run(row, node, gpus, account=OTHER, rank=BATCH):
    return Run(row, account, "ada", True, ((node, gpus),), gpus, gpus, 0, 0, rank, 0)


def test_nothing_fits_a_full_fleet_and_a_run_that_may_be_taken_changes_that():
    reach, holdings = Reach(), world()
    assert reach.excludes(ME, head(2), 1 << OTHER, holdings)
    reach.expose(run(3, 1, 2))
    assert not reach.excludes(ME, head(2), 1 << OTHER, holdings)
    assert reach.excludes(ME, head(3), 1 << OTHER, holdings)
    assert reach.excludes(ME, head(2), 0, holdings), "nobody may be taken from"


def test_a_giver_who_joins_in_is_looked_at_although_nothing_grew():
    reach, holdings = Reach(), world()
    reach.expose(run(3, 1, 2))
    assert reach.excludes(ME, head(2), 0, holdings)
    assert not reach.excludes(ME, head(2), 1 << OTHER, holdings)


def test_a_run_heavier_than_what_its_account_may_lose_counts_for_nothing_until_it_holds_more():
    reach, holdings = Reach(), world(held=11)
    reach.expose(run(3, 1, 2))
    assert reach.excludes(ME, head(2), 1 << OTHER, holdings)
    reach.more_room(OTHER, 1.0)
    holdings.held[OTHER] = 12
    assert not reach.excludes(ME, head(2), 1 << OTHER, holdings)


def test_a_gang_needs_as_many_nodes_as_it_has_parts():
    reach, holdings = Reach(), world((8, 0, 0))
    assert reach.excludes(ME, head(16), 0, holdings)
    holdings.loose.set_free(2, 8)
    reach.grow(2)
    assert not reach.excludes(ME, head(16), 0, holdings)


def test_what_was_free_for_a_moment_does_not_count_for_ever():
    reach, holdings = Reach(), world((8, 0, 0))
    assert reach.excludes(ME, head(16), 0, holdings)
    holdings.loose.set_free(0, 0)
    holdings.loose.set_free(1, 8)
    reach.grow(1)
    assert reach.excludes(ME, head(16), 0, holdings), "one node left, one came"


def test_an_own_run_counts_only_if_it_ranks_behind():
    reach, holdings = Reach(), world()
    reach.expose(run(3, 0, 4, account=ME, rank=BATCH))
    assert reach.excludes(ME, head(4), 1 << ME, holdings)
    assert not reach.excludes(ME, head(4, rank=(-5, True)), 1 << ME, holdings)


def test_a_note_holds_until_something_useful_grows():
    reach, holdings = Reach(), world()
    reach.note(ME, 1 << OTHER, 5, 4)
    assert reach.still_excludes(ME, 1 << OTHER, 5, holdings.loose)
    assert reach.still_excludes(ME, 0, 5, holdings.loose)
    assert not reach.still_excludes(ME, 1 << OTHER | 1 << 3, 5, holdings.loose), "somebody joined in"
    assert not reach.still_excludes(ME, 1 << OTHER, 6, holdings.loose), "the queue changed"
    holdings.loose.set_free(2, 3)
    reach.grow(2)
    assert reach.still_excludes(ME, 1 << OTHER, 5, holdings.loose), "three devices are too few for four"
    reach.expose(run(9, 2, 1))
    assert not reach.still_excludes(ME, 1 << OTHER, 5, holdings.loose)
