"""The pipeline: no stage sees a later one, equal inputs give equal bytes, each runs on what the last one left."""

from hypothesis import given, settings
from hypothesis import strategies as st

from divvy.cli.one_means import roads_of
from divvy.control.codec import canonical, restore, state_document
from divvy.control.one_plan import one_plan_document, read_tenancy, tenancy_document
from divvy.control.paper import carry_out, settle
from divvy.control.state import FleetState
from divvy.control.tenants import claims
from divvy.fleet.budget import parse_budget
from divvy.fleet.decision import Plan
from divvy.fleet.event import NodeChanged, Submitted
from divvy.fleet.job import JobSpec
from divvy.fleet.mig.skus import find_sku
from divvy.fleet.node import Node
from divvy.fleet.tenant import Pairing, Service, Tenants
from divvy.perf.fitted import fitted_profile
from divvy.perf.traffic import lognormal
from divvy.planners.base import Context
from divvy.planners.jobs.budget import BudgetPlanner
from divvy.planners.pipeline import Means, Tenancy, granted, plan, routed, sliced
from divvy.planners.slices.base import Request
from divvy.planners.slices.capacity import Block, Curve
from divvy.planners.slices.packing import lay_out, shapes
from divvy.planners.transfers.candidates import Finder
from divvy.units import HOUR, MINUTE

SKU = find_sku("A100-80GB")
BUDGET = parse_budget(
    "[accounts.lab]\nshare = 100\n[accounts.lab.train]\nshare = 60\n[accounts.lab.serve]\nshare = 40\n"
)
NODES = tuple(Node(f"n{number}", 8, "A100-80GB", 312) for number in range(1, 4))
WAYS = roads_of(NODES, ())
REQUEST = Request(SKU, 1, fitted_profile("resnet50"), lognormal(4, 0.9, 32), 60_000)
SHAPES = shapes(SKU)


def service(name, rate):
    return Service(name, "lab.serve", "A100-80GB", "-", "-", rate, 60_000, most=6, model="A100-80GB")


def curve(first, second):
    """Return a curve whose blocks are cut in two ways, with rates made up for the test."""
    one, two = lay_out(SKU, SHAPES[first % len(SHAPES)]), lay_out(SKU, SHAPES[second % len(SHAPES)])
    return Curve(REQUEST, (Block((one,), "fifs", 100.0), Block((two, two), "fifs", 260.0)))


def rated(slices):
    return 12.0 * sum(slices)


def means_of(tenants, cuts, *, pairings=True):
    curves = {one.name: curve(*cuts) for one in tenants.services}
    listed = tenants if pairings else Tenants(tenants.services)
    return Means(
        listed, curves, lambda _: rated, WAYS if pairings else None, Finder(WAYS) if pairings else None
    )


JOBS = st.lists(
    st.tuples(st.integers(1, 12), st.sampled_from((0, 15 * MINUTE, 2 * HOUR)), st.booleans()), max_size=6
)
RATES = st.tuples(st.integers(0, 700), st.integers(0, 700))
CUTS = st.tuples(st.integers(0, 13), st.integers(0, 13))


def fleet(jobs, rates):
    """Return a state with jobs and the leases of two services, and the services."""
    tenants = Tenants(
        (service("prefill", rates[0]), service("decode", rates[1])), (Pairing("prefill", "decode", 10**9),)
    )
    state = FleetState(BUDGET)
    for node in NODES:
        state.apply(NodeChanged(0, node))
    for number, (gpus, minimum, resumable) in enumerate(jobs):
        spec = JobSpec(f"j{number}", "lab.train", "ada", gpus, minimum, resumable=resumable)
        state.apply(Submitted(1_000, spec))
    ask(state, tenants, 1_000)
    return state, tenants


def ask(state, tenants, now):
    for event in claims(
        state.snapshot, tenants, {one.name: int(one.rate_qps // 100) for one in tenants.services}, now
    ):
        state.apply(event)
    for event in settle(state.snapshot, now):
        state.apply(event)


@settings(max_examples=40, deadline=None)
@given(JOBS, RATES, CUTS)
def test_a_stage_does_not_see_the_later_ones(jobs, rates, cuts):
    state, tenants = fleet(jobs, rates)
    context = Context(1_000)
    means = means_of(tenants, cuts)
    whole = plan(BudgetPlanner(), state.snapshot, context, Tenancy(), means)
    assert whole.jobs == BudgetPlanner().plan(state.snapshot, context)
    unpaired = plan(
        BudgetPlanner(), state.snapshot, context, Tenancy(), means_of(tenants, cuts, pairings=False)
    )
    assert (unpaired.jobs, unpaired.slices) == (whole.jobs, whole.slices)
    assert unpaired.after.held == whole.after.held
    other = plan(
        BudgetPlanner(), state.snapshot, context, Tenancy(), means_of(tenants, (cuts[0] + 1, cuts[1]))
    )
    assert other.jobs == whole.jobs


@settings(max_examples=40, deadline=None)
@given(JOBS, RATES, CUTS)
def test_equal_inputs_give_equal_bytes(jobs, rates, cuts):
    state, tenants = fleet(jobs, rates)
    again = restore(state_document(state.snapshot))
    texts = []
    for one in (state, again):
        means = means_of(tenants, cuts)
        found = plan(BudgetPlanner(), one.snapshot, Context(1_000), Tenancy(), means)
        document = one_plan_document(found, one.snapshot, Tenancy(), means, {})
        texts.append(canonical(document))
        assert read_tenancy(tenancy_document(found.after)) == found.after
    assert texts[0] == texts[1]


@settings(max_examples=40, deadline=None)
@given(JOBS, RATES, RATES, CUTS)
def test_each_stage_runs_on_what_the_one_before_it_left(jobs, rates, later, cuts):
    state, tenants = fleet(jobs, rates)
    means = means_of(tenants, cuts)
    found = plan(BudgetPlanner(), state.snapshot, Context(1_000), Tenancy(), means)
    held = granted(state.snapshot, found.jobs, Tenancy(), tenants)
    assert carry_out(state, BudgetPlanner(), found.jobs) == []
    nothing = Plan(state.snapshot.version, 1_000)
    assert granted(state.snapshot, nothing, Tenancy(), tenants) == held
    cut, _, _ = sliced(held, Tenancy(), means, 1_000)
    assert cut == found.after.held
    assert routed(cut, means) == found.after.lanes
    # Once carried out, nothing more is to be done at the same moment.
    ask(state, tenants, 1_000)
    after = plan(BudgetPlanner(), state.snapshot, Context(1_000), found.after, means)
    assert [laid.change.steps for laid in after.slices.values() if laid.change.steps] == []
    assert after.after.lanes == found.after.lanes
    # With other rates every GPU is held once, on a device of its own, and keeps its number.
    _, moved = fleet(jobs, later)
    ask(state, moved, 2_000)
    then = plan(BudgetPlanner(), state.snapshot, Context(2_000), found.after, means_of(moved, cuts)).after
    places = [one.place for some in then.held.values() for one in some]
    assert len(set(places)) == len(places)
    before = {one.lease: one for some in found.after.held.values() for one in some}
    for some in then.held.values():
        for one in some:
            if one.lease in before and before[one.lease].node == one.node:
                assert one.device == before[one.lease].device
