"""The only place where the planners meet: each runs on the snapshot that the one before it left.

Jobs first: services hold their GPUs as leases, which are jobs, so a gang and a service compete by one rule in
one currency. Then every service's GPUs, as the plan of jobs leaves them, are cut. Then the places that this
gives are paired for caches and routed. No stage sees what a later one thinks: a test runs them alone and
compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from divvy.fleet.decision import Placement, Plan, Start
from divvy.fleet.job import Phase
from divvy.fleet.mig.profile import Layout
from divvy.fleet.snapshot import Snapshot
from divvy.fleet.tenant import Service, Tenants
from divvy.planners.base import Context, JobPlanner
from divvy.planners.slices.capacity import Curve
from divvy.planners.slices.tenancy import Laid, Rated, lay_out
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.roads import Roads
from divvy.planners.transfers.tenancy import Lane, lanes

#: What a GPU of a node is called in the topology: the node's name and the number of its device.
PLACE = "{node}/GPU{device}"


@dataclass(frozen=True, slots=True)
class Held:
    """A GPU that a service holds.

    Attributes:
        lease: Id of the lease.
        node: Name of the node.
        device: Number of the GPU on the node.
        allocated: Whether it is charged.
        layout: How it is cut; empty while it is not.
    """

    lease: str
    node: str
    device: int
    allocated: bool
    layout: Layout = ()

    @property
    def place(self) -> str:
        """Return the name of the GPU in the topology."""
        return PLACE.format(node=self.node, device=self.device)


@dataclass(frozen=True, slots=True)
class Tenancy:
    """What services hold, cut and send: the part of the state that slices and routes need.

    Attributes:
        held: Per service, its GPUs in order of their leases.
        lanes: Per pairing (prefill, decode), where caches go.
        cut_at: Per service, when its serving GPUs were last cut anew, ms.
    """

    held: Mapping[str, tuple[Held, ...]] = field(default_factory=dict)
    lanes: Mapping[tuple[str, str], tuple[Lane, ...]] = field(default_factory=dict)
    cut_at: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Means:
    """What the later planners know besides the snapshot.

    Attributes:
        tenants: Services and pairings.
        curves: Per service, what numbers of GPUs serve.
        rated: Returns, for a service, the rates of slices.
        ways: Roads between the GPUs of the fleet; None where no topology is known: nothing is routed then.
        finder: Finds routes on them.
    """

    tenants: Tenants
    curves: Mapping[str, Curve]
    rated: Callable[[str], Rated]
    ways: Roads | None = None
    finder: Finder | None = None


@dataclass(frozen=True, slots=True)
class OnePlan:
    """Three plans in order, each on what the one before leaves.

    Attributes:
        jobs: Jobs to start, preempt, hold; leases of services among them.
        slices: Per service that holds GPUs, how they are to be cut.
        after: What services hold, cut and send when all of it is carried out.
    """

    jobs: Plan
    slices: Mapping[str, Laid]
    after: Tenancy


def plan(
    planner: JobPlanner, snapshot: Snapshot, context: Context, tenancy: Tenancy, means: Means
) -> OnePlan:
    """Return the plan of the whole fleet; a pure function of its arguments."""
    jobs = planner.plan(snapshot, context)
    held = granted(snapshot, jobs, tenancy, means.tenants)
    cut, slices, cut_at = sliced(held, tenancy, means, context.now)
    routes = routed(cut, means)
    return OnePlan(jobs, slices, Tenancy(cut, routes, cut_at))


# -- 1. what the plan of jobs leaves to services -----------------------------------------------------------


def granted(
    snapshot: Snapshot, jobs: Plan, tenancy: Tenancy, tenants: Tenants
) -> dict[str, tuple[Held, ...]]:
    """Return the GPUs of every service once a plan of jobs is carried out.

    A lease keeps the device it had. A new one takes the lowest number on its node that no lease has: engines
    that count devices themselves confirm or correct it.
    """
    placed = placements(snapshot, jobs)
    known = {one.lease: one for some in tenancy.held.values() for one in some}
    taken: dict[str, set[int]] = {}
    found: dict[str, list[tuple[str, str, bool, int]]] = {service.name: [] for service in tenants.services}
    for row, place in placed.items():
        spec = snapshot.jobs.spec[row]
        owner = tenants.owner(spec)
        if owner is None or not place:
            continue
        node = snapshot.nodes.node[place[0][0]].name
        before = known.get(spec.id)
        device = before.device if before is not None and before.node == node else -1
        if device >= 0:
            taken.setdefault(node, set()).add(device)
        found[owner.name].append((spec.id, node, spec.allocated, device))
    return {name: _numbered(leases, known, taken) for name, leases in found.items()}


def _numbered(
    leases: Sequence[tuple[str, str, bool, int]], known: Mapping[str, Held], taken: dict[str, set[int]]
) -> tuple[Held, ...]:
    held = []
    for lease, node, allocated, device in leases:
        used = taken.setdefault(node, set())
        before = known.get(lease)
        layout: Layout = before.layout if before is not None and device >= 0 else ()
        number = device if device >= 0 else next(n for n in range(len(used) + 1) if n not in used)
        used.add(number)
        held.append(Held(lease, node, number, allocated, layout))
    return tuple(held)


def placements(snapshot: Snapshot, jobs: Plan) -> dict[int, Placement]:
    """Return where every job is once a plan is carried out, by row, in order of submission."""
    table = snapshot.jobs
    there = {
        row: table.placement[row] for row in table.live if table.phase[row] in (Phase.PLACED, Phase.RUNNING)
    }
    for decision in jobs.decisions:
        if isinstance(decision, Start):
            there[decision.job] = decision.placement
        else:
            there.pop(decision.job, None)
    return dict(sorted(there.items()))


# -- 2. slices ---------------------------------------------------------------------------------------------


def sliced(
    held: Mapping[str, tuple[Held, ...]], tenancy: Tenancy, means: Means, now: int
) -> tuple[dict[str, tuple[Held, ...]], dict[str, Laid], dict[str, int]]:
    """Return the GPUs as they are to be cut, the plan of each service, and when each was last cut anew."""
    cut: dict[str, tuple[Held, ...]] = {}
    plans: dict[str, Laid] = {}
    cut_at = dict(tenancy.cut_at)
    for service in means.tenants.services:
        mine = held.get(service.name, ())
        cut[service.name] = mine
        if not mine:
            continue
        laid = _laid(service, mine, tenancy, means, now)
        plans[service.name] = laid
        layouts = dict(laid.layouts)
        cut[service.name] = tuple(
            Held(one.lease, one.node, one.device, one.allocated, layouts[one.lease]) for one in mine
        )
        if laid.recut:
            cut_at[service.name] = now
    return cut, plans, cut_at


def _laid(service: Service, mine: tuple[Held, ...], tenancy: Tenancy, means: Means, now: int) -> Laid:
    last = tenancy.cut_at.get(service.name)
    return lay_out(
        means.curves[service.name],
        [one.lease for one in mine],
        {one.lease: one.layout for one in mine if one.layout},
        service.rate_qps,
        means.rated(service.name),
        float("inf") if last is None else (now - last) / 1000,
    )


# -- 3. routes ---------------------------------------------------------------------------------------------


def routed(held: Mapping[str, tuple[Held, ...]], means: Means) -> dict[tuple[str, str], tuple[Lane, ...]]:
    """Return where the caches of every pairing go, by the GPUs that its services hold."""
    ways, finder = means.ways, means.finder
    if ways is None or finder is None:
        return {}
    return {
        (one.prefill, one.decode): lanes(
            ways,
            finder,
            _places(held, one.prefill, ways),
            _places(held, one.decode, ways),
            one.kv_bytes,
            one.descriptors,
        )
        for one in means.tenants.pairings
    }


def _places(held: Mapping[str, tuple[Held, ...]], service: str, ways: Roads) -> list[str]:
    """Return the GPUs of a service that the topology knows."""
    return [one.place for one in held.get(service, ()) if one.place in ways.topo.vertices]
