import pytest

from divvy.errors import InputError
from divvy.fleet.budget import parse_budget
from divvy.fleet.job import JobSpec
from divvy.fleet.node import Node, NodeState
from divvy.planners.jobs.admission import DebugAllowance, admit, check
from divvy.units import DAY, HOUR, MINUTE

BUDGET = parse_budget(
    """
[policy]
max_min_runtime = "8h"
[accounts.lab]
share = 100
[accounts.lab.vision]
share = 60
[accounts.lab.language]
share = 40
"""
)
NODES = [
    Node("a", 8, "A100-80GB"),
    Node("b", 8, "A100-80GB"),
    Node("c", 4, "H100-80GB", state=NodeState.DOWN, cause="fans"),
]
GOOD = JobSpec("j1", "lab.vision", "ada", 8, HOUR)


def codes(spec, nodes=NODES):
    return [(fault.code, fault.path) for fault in check(spec, BUDGET, nodes)]


def test_a_sound_job_is_admitted():
    admit(GOOD, BUDGET, NODES)


def test_every_fault_is_reported_at_once():
    bad = JobSpec(
        "../etc", "lab.visoin", "a\nb", 3, 9 * HOUR, per_node=2, model="", name="x\x00", time_limit=HOUR
    )
    with pytest.raises(InputError) as caught:
        admit(bad, BUDGET, NODES)
    assert [fault.code for fault in caught.value.faults] == [
        "job-id",
        "text-control",
        "text-control",
        "account-unknown",
        "min-runtime-cap",
        "time-limit-short",
        "per-node-uneven",
    ]
    assert "lab.vision, lab.language" in str(caught.value), "it lists the names that would do"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"account": "lab"}, ("account-not-leaf", "account")),
        ({"account": ""}, ("account-unknown", "account")),
        ({"gpus": 0}, ("gpus-range", "gpus")),
        ({"gpus": -4}, ("gpus-range", "gpus")),
        ({"gpus": 21}, ("gpus-fleet", "gpus")),
        ({"gpus": 17, "model": "A100-80GB"}, ("gpus-fleet", "gpus")),
        ({"model": "A100"}, ("model-unknown", "model")),
        ({"gpus": 16, "per_node": 16}, ("per-node-fleet", "per_node")),
        ({"gpus": 8, "per_node": 8, "model": "H100-80GB"}, ("gpus-fleet", "gpus")),
        ({"per_node": -1}, ("per-node-range", "per_node")),
        ({"min_runtime": -1}, ("min-runtime-range", "min_runtime")),
        ({"min_runtime": 8 * HOUR + 1}, ("min-runtime-cap", "min_runtime")),
        ({"time_limit": HOUR - 1}, ("time-limit-short", "time_limit")),
        ({"time_limit": -1}, ("time-limit-range", "time_limit")),
        ({"priority": 10**7}, ("priority-range", "priority")),
        ({"name": "x" * 201}, ("text-long", "name")),
        ({"name": "right\u202eleft"}, ("text-control", "name")),
        ({"id": "a/b"}, ("job-id", "id")),
        ({"id": "j1\n"}, ("job-id", "id")),
    ],
)
def test_each_rule_has_its_code_and_its_place(change, expected):
    assert codes(GOOD._replace(**change)) == [expected]


@pytest.mark.parametrize(
    "change",
    [
        {"gpus": 20},  # more than is healthy now, not more than there is
        {"gpus": 4, "model": "H100-80GB"},  # on a node that is down
        {"min_runtime": 0},
        {"min_runtime": 8 * HOUR},
        {"time_limit": HOUR},
        {"name": "größe 😀"},
        {"gpus": 16, "per_node": 8},
    ],
)
def test_what_may_run_later_is_admitted_now(change):
    assert codes(GOOD._replace(**change)) == []


def test_sizes_are_not_judged_before_any_node_is_known():
    assert codes(GOOD._replace(gpus=5000, model="B200-180GB"), nodes=[]) == []


def debug_job(gpus=8, min_runtime=15 * MINUTE, author="ada"):
    return GOOD._replace(gpus=gpus, min_runtime=min_runtime, author=author)


def test_the_debug_rule_favours_the_small_and_short_only():
    allowance, policy = DebugAllowance(), BUDGET.policy
    assert allowance.grant(0, debug_job(), policy)
    assert not allowance.grant(0, debug_job(gpus=9), policy)
    assert not allowance.grant(0, debug_job(min_runtime=15 * MINUTE + 1), policy)
    assert not allowance.grant(0, debug_job(min_runtime=0), policy), "unallocated work is free already"


def test_the_debug_allowance_is_per_author_and_slides_over_a_day():
    allowance, policy = DebugAllowance(), BUDGET.policy
    grants = [allowance.grant(index * MINUTE, debug_job(), policy) for index in range(9)]
    assert grants == [True] * 8 + [False], "16 GPU-hours are eight jobs of 8 devices and 15 minutes"
    assert allowance.grant(10 * MINUTE, debug_job(author="bob"), policy)
    assert "16.0 of 16.0" in allowance.explain(10 * MINUTE, "ada", policy)
    assert not allowance.grant(DAY - 1, debug_job(), policy)
    assert allowance.grant(DAY, debug_job(), policy), "the first grant is a day old"
    assert not allowance.grant(DAY, debug_job(), policy)
    assert allowance.used(3 * DAY, "ada") == 0


def test_a_refused_job_uses_no_allowance():
    allowance, policy = DebugAllowance(), BUDGET.policy
    for _ in range(100):
        allowance.grant(0, debug_job(gpus=9), policy)
    assert allowance.used(0, "ada") == 0


def test_an_allowance_read_back_counts():
    allowance, policy = DebugAllowance(), BUDGET.policy
    allowance.remember(0, "ada", 15 * HOUR)
    assert not allowance.grant(HOUR, debug_job(), policy)
    assert allowance.grant(HOUR, debug_job(gpus=4), policy)
