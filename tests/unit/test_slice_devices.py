"""Slices as devices of their own: what fits one runs on one and is charged by slice."""

import pytest

from divvy.control.paper import carry_out
from divvy.control.state import FleetState
from divvy.fleet.budget import parse_budget
from divvy.fleet.device import weight_of
from divvy.fleet.event import NodeChanged, Stopped, Submitted
from divvy.fleet.job import JobSpec, StopCause
from divvy.planners.base import Context
from divvy.planners.jobs.budget import BudgetPlanner
from divvy.sim.scenario import build_fleet
from divvy.units import HOUR


@pytest.mark.parametrize(
    ("model", "weight"),
    [
        ("A100-80GB", 312),
        ("A100-80GB.7g.80gb", 312),
        ("A100-80GB.3g.40gb", 134),
        ("A100-80GB.1g", 45),
        ("A30-24GB.2g.12gb", 82),
        ("H100-80GB.4g.40gb", 565),
        ("A100-80GB.9g.80gb", 1),
        ("nobody.1g.5gb", 1),
    ],
)
def test_a_slice_weighs_its_part_of_the_whole(model, weight):
    assert weight_of(model) == weight


def test_a_job_on_a_slice_is_charged_by_slice():
    ledger = []
    state = FleetState(parse_budget("[accounts.a]\nshare = 100\n"), ledger.append)
    for node in build_fleet(None, "1x2@A100-80GB,1x4@A100-80GB.3g.40gb"):
        state.apply(NodeChanged(0, node))
    for name, model in (("small", "A100-80GB.3g.40gb"), ("large", "A100-80GB")):
        state.apply(Submitted(0, JobSpec(name, "a", "ada", 2, HOUR, model=model)))
    plan = BudgetPlanner().plan(state.snapshot, Context(0))
    assert carry_out(state, BudgetPlanner(), plan) == []
    for name in ("small", "large"):
        state.apply(Stopped(HOUR, name, StopCause.FINISHED, requeue=False))
    assert {entry.job: entry.charge for entry in ledger} == {"small": 2 * 134 * HOUR, "large": 2 * 312 * HOUR}
    assert state.snapshot.capacity.rate == 2 * 312 + 4 * 134
