"""One golden row per dispatch rule: late queries, total latency and queries per slice of a fixed replay."""

from __future__ import annotations

import numpy as np
import pytest

from divvy.fleet.mig.skus import find_sku
from divvy.perf.fitted import fitted_profile
from divvy.perf.traffic import lognormal
from divvy.planners.queries.registry import RULES
from divvy.planners.slices.base import Choice, Request
from divvy.sim.queries.judge import ReplayJudge

SLO_US = 20_000
SLICES = (1, 1, 1, 1, 3, 7)
ROWS = [
    ("elsa", 8, 41630308, [1087, 594, 332, 155, 626, 206]),
    ("fifs", 421, 35815766, [382, 375, 382, 386, 685, 790]),
    ("jsq", 429, 35998482, [375, 394, 386, 377, 673, 795]),
    ("pow2", 880, 55485445, [420, 398, 426, 406, 633, 717]),
    ("least-gpc", 8, 33770101, [545, 551, 547, 549, 611, 197]),
    ("divvy", 9, 32637340, [699, 592, 490, 365, 552, 302]),
]


def test_every_rule_has_a_row():
    assert [name for name, *_ in ROWS] == list(RULES)


@pytest.mark.parametrize(("name", "late", "total_us", "per_slice"), ROWS)
def test_a_rule_does_what_it_did(name, late, total_us, per_slice):
    traffic = lognormal(4, 0.9, 32)
    request = Request(
        find_sku("A100-80GB"), 2, fitted_profile("resnet50"), traffic, SLO_US, 95.0, per_bucket=True
    )
    load, run = ReplayJudge(request, 3_000).run(Choice(SLICES, name), 320.0, 7)
    latency = run.finish - load.arrivals
    assert int((latency > SLO_US).sum()) == late
    assert int(latency.sum()) == total_us
    assert np.bincount(run.chosen, minlength=len(SLICES)).tolist() == per_slice
