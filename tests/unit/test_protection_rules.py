"""Price and cap on protection, back-off and lifetime of unallocated work, limits: in replay, by hand."""

from dataclasses import replace
from decimal import Decimal

import pytest

from divvy.control.state import FleetState
from divvy.fleet.account import AccountSpec, build_tree
from divvy.fleet.budget import Budget, Policy
from divvy.fleet.event import NodeChanged, Placed, Started, Stopped, Submitted
from divvy.fleet.job import JobSpec, StopCause
from divvy.fleet.node import Node
from divvy.fleet.price import entry_charge, surcharge, used_surcharge
from divvy.planners.jobs.budget import BudgetPlanner
from divvy.sim.accounts import Claims
from divvy.sim.engine import Pace
from divvy.sim.events import event_lines
from divvy.sim.replay import replay
from divvy.sim.scenario import Scenario
from divvy.sim.traces.trace import Trace, TraceJob
from divvy.units import HOUR, MINUTE
from replayed import runs_of


def play(policy, specs, jobs, nodes=((0, 8),)):
    """Replay jobs given as (id, submit h, runtime h, gpus, account, minimum h)."""
    trace = Trace(
        tuple(
            TraceJob(name, int(at * HOUR), int(run * HOUR), gpus, account, "u", int(least * HOUR), True)
            for name, at, run, gpus, account, least in jobs
        )
    )
    paid = {spec.path: spec.path for spec in specs}
    fleet = tuple(Node(f"n{number}", gpus) for number, gpus in nodes)
    done = replay(
        Scenario(trace, fleet, Budget(policy, build_tree(specs)), Claims(paid, {}), pace=Pace(0, 0)),
        BudgetPlanner(),
    )
    return runs_of(done, "cause"), done


def account(path, share, **rules):
    return replace(AccountSpec(path, Decimal(share)), **rules)


def test_the_first_protected_hour_has_the_ordinary_price():
    assert surcharge(1.5, HOUR, 8) == 0
    assert surcharge(1.5, 3 * HOUR, 8) == 8 * HOUR
    assert surcharge(1, 8 * HOUR, 8) == 0
    assert entry_charge(2, 2 * HOUR, 3) == 3 * 3 * HOUR


def test_only_protection_that_was_used_is_paid_for():
    whole = surcharge(2, 5 * HOUR, 1)
    assert [used_surcharge(whole, 5 * HOUR, hours * HOUR) for hours in (0, 1, 3, 5, 9)] == [
        0,
        0,
        2 * HOUR,
        4 * HOUR,
        4 * HOUR,
    ]


@pytest.mark.parametrize(
    ("ran", "extra"), [(30 * MINUTE, 0), (2 * HOUR, HOUR // 2), (9 * HOUR, 3 * HOUR // 2)]
)
def test_the_price_is_charged_at_once_and_settled_at_the_end(ran, extra):
    entries = []
    budget = Budget(Policy(protection_price=1.5), build_tree([account("a", 100)]))
    state = FleetState(budget, entries.append)
    state.apply(NodeChanged(0, Node("n", 4, "x", 2)))
    state.apply(Submitted(0, JobSpec("j", "a", "ada", 1, 4 * HOUR)))
    state.apply(Placed(0, "j", (("n", 1),), protected=True))
    state.apply(Started(0, "j"))
    usage = state.snapshot.usage[1]
    assert usage.total(0) == 2 * (3 * HOUR // 2), "what the declared protection costs at most"
    state.apply(Stopped(ran, "j", StopCause.FINISHED, requeue=False))
    assert usage.total(ran) == 2 * (ran + extra) == state.snapshot.author_usage[1, "ada"].total(ran)
    assert [(e.cause, e.charge) for e in entries] == [
        ("occupancy", 2 * ran),
        *([("protection-price", 2 * extra)] if extra else []),
    ]


def test_beyond_the_cap_an_account_runs_without_protection():
    specs = [account("a", 50), account("b", 50)]
    jobs = [(f"a{n}", 0, 2, 2, "a", 1) for n in range(4)]
    runs, _ = play(Policy(protection_cap=1), specs, jobs)
    assert [run[3] for run in runs] == [True, True, False, False]
    runs, _ = play(Policy(), specs, jobs)
    assert all(run[3] for run in runs)


def test_a_limit_holds_back_one_author_and_lets_the_next_job_by():
    specs = [account("lab", 100), account("lab.a", 60, max_gpus=4), account("lab.b", 40)]
    jobs = [("a1", 0, 2, 4, "lab.a", 1), ("a2", 0, 1, 2, "lab.a", 1), ("b1", 0, 1, 2, "lab.b", 1)]
    runs, _ = play(Policy(), specs, jobs)
    assert [(name, start) for name, start, *_ in runs] == [("a1", 0), ("b1", 0), ("a2", 2)]


def test_unallocated_work_that_gave_way_rests_longer_each_time():
    jobs = [("u", 0, 9, 8, "a", 0)] + [(f"d{n}", 1 + 2 * n, 0.1, 8, "b", 0.1) for n in range(3)]
    specs = [account("a", 50), account("b", 50)]
    runs, _ = play(Policy(unallocated_backoff=HOUR), specs, jobs)
    assert [start for name, start, *_ in runs if name == "u"] == [0, 2, 5.1]
    runs, _ = play(Policy(), specs, jobs)
    assert [start for name, start, *_ in runs if name == "u"] == [0, 1.1, 3.1, 5.1]


def test_unallocated_work_ends_with_its_lifetime_queued_or_running():
    jobs = [("a", 0, 9, 8, "a", 9), ("u", 0, 9, 8, "a", 0), ("v", 7, 9, 8, "a", 0)]
    runs, done = play(
        Policy(unallocated_lifetime=5 * HOUR, max_min_runtime=9 * HOUR), [account("a", 100)], jobs
    )
    assert runs == [
        ("a", 0, 9, True, StopCause.FINISHED),
        ("v", 9, 12, False, StopCause.LIFETIME),
    ]
    assert any('"cause": "lifetime"' in line for line in event_lines(done))


def test_a_dated_share_holds_from_its_date_on_in_a_replay():
    later = account("b", 0, later=((2 * HOUR, Decimal(50)),))
    jobs = [(f"b{n}", 0, 1, 8, "b", 1) for n in range(9)] + [(f"a{n}", 0, 1, 8, "a", 1) for n in range(9)]
    runs, _ = play(Policy(), [account("a", 50), later], jobs)
    assert [name[0] for name, *_ in runs[:2]] == ["a", "a"], "a share of 0 comes last"
    assert "b" in {name[0] for name, *_ in runs[2:5]}
