import math

import numpy as np
import pytest

from divvy.errors import InputError
from divvy.fleet.budget import Policy
from divvy.sim.contract_file import parse_contracts
from divvy.sim.contracts import ContractRule, Contracts, Declare, draw
from divvy.sim.traces.trace import TraceJob
from divvy.units import HOUR, MINUTE, SECOND

JOBS = [
    TraceJob(f"j{n}", n * SECOND, (1 + n % 300) * 10 * MINUTE, 1 + n % 16, "ab"[n % 2]) for n in range(20_000)
]
PAID = {"a": "lab.a", "b": "lab.b"}


def drawn(contracts=None, policy=None, jobs=JOBS, seed=1, checkpoint=30 * MINUTE):
    return draw(jobs, PAID, contracts or Contracts(), policy or Policy(), checkpoint, seed)


def test_honest_users_declare_their_runtime_times_a_lognormal_clipped():
    work = drawn()
    declared = np.array([spec.min_runtime for spec in work.spec])
    assert np.mean(declared == 0) == pytest.approx(0.18, abs=0.01)
    charged = declared > 0
    assert declared[charged].min() == 15 * MINUTE
    assert declared.max() == 8 * HOUR
    # Jobs of 2 h are 2.1 sigma above the lower and 1.4 sigma below the upper clip: their middle is unclipped.
    near = charged & (np.array(work.runtime) == 2 * HOUR)
    ratios = np.log(declared[near] / (2 * HOUR))
    assert np.median(ratios) == pytest.approx(0, abs=0.2)
    quartiles = np.quantile(ratios, [0.25, 0.75])
    assert quartiles == pytest.approx([-0.674, 0.674], abs=0.25)


def test_a_tenth_of_the_jobs_is_not_resumable_and_ends_when_preempted():
    work = drawn()
    assert np.mean([spec.resumable for spec in work.spec]) == pytest.approx(0.9, abs=0.01)
    assert not any(spec.restart for spec in work.spec)
    again = drawn(Contracts(ContractRule(restart=True)))
    assert all(spec.restart is not spec.resumable for spec in again.spec)


def test_limits_are_lognormal_above_the_truth_and_never_below_truth_or_minimum():
    work = drawn()
    ratio = np.array([spec.time_limit for spec in work.spec]) / np.array(work.runtime)
    assert ratio.min() >= 1
    assert all(spec.time_limit >= spec.min_runtime for spec in work.spec)
    small = np.array([spec.min_runtime == 0 for spec in work.spec])  # untouched by the declaration
    assert np.median(ratio[small]) == pytest.approx(math.exp(0.5), rel=0.05)
    at_truth = np.mean(ratio[small] < 1.0001)  # the part of exp(0.5 + 0.7 z) below 1
    assert at_truth == pytest.approx(0.2375, abs=0.02)


def test_checkpoints_begin_at_a_phase_that_nobody_can_read_off_the_job():
    work = drawn()
    phase = np.array(work.phase)
    assert phase.min() >= 1
    assert phase.max() <= 30 * MINUTE
    assert phase.mean() == pytest.approx(15 * MINUTE, rel=0.02)
    assert drawn(checkpoint=0).phase == [1] * len(JOBS)


def test_authors_follow_a_zipf_law_within_their_account():
    work = drawn()
    ranks = [spec.author for spec in work.spec if spec.account == "lab.a"]
    first, second = ranks.count("a-u01"), ranks.count("a-u02")
    assert first / second == pytest.approx(2, rel=0.1)
    assert len(set(ranks)) == 20
    assert {author[0] for author in ranks} == {"a"}


def test_the_same_seed_draws_the_same_and_another_one_something_else():
    assert drawn().spec == drawn().spec
    assert drawn().spec != drawn(seed=2).spec


def test_rules_differ_in_nothing_but_what_they_change():
    honest, capped, zero = (drawn(Contracts(ContractRule(declare=declare))) for declare in Declare)
    assert {spec.min_runtime for spec in capped.spec} == {8 * HOUR}
    assert {spec.min_runtime for spec in zero.spec} == {0}
    for one, two, three in zip(honest.spec, capped.spec, zero.spec, strict=True):
        assert (one.resumable, one.author) == (two.resumable, two.author) == (three.resumable, three.author)
    assert honest.phase == capped.phase == zero.phase


def test_the_cap_of_the_policy_holds():
    policy = Policy(max_min_runtime=10 * MINUTE)
    assert max(spec.min_runtime for spec in drawn(policy=policy).spec) == 10 * MINUTE
    wide = Policy(max_min_runtime=24 * HOUR)
    assert max(spec.min_runtime for spec in drawn(policy=wide).spec) == 24 * HOUR


def test_what_the_trace_says_is_kept():
    job = TraceJob(
        "x", 0, HOUR, 4, "a", "ada", min_runtime=7 * MINUTE, resumable=False, restart=True, time_limit=0
    )
    work = drawn(Contracts(ContractRule(declare=Declare.ALL_CAP)), jobs=[job])
    (spec,) = work.spec
    assert (spec.author, spec.min_runtime, spec.resumable, spec.restart) == ("ada", 7 * MINUTE, False, True)
    assert spec.time_limit == 0


def test_the_debug_rule_is_bounded_per_author_and_day():
    jobs = [
        TraceJob(f"d{n}", n, MINUTE, 8, "a", "ada", min_runtime=15 * MINUTE, resumable=True)
        for n in range(12)
    ]
    # 16 GPU-hours a day are 8 jobs of 8 GPUs and 15 minutes.
    assert drawn(jobs=jobs).debug == [True] * 8 + [False] * 4


def test_accounts_may_have_rules_of_their_own():
    contracts = parse_contracts('zero_share = 0\n[accounts.a]\ndeclare = "all-cap"\n', "c.toml")
    work = drawn(contracts)
    assert {spec.min_runtime for spec in work.spec if spec.account == "lab.a"} == {8 * HOUR}
    assert min(spec.min_runtime for spec in work.spec if spec.account == "lab.b") == 15 * MINUTE


def test_every_parameter_of_a_contract_file_is_read():
    text = """
        declare = "zero"
        spread = 0.5
        shortest = "5m"
        zero_share = 0.25
        not_resumable = 0.2
        restart = true
        limit_mu = 0.1
        limit_sigma = 0.2
        authors = 3
        zipf = 1.5
    """
    assert parse_contracts(text, "c.toml").default == ContractRule(
        Declare.ZERO,
        0.5,
        5 * MINUTE,
        0.25,
        0.2,
        restart=True,
        limit_mu=0.1,
        limit_sigma=0.2,
        authors=3,
        zipf=1.5,
    )


def test_all_faults_of_a_contract_file_are_reported_at_once():
    text = """
        declare = "sometimes"
        shortest = 900
        zero_share = 1.5
        authors = 0
        restart = "no"
        colour = "red"
        [accounts]
        b = 3
        [accounts.a]
        spread = "wide"
    """
    with pytest.raises(InputError) as caught:
        parse_contracts(text, "c.toml")
    assert [fault.path for fault in caught.value.faults] == [
        "c.toml.declare",
        "c.toml.shortest",
        "c.toml.zero_share",
        "c.toml.authors",
        "c.toml.restart",
        "c.toml.colour",
        "c.toml.accounts.b",
        "c.toml.accounts.a.spread",
    ]


@pytest.mark.parametrize(
    ("text", "code"), [("declare =", "contract-syntax"), ("accounts = 3", "contract-type")]
)
def test_a_file_that_holds_no_rules_is_refused(text, code):
    with pytest.raises(InputError) as caught:
        parse_contracts(text, "c.toml")
    assert caught.value.code == code
