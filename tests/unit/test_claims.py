from decimal import Decimal

import pytest

from divvy.errors import InputError
from divvy.fleet.budget import parse_budget
from divvy.sim.accounts import UNFUNDED, claim, equal_shares, shares_by_demand
from divvy.sim.scenario import build_fleet
from divvy.sim.traces.trace import Trace, TraceJob


def trace(*accounts, gpus=1):
    return Trace(tuple(TraceJob(f"j{n}", n, 1000, gpus, name) for n, name in enumerate(accounts)))


@pytest.mark.parametrize("count", [1, 3, 7, 12, 97])
def test_equal_shares_never_sum_to_more_than_the_fleet(count):
    budget, claims = equal_shares(trace(*(f"a{n}" for n in range(count))))
    shares = [spec.share for spec in budget.tree.specs]
    assert len(set(shares)) == 1
    assert Decimal("99.9999") < sum(shares) <= 100
    assert len(claims.paid_by) == count


def test_shares_by_demand_follow_the_gpu_time():
    jobs = (TraceJob("x", 0, 3000, 2, "big"), TraceJob("y", 1, 1000, 2, "small"))
    budget, _ = shares_by_demand(Trace(jobs))
    assert {spec.path: float(spec.share) for spec in budget.tree.specs} == {"big": 75, "small": 25}


def test_names_that_no_account_may_bear_are_made_safe_and_stay_apart():
    names = ["a b", "a.b", "a_b", "-x", "ä" * 80, "ö" * 80]
    _, claims = equal_shares(trace(*names))
    assert list(claims.paid_by) == names
    assert len(set(claims.paid_by.values())) == len(names)


BUDGET = """
[accounts.lab]
share = 100
[accounts.lab.vision]
share = 60
slurm = ["vis", "vis-*"]
[accounts.lab.language]
share = 40
"""


def test_a_budget_file_claims_by_engine_names_then_path_then_last_part():
    budget, claims = claim(trace("vis-3", "vis", "lab.vision", "language", "vision"), parse_budget(BUDGET))
    assert claims.paid_by == {
        "vis-3": "lab.vision",
        "vis": "lab.vision",
        "lab.vision": "lab.vision",
        "language": "lab.language",
        "vision": "lab.vision",
    }
    assert not claims.unclaimed
    assert UNFUNDED not in budget.tree.row


def test_what_nobody_claims_is_run_unfunded_and_reported():
    budget, claims = claim(trace("vis", "chem", "chem", "lab"), parse_budget(BUDGET))
    assert claims.unclaimed == {"chem": 2, "lab": 1}
    assert claims.paid_by["chem"] == UNFUNDED
    assert budget.tree.share[budget.tree.row[UNFUNDED]] == 0


def test_two_claimants_are_refused():
    text = BUDGET + '[accounts.other]\nshare = 0\nray = ["vis-1"]\n'
    with pytest.raises(InputError, match="claimed by"):
        claim(trace("vis-1"), parse_budget(text))


def test_a_budget_that_already_has_an_unfunded_account_must_claim_everything():
    text = BUDGET + "[accounts.unfunded]\nshare = 0\n"
    claim(trace("vis"), parse_budget(text))
    with pytest.raises(InputError, match="chem"):
        claim(trace("chem"), parse_budget(text))


def test_a_shape_gives_nodes_and_a_number_one_pool():
    nodes = build_fleet(None, "29x8")
    assert (len(nodes), nodes[0].name, nodes[-1].name, nodes[3].gpus) == (29, "node01", "node29", 8)
    assert build_fleet(232, "29x8") == nodes
    (pool,) = build_fleet(232, None)
    assert (pool.name, pool.gpus) == ("pool", 232)


@pytest.mark.parametrize(
    ("gpus", "shape"),
    [(None, None), (0, None), (-1, None), (10, "29x8"), (None, "8"), (None, "0x8"), (None, "8x")],
)
def test_a_fleet_that_makes_no_sense_is_refused(gpus, shape):
    with pytest.raises(InputError):
        build_fleet(gpus, shape)
