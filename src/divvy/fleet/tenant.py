"""Tenants: inference services that hold GPUs under a budget, beside the jobs.

A service holds its GPUs as *leases*: jobs of one GPU with a contract. Up to its account's share they are
allocated and charged; beyond it they are unallocated, so they borrow what is idle and give it back at once.
The planner of jobs needs no word for services, and a service competes with a gang in the same currency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from divvy.fleet.job import JobSpec
from divvy.units import MINUTE

#: How a lease is marked: the name of its job, before the service's own.
MARK: Final = "service:"
#: Services come before the jobs of their own account: people wait for their answers.
PRIORITY: Final = 10
#: Minimum runtime of an allocated lease where the file says nothing, ms.
CONTRACT: Final = 15 * MINUTE


@dataclass(frozen=True, slots=True)
class Service:
    """What an inference service needs, and who pays for it.

    Attributes:
        name: Unique name.
        account: Path of the leaf account that is charged.
        sku: Kind of GPU, as `divvy slices` names it.
        profile: Latency profile: a CSV file, or ``fitted:MODEL``.
        batches: Distribution of batch sizes, as `divvy slices plan --batch` takes it.
        rate_qps: Queries per second.
        slo_us: Objective from arrival to end, microseconds.
        percentile: Share of queries that must meet it, percent.
        per_bucket: Whether every batch bucket must meet it on its own.
        least: GPUs that it keeps when nothing arrives.
        most: GPUs that it never exceeds.
        contract: Minimum runtime of an allocated lease, ms.
        headroom: What is planned beyond the rate, as a part of it.
        model: Device model that its nodes are known by; empty: any device will do.
        command: What one lease runs on a live engine; empty where the file is for planning only.
    """

    name: str
    account: str
    sku: str
    profile: str
    batches: str
    rate_qps: float
    slo_us: int
    percentile: float = 95.0
    per_bucket: bool = True
    least: int = 0
    most: int = 8
    contract: int = CONTRACT
    headroom: float = 0.1
    model: str = ""
    command: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """Return the job name that its leases carry."""
        return MARK + self.name


@dataclass(frozen=True, slots=True)
class Pairing:
    """KV caches that go from the GPUs of one service to those of another.

    Attributes:
        prefill: Name of the service that fills caches.
        decode: Name of the service that goes on from them.
        kv_bytes: Bytes of one cache.
        descriptors: Pieces that it lies in.
    """

    prefill: str
    decode: str
    kv_bytes: int
    descriptors: int = 1


@dataclass(frozen=True, slots=True)
class Tenants:
    """All services of a fleet, in the order in which they were declared."""

    services: tuple[Service, ...] = ()
    pairings: tuple[Pairing, ...] = ()

    def owner(self, spec: JobSpec) -> Service | None:
        """Return the service that a job is a lease of; None for any other job."""
        if not spec.name.startswith(MARK):
            return None
        found = (s for s in self.services if s.mark == spec.name and s.account == spec.account)
        return next(found, None)


def lease(service: Service, number: int, *, allocated: bool) -> JobSpec:
    """Return the job of one lease."""
    return JobSpec(
        id=f"{service.name}.{number}",
        account=service.account,
        author=service.mark,
        gpus=1,
        min_runtime=service.contract if allocated else 0,
        priority=PRIORITY,
        model=service.model,
        name=service.mark,
    )


def share_out(wanted: Sequence[int], weights: Sequence[float], room: float) -> list[int]:
    """Return how many GPUs each of some services is paid for out of one account's room.

    One GPU at a time goes to the service that has the least part of what it wants, so that two that need each
    other, such as prefill and decode, are short together; of equal ones to the first.

    Args:
        wanted: GPUs by service.
        weights: Charge rate of a GPU by service.
        room: Charge rate that the account may hold.
    """
    given = [0] * len(wanted)
    open_ones = [place for place, count in enumerate(wanted) if count]
    while open_ones:
        place = min(open_ones, key=lambda one: (given[one] / wanted[one], one))
        if weights[place] > room + 1e-9:
            open_ones.remove(place)
            continue
        room -= weights[place]
        given[place] += 1
        if given[place] == wanted[place]:
            open_ones.remove(place)
    return given
