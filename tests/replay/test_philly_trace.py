"""The real trace, where it is at hand: what we read is what its description says."""

from pathlib import Path

import pytest

from divvy.sim.accounts import shares_by_demand
from divvy.sim.contracts import Contracts, draw
from divvy.sim.traces import read_trace
from divvy.units import DAY, MINUTE, gpu_hours

TRACE = Path(__file__).parents[3] / "shared" / "data" / "traces" / "philly" / "philly-2017-09-10.csv"


@pytest.fixture(scope="module")
def trace():
    if not TRACE.is_file():
        pytest.skip(f"{TRACE} is not here")
    return read_trace(TRACE.read_bytes(), "philly", TRACE.name)


def test_every_row_is_read(trace):
    assert len(trace.jobs) == 52_849
    assert not trace.skipped
    assert len(trace.gpu_time()) == 12
    assert trace.origin == "2017-09-04 10:30:41"
    assert trace.last_submission / DAY == pytest.approx(57.56, abs=0.01)
    demand = gpu_hours(sum(trace.gpu_time().values()))
    assert demand == pytest.approx(642_409.3, abs=0.1)
    assert demand / (trace.last_submission / DAY * 24) == pytest.approx(465, abs=1)
    assert sum(job.gpus >= 32 for job in trace.jobs) == 23
    assert "37 rows repeat" in trace.notes[0]


def test_its_contracts_are_drawn_in_the_published_proportions(trace):
    budget, claims = shares_by_demand(trace)
    work = draw(trace.jobs, claims.paid_by, Contracts(), budget.policy, 30 * MINUTE, seed=0)
    declared = [spec.min_runtime for spec in work.spec]
    assert declared.count(0) / len(declared) == pytest.approx(0.18, abs=0.005)
    assert sum(spec.resumable for spec in work.spec) / len(declared) == pytest.approx(0.9, abs=0.005)
    assert float(sum(spec.share for spec in budget.tree.specs)) == pytest.approx(100)
