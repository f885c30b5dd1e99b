"""Two ways to run the same work on the same GPUs: one plan, or a fleet in two parts with their own tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from divvy.control.tenants import ending_order, leases_of
from divvy.fleet.event import Event, Stopping, Withdrawn
from divvy.fleet.job import JobSpec, Phase, StopCause
from divvy.fleet.node import Node
from divvy.fleet.snapshot import Snapshot
from divvy.fleet.tenant import MARK, Tenants, lease, share_out
from divvy.planners.slices.capacity import Curve
from divvy.sim.contracts import Workload
from divvy.sim.scenario import Scenario
from divvy.sim.steps import Floats
from divvy.sim.whole.traffic import Traffic, rates, seen_rates, spans

TRAIN: Final = "train"
SERVE: Final = "serve"
#: A fixed part may be larger than what a service that shares would ever hold, by this factor.
MOST_APART: Final = 2
#: A lease ends when its demand does; it has no runtime of its own.
_ENDLESS: Final = 1 << 52


@dataclass(frozen=True)
class Whole:
    """A scenario of the whole fleet.

    Attributes:
        scenario: Training jobs, nodes, budget; it stops at ``until``.
        tenants: Services and pairings; their rates are means.
        curves: Per service, what numbers of GPUs serve.
        traffic: How rates move.
        until: End of the replay, ms.
        warmup: What counts for nothing at the beginning, ms.
    """

    scenario: Scenario
    tenants: Tenants
    curves: Mapping[str, Curve]
    traffic: Traffic
    until: int
    warmup: int

    def rates(self, seed: int) -> dict[str, Floats]:
        """Return the rates of every service by epoch."""
        return {
            one.name: rates(self.traffic, one.rate_qps, self.until, seed, number)
            for number, one in enumerate(self.tenants.services)
        }

    def wanted(self, by_service: Mapping[str, Floats]) -> dict[str, list[int]]:
        """Return the GPUs that every service asks for by epoch, from rates that it has seen."""
        return {
            one.name: [
                max(one.least, self.curves[one.name].needed(rate * (1 + one.headroom), one.most))
                for rate in seen_rates(by_service[one.name]).tolist()
            ]
            for one in self.tenants.services
        }


@dataclass(frozen=True)
class Lot:
    """What one replay is fed with.

    Attributes:
        scenario: The fleet as it is divided.
        workload: Training jobs and leases.
        ends: When leases end, ms, and of which kind.
    """

    scenario: Scenario
    workload: Workload
    ends: tuple[tuple[int, JobSpec], ...]


class LeaseEnds:
    """Ends leases when their demand ends, as an asker of a replay.

    It says how many of a kind end; which ones is decided as it is live (`control.tenants.ending_order`).

    Args:
        ends: Ends of leases: (ms, the lease that a trace would name).
    """

    def __init__(self, ends: Sequence[tuple[int, JobSpec]]) -> None:
        self._ends = sorted(ends, key=lambda end: end[0], reverse=True)

    def next_at(self) -> int | None:
        """Return when the next lease ends, ms."""
        return self._ends[-1][0] if self._ends else None

    def poll(self, now: int, snapshot: Snapshot) -> Iterable[Event]:
        """Return the ends that are due."""
        due: Counter[tuple[str, str, bool]] = Counter()
        while self._ends and self._ends[-1][0] <= now:
            spec = self._ends.pop()[1]
            due[spec.name, spec.account, spec.allocated] += 1
        jobs, found = snapshot.jobs, list[Event]()
        for (mark, account, allocated), count in due.items():
            mine = leases_of(snapshot, mark, account, allocated=allocated)
            for row in ending_order(snapshot, mine)[:count]:
                name = jobs.spec[row].id
                if jobs.phase[row] is Phase.QUEUED:
                    found.append(Withdrawn(now, name))
                else:
                    found.append(Stopping(now, name, StopCause.CANCELLED))
        return found


def together(whole: Whole, seed: int, wanted: Mapping[str, Sequence[int]]) -> Lot:
    """Return one fleet: leases follow the demand, allocated up to the account's share, lent beyond it."""
    paid = _paid(whole, wanted)
    leases: list[tuple[int, JobSpec, int]] = []
    for one in whole.tenants.services:
        mine, every = paid[one.name], wanted[one.name]
        lent = [count - funded for count, funded in zip(every, mine, strict=True)]
        some = [
            (begin, end, allocated)
            for counts, allocated in ((mine, True), (lent, False))
            for _, begin, end in spans(counts, whole.traffic.epoch, whole.until)
        ]
        for number, (begin, end, allocated) in enumerate(sorted(some), start=1):
            leases.append((begin, lease(one, number, allocated=allocated)._replace(model=""), end))
    ends = tuple((end, spec) for _, spec, end in leases if end < whole.until)
    work = _merged(whole.scenario.workload(seed), [(begin, spec) for begin, spec, _ in leases])
    return Lot(whole.scenario, work, ends)


def _paid(whole: Whole, wanted: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """Return by epoch how many GPUs of each service its account pays for."""
    tree, services = whole.scenario.budget.tree, whole.tenants.services
    found: dict[str, list[int]] = {one.name: [] for one in services}
    for account in dict.fromkeys(one.account for one in services):
        names = [one.name for one in services if one.account == account]
        room = float(tree.share[tree.leaf(account)]) * whole.scenario.gpus
        for counts in zip(*(wanted[name] for name in names), strict=True):
            for name, given in zip(names, share_out(counts, [1.0] * len(names), room), strict=True):
                found[name].append(given)
    return found


def apart(whole: Whole, seed: int, parts: Mapping[str, int]) -> Lot:
    """Return two fleets: each service holds a fixed number of GPUs for ever, training has the rest.

    The parts are two kinds of device, so that accounts and what they are owed stay those of the whole fleet.
    """
    nodes = divided(whole.scenario.nodes, sum(parts.values()))
    work = whole.scenario.workload(seed)
    work.spec[:] = [spec._replace(model=TRAIN) for spec in work.spec]
    leases = [
        (0, lease(one, number, allocated=True)._replace(model=SERVE))
        for one in whole.tenants.services
        for number in range(1, parts[one.name] + 1)
    ]
    return Lot(replace(whole.scenario, nodes=nodes), _merged(work, leases), ())


def divided(nodes: Sequence[Node], serving: int) -> tuple[Node, ...]:
    """Return the nodes with the last so many GPUs as a part of their own; one node may be in both."""
    out: list[Node] = []
    left = serving
    for node in reversed(nodes):
        take = min(left, node.gpus)
        left -= take
        if take:
            out.append(replace(node, name=f"{node.name}:{SERVE}", gpus=take, model=SERVE))
        if take < node.gpus:
            out.append(replace(node, gpus=node.gpus - take, model=TRAIN))
    return tuple(reversed(out))


def _merged(work: Workload, leases: Sequence[tuple[int, JobSpec]]) -> Workload:
    """Return a workload with leases in it, in order of submission; leases first where times are equal."""
    rows = [
        (submit, 1, spec, debug, runtime, phase)
        for submit, spec, debug, runtime, phase in zip(
            work.submit, work.spec, work.debug, work.runtime, work.phase, strict=True
        )
    ]
    rows += [(begin, 0, spec, False, _ENDLESS, 1) for begin, spec in leases]
    rows.sort(key=lambda row: row[:2])
    return Workload(
        [row[2] for row in rows],
        [row[0] for row in rows],
        [row[3] for row in rows],
        [row[4] for row in rows],
        [row[5] for row in rows],
        {row[2].id: place for place, row in enumerate(rows)},
    )


def fixed_parts(
    whole: Whole, own: Mapping[str, Curve], by_service: Mapping[str, Floats], part: float
) -> dict[str, int]:
    """Return fixed numbers of GPUs: what each service needs at a quantile of its rates, by its own curve.

    Args:
        whole: The scenario.
        own: Curves of the planner and rule that serve there.
        by_service: Rates by epoch; the one who divides the fleet knows them all.
        part: The quantile; 1 is the peak.
    """
    return {
        one.name: max(
            one.least,
            1,
            own[one.name].needed(
                float(np.quantile(by_service[one.name], part)) * (1 + one.headroom), one.most * MOST_APART
            ),
        )
        for one in whole.tenants.services
    }


def is_lease(spec: JobSpec) -> bool:
    """Return whether a job of a lot is a lease."""
    return spec.name.startswith(MARK)
