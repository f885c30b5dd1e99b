"""Services as tenants: leases up to the share are charged, those beyond are lent and come back."""

import pytest

from divvy.control.paper import carry_out, settle
from divvy.control.state import FleetState
from divvy.control.tenants import claims, funded
from divvy.fleet.budget import parse_budget
from divvy.fleet.event import NodeChanged, Placed, Started, Submitted
from divvy.fleet.job import JobSpec, Phase
from divvy.fleet.mig.skus import find_sku
from divvy.fleet.node import Node
from divvy.fleet.tenant import Service, Tenants, share_out
from divvy.fleet.tenant_file import read_tenants
from divvy.perf.fitted import fitted_profile
from divvy.perf.traffic import lognormal
from divvy.planners.base import Context
from divvy.planners.jobs.budget import BudgetPlanner
from divvy.planners.slices.base import Request
from divvy.planners.slices.capacity import Block, Curve
from divvy.planners.slices.packing import lay_out as cut
from divvy.planners.slices.tenancy import lay_out
from divvy.units import HOUR, MINUTE

SKU = find_sku("A100-80GB")
BUDGET = parse_budget("[accounts.train]\nshare = 75\n[accounts.serve]\nshare = 25\n")
CHAT = Service("chat", "serve", "A100-80GB", "-", "-", 100.0, 50_000, most=6)
TENANTS = Tenants((CHAT,))
WHOLE, SEVENTHS, PAIR = cut(SKU, (0, 0, 0, 0, 1)), cut(SKU, (7, 0, 0, 0, 0)), cut(SKU, (0, 0, 2, 0, 0))


@pytest.fixture
def state():
    made = FleetState(BUDGET)
    made.apply(NodeChanged(0, Node("n1", 8, "A100-80GB", 312)))
    return made


def ask(state, wanted, now):
    found = list(_applied(state, wanted, now))
    for event in settle(state.snapshot, now):
        state.apply(event)
    return found


def _applied(state, wanted, now):
    for event in claims(state.snapshot, TENANTS, {"chat": wanted}, now):
        state.apply(event)
        yield event


def passing(state, now):
    planner = BudgetPlanner()
    plan = planner.plan(state.snapshot, Context(now))
    assert carry_out(state, planner, plan) == []


def held(state, *, allocated):
    jobs = state.snapshot.jobs
    return sum(
        jobs.phase[row] is Phase.RUNNING and jobs.spec[row].allocated is allocated
        for row in jobs.live
        if TENANTS.owner(jobs.spec[row])
    )


def test_a_service_is_funded_up_to_its_share_and_lent_the_rest(state):
    assert funded(state.snapshot, TENANTS, {"chat": 5}) == {"chat": 2}
    ask(state, 5, 1_000)
    passing(state, 1_000)
    assert (held(state, allocated=True), held(state, allocated=False)) == (2, 3)
    row = state.snapshot.tree.leaf("serve")
    assert state.snapshot.usage[row].rate == 2 * 312
    assert state.snapshot.unallocated[row].rate == 3 * 312


def test_services_of_one_account_are_short_together():
    assert share_out([4, 4], [1, 1], 8) == [4, 4]
    assert share_out([4, 4], [1, 1], 5) == [3, 2]
    assert share_out([6, 2, 0], [1, 1, 1], 4) == [3, 1, 0]
    assert share_out([2, 2], [3, 1], 5) == [1, 2]
    assert share_out([], [], 5) == []


def test_what_was_lent_comes_back_at_once_and_what_is_funded_stays(state):
    ask(state, 5, 1_000)
    passing(state, 1_000)
    state.apply(Submitted(2_000, JobSpec("gang", "train", "ada", 6, 2 * HOUR)))
    passing(state, 2_000)
    jobs = state.snapshot.jobs
    assert jobs.phase[jobs.row["gang"]] is Phase.RUNNING
    assert (held(state, allocated=True), held(state, allocated=False)) == (2, 0)
    # When the gang is over, what waits is lent again.
    state.apply(Submitted(3_000, JobSpec("other", "train", "ada", 1, HOUR)))
    passing(state, 3_000)
    assert held(state, allocated=False) == 0


def test_a_service_takes_back_its_share_from_unallocated_jobs(state):
    state.apply(Submitted(1_000, JobSpec("sweep", "train", "ada", 8, 0)))
    passing(state, 1_000)
    ask(state, 2, 2_000)
    passing(state, 2_000)
    assert held(state, allocated=True) == 2


def test_leases_end_with_the_demand_the_waiting_ones_first(state):
    ask(state, 5, 1_000)
    passing(state, 1_000)
    ask(state, 1, 2_000)
    assert (held(state, allocated=True), held(state, allocated=False)) == (1, 0)
    jobs = state.snapshot.jobs
    assert [jobs.spec[row].id for row in jobs.live] == ["chat.1"]
    assert ask(state, 1, 3_000) == []
    ask(state, 2, 4_000)
    assert [jobs.spec[row].id for row in jobs.live] == ["chat.1", "chat.6"]


def test_what_ends_frees_the_node_with_the_fewest_leases():
    made = FleetState(BUDGET)
    for name in ("n1", "n2"):
        made.apply(NodeChanged(0, Node(name, 8, "A100-80GB", 312)))
    for event in claims(made.snapshot, TENANTS, {"chat": 4}, 1_000):
        made.apply(event)
    for number, node in enumerate(("n1", "n2", "n2", "n2"), start=1):
        made.apply(Placed(1_000, f"chat.{number}", ((node, 1),), True))
        made.apply(Started(1_000, f"chat.{number}"))
    (event,) = claims(made.snapshot, TENANTS, {"chat": 3}, 2_000)
    assert event.job == "chat.1"


def test_a_lease_is_known_by_its_name_and_its_payer():
    spec = JobSpec("x", "serve", "eve", 1, MINUTE, name="service:chat")
    assert TENANTS.owner(spec) is CHAT
    assert TENANTS.owner(spec._replace(account="train")) is None
    assert TENANTS.owner(spec._replace(name="chat")) is None


# -- layouts -------------------------------------------------------------------------------------------------

REQUEST = Request(SKU, 1, fitted_profile("resnet50"), lognormal(4, 0.9, 32), 60_000)
CURVE = Curve(REQUEST, (Block((WHOLE,), "fifs", 100.0), Block((SEVENTHS, SEVENTHS), "elsa", 300.0)))


def test_a_curve_puts_groups_together_for_the_highest_rate():
    assert [CURVE.rate(gpus) for gpus in range(6)] == [0, 100, 300, 400, 600, 700]
    assert CURVE.layouts(3) == (SEVENTHS, SEVENTHS, WHOLE) or CURVE.layouts(3) == (WHOLE, SEVENTHS, SEVENTHS)
    assert (CURVE.needed(0, 8), CURVE.needed(301, 8), CURVE.needed(1e9, 8)) == (0, 3, 8)
    assert CURVE.dispatcher(1) == "fifs"
    assert CURVE.dispatcher(3) == "elsa"


def rated(slices):
    return {7: 100.0, 1: 21.0, 3: 40.0}[slices[0]] * len(slices)


def test_new_gpus_are_cut_as_planned():
    laid = lay_out(CURVE, ["a", "b"], {}, 250.0, rated)
    assert dict(laid.layouts) == {"a": SEVENTHS, "b": SEVENTHS}
    assert not laid.recut
    assert laid.rate_qps == 300


def test_a_layout_stays_while_the_demand_is_served():
    laid = lay_out(CURVE, ["a", "b"], {"a": WHOLE, "b": WHOLE}, 190.0, rated)
    assert dict(laid.layouts) == {"a": WHOLE, "b": WHOLE}
    assert laid.change.steps == ()
    assert "kept" in laid.text


def test_a_layout_changes_where_that_pays_and_not_twice_in_a_row():
    laid = lay_out(CURVE, ["a", "b"], {"a": WHOLE, "b": WHOLE}, 290.0, rated)
    assert dict(laid.layouts) == {"a": SEVENTHS, "b": SEVENTHS}
    assert laid.recut
    assert laid.change.lost_gpc_seconds == 2 * 7 * 70
    soon = lay_out(CURVE, ["a", "b"], {"a": WHOLE, "b": WHOLE}, 290.0, rated, seconds_since_last=60)
    assert soon.change.steps == ()


def test_only_the_new_gpu_is_cut_where_the_others_may_stay():
    laid = lay_out(CURVE, ["a", "b"], {"a": PAIR}, 100.0, rated)
    assert dict(laid.layouts) == {"a": PAIR, "b": WHOLE}
    assert not laid.recut


# -- the file ------------------------------------------------------------------------------------------------

GOOD = {
    "name": "chat",
    "account": "serve",
    "sku": "A100-80GB",
    "profile": "fitted:bert",
    "rate_qps": 5,
    "slo": "250ms",
}


def test_a_service_is_read_with_its_defaults():
    faults = []
    tenants = read_tenants(
        {
            "services": [GOOD, {**GOOD, "name": "b", "slo": 80, "model": "any"}],
            "pairings": [{"prefill": "chat", "decode": "b", "kv_bytes": "1.3GB"}],
        },
        "f",
        faults,
    )
    assert faults == []
    chat, other = tenants.services
    assert (chat.slo_us, chat.model, chat.contract, chat.most) == (250_000, "A100-80GB", 15 * MINUTE, 8)
    assert (other.slo_us, other.model) == (80_000, "")
    assert tenants.pairings[0].kv_bytes == 1_300_000_000


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"rate_qps": -1}, "services[0].rate_qps"),
        ({"rate_qps": float("nan")}, "services[0].rate_qps"),
        ({"rate_qps": True}, "services[0].rate_qps"),
        ({"slo": 0}, "services[0].slo"),
        ({"slo": "5"}, "services[0].slo"),
        ({"slo": None}, "services[0].slo"),
        ({"most": 0}, "services[0].most"),
        ({"most": 2.5}, "services[0].most"),
        ({"least": 9}, "services[0].least"),
        ({"name": "a b"}, "services[0].name"),
        ({"account": ""}, "services[0].account"),
        ({"min_runtime": 15}, "services[0].min_runtime"),
        ({"command": "run"}, "services[0].command"),
        ({"per_bucket": 1}, "services[0].per_bucket"),
        ({"unknown": 1}, "services[0].unknown"),
    ],
)
def test_every_fault_of_a_service_has_its_place(change, at):
    faults = []
    read_tenants({"services": [{**GOOD, **change}]}, "f", faults)
    assert [fault.path for fault in faults] == [f"f.{at}"]


def test_faults_of_lists_and_pairings_are_told_together():
    faults = []
    read_tenants(
        {
            "services": [GOOD, GOOD],
            "pairings": [
                {"prefill": "chat", "decode": "gone"},
                {"prefill": "chat", "decode": "chat", "kv_bytes": "1GB"},
            ],
        },
        "f",
        faults,
    )
    assert {fault.path for fault in faults} == {
        "f.services",
        "f.pairings[0].decode",
        "f.pairings[0].kv_bytes",
        "f.pairings[1].decode",
    }
    faults = []
    read_tenants({"services": 3, "pairings": [1]}, "f", faults)
    assert [fault.code for fault in faults] == ["tenant-type", "tenant-type"]
