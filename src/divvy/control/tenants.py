"""What services ask of the scheduler: leases that begin and end with their demand, as events.

Demand comes from rates and objectives (the curve of the slices planner); this file turns it into jobs. Leases
up to the account's share are allocated, those beyond it unallocated, so that what nobody uses is lent by the
contract and taken back by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from divvy.fleet.event import Event, Stopping, Submitted, Withdrawn
from divvy.fleet.job import Phase, StopCause
from divvy.fleet.node import NodeState
from divvy.fleet.snapshot import Snapshot
from divvy.fleet.tenant import MARK, Service, Tenants, lease, share_out


def funded(snapshot: Snapshot, tenants: Tenants, wanted: Mapping[str, int]) -> dict[str, int]:
    """Return how many GPUs each service may hold allocated: up to its account's share of the fleet.

    The services of one account share it by `share_out`.
    """
    tree, nodes = snapshot.tree, snapshot.nodes.node
    total = sum(node.gpus * node.weight for node in nodes if node.state is not NodeState.DOWN)
    answer: dict[str, int] = {}
    for account in dict.fromkeys(service.account for service in tenants.services):
        mine = [service for service in tenants.services if service.account == account]
        weights = [
            max((node.weight for node in nodes if service.model in ("", node.model)), default=1)
            for service in mine
        ]
        room = float(tree.share[tree.leaf(account)]) * total
        given = share_out([wanted.get(service.name, 0) for service in mine], weights, room)
        answer |= {service.name: count for service, count in zip(mine, given, strict=True)}
    return answer


def claims(snapshot: Snapshot, tenants: Tenants, wanted: Mapping[str, int], now: int) -> Iterator[Event]:
    """Yield the leases that begin and end, given how many GPUs each service wants now.

    Apply each event before the next is made.
    """
    asked = {
        service.name: min(max(wanted.get(service.name, 0), service.least), service.most)
        for service in tenants.services
    }
    paid = funded(snapshot, tenants, asked)
    for service in tenants.services:
        total = asked[service.name]
        yield from _adjust(snapshot, service, paid[service.name], now, allocated=True)
        yield from _adjust(snapshot, service, total - paid[service.name], now, allocated=False)


def _adjust(
    snapshot: Snapshot, service: Service, count: int, now: int, *, allocated: bool
) -> Iterator[Event]:
    jobs = snapshot.jobs
    mine = leases_of(snapshot, service.mark, service.account, allocated=allocated)
    number = max((_number(name) for name in jobs.row if name.startswith(f"{service.name}.")), default=0)
    for _ in range(count - len(mine)):
        number += 1
        yield Submitted(now, lease(service, number, allocated=allocated))
    for row in ending_order(snapshot, mine)[: max(len(mine) - count, 0)]:
        if jobs.phase[row] is Phase.QUEUED:
            yield Withdrawn(now, jobs.spec[row].id)
        elif jobs.phase[row] is not Phase.STOPPING:
            yield Stopping(now, jobs.spec[row].id, StopCause.CANCELLED)


def leases_of(snapshot: Snapshot, mark: str, account: str, *, allocated: bool) -> list[int]:
    """Return the rows of a service's leases of one kind, those that were told to end left out."""
    jobs = snapshot.jobs
    return [
        row
        for row in jobs.live
        if (jobs.spec[row].name, jobs.spec[row].account) == (mark, account)
        and jobs.spec[row].allocated is allocated
        and not (jobs.phase[row] is Phase.STOPPING and jobs.stop_cause[row] is StopCause.CANCELLED)
    ]


def ending_order(snapshot: Snapshot, rows: Sequence[int]) -> list[int]:
    """Return leases in the order in which they end: which of them runs on is all the same to a service.

    Those that wait come first, then those on nodes with the fewest leases, so that whole nodes come free for
    gangs and what is left lies close together; of equal ones the youngest.
    """
    jobs, there = snapshot.jobs, Counter[int]()
    for row in jobs.live:
        if jobs.spec[row].name.startswith(MARK) and jobs.phase[row] is not Phase.STOPPING:
            there.update(node for node, _ in jobs.placement[row])

    def key(row: int) -> tuple[bool, int, int]:
        waits = jobs.phase[row] is Phase.QUEUED
        return not waits, sum(there[node] for node, _ in jobs.placement[row]), -row

    return sorted(rows, key=key)


def _number(lease_id: str) -> int:
    """Return the number of a lease; 0 where the id is not of that form."""
    digits = lease_id.rpartition(".")[2]
    return int(digits) if digits.isdecimal() else 0
