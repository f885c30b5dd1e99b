"""The reclaim scenario on drawn histories whose figures can be worked out by hand."""

import pytest

from divvy.fleet.node import Node
from divvy.planners.jobs.registry import create
from divvy.sim.reclaim import reclaim_scenario, reclaimed
from divvy.sim.replay import replay
from divvy.units import DAY

NODES = (Node("n1", 8), Node("n2", 8))


def test_first_come_first_served_gives_the_sleeper_nothing_back():
    done = replay(reclaim_scenario(NODES), create("fifo"))
    assert done.end == 7 * DAY
    assert reclaimed(done) == {"delivered_over_entitlement": 0.0, "others_minimum": 0.0}


def test_the_budget_gives_its_time_back_without_starving_anybody():
    # A share here is 1.6 devices, so a single gang of 8 moves an hour by five shares: the limits are loose.
    figures = reclaimed(replay(reclaim_scenario(NODES), create("budget")))
    assert 0.8 <= figures["delivered_over_entitlement"] <= 1.2


def test_the_sleeper_is_measured_against_its_share_of_the_whole_window():
    done = replay(reclaim_scenario(NODES), create("fairshare"))
    record, spec = done.record, done.workload.spec
    seconds = sum(
        spec[job].gpus * (end - lost - start - restore)
        for job, start, end, restore, lost in zip(
            record.job, record.start, record.end, record.restore, record.lost, strict=True
        )
        if spec[job].account == "team10" and spec[job].allocated
    )
    assert reclaimed(done)["delivered_over_entitlement"] == pytest.approx(seconds / (1.6 * 7 * DAY))
