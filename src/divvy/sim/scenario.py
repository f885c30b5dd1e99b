"""Scenarios: a workload, a fleet and a budget, ready to be replayed under any policy and seed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from divvy.errors import InputError
from divvy.fleet.budget import Budget
from divvy.fleet.device import GENERIC, weight_of
from divvy.fleet.node import Node
from divvy.sim.accounts import Claims
from divvy.sim.contracts import Contracts, Workload, draw
from divvy.sim.engine import Pace
from divvy.sim.overlay import Overlay, add_gangs
from divvy.sim.traces.trace import CapacityChange, Trace, TraceJob
from divvy.units import MINUTE

POOL: Final = "pool"
CHECKPOINT: Final = 30 * MINUTE
_SHAPE: Final = re.compile(
    r"(?:(?P<cluster>[A-Za-z0-9_-]{1,63}):)?(?P<count>[1-9]\d{0,5})\s*[xX]\s*(?P<size>[1-9]\d{0,5})"
    r"(?:@(?P<model>[A-Za-z0-9_.-]{1,63}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that a replay needs besides the policy and the seed.

    Attributes:
        trace: Jobs and changes of the fleet.
        nodes: The fleet at the beginning.
        budget: Accounts, shares and settings of the policy.
        claims: Which account of the budget pays for which account of the trace.
        contracts: How contracts are drawn where the trace has none.
        pace: Checkpoints and restore.
        overlay: Extra gangs; None for none.
        until: When the replay stops, ms; None runs every job to its end.
    """

    trace: Trace
    nodes: tuple[Node, ...]
    budget: Budget
    claims: Claims
    contracts: Contracts = field(default_factory=Contracts)
    pace: Pace = field(default_factory=lambda: Pace(CHECKPOINT))
    overlay: Overlay | None = None
    until: int | None = None

    @property
    def gpus(self) -> int:
        """Return the devices at the beginning."""
        return sum(node.gpus for node in self.nodes)

    def capacity(self) -> list[CapacityChange]:
        """Return the fleet at the beginning and its later changes, in order of time."""
        return [*(CapacityChange(0, node) for node in self.nodes), *self.trace.capacity]

    def jobs(self, seed: int) -> tuple[TraceJob, ...]:
        """Return the jobs as the trace has them, with the gangs that a seed lays over them."""
        if self.overlay is None:
            return self.trace.jobs
        return add_gangs(self.trace, self.overlay, self.gpus, seed)

    def workload(self, seed: int) -> Workload:
        """Return the jobs with the contracts that a seed draws; the same for every policy."""
        jobs = self.jobs(seed)
        return draw(jobs, self.claims.paid_by, self.contracts, self.budget.policy, self.pace.checkpoint, seed)


def build_fleet(gpus: int | None, shape: str | None) -> tuple[Node, ...]:
    """Return K nodes of M devices for a shape ``KxM``, or one pooled node where no shape is given.

    A shape may be several with commas between them, each with its cluster and its device model:
    ``east:4x8@H100-80GB,west:2x4``.

    Raises:
        InputError: If neither is given, the shape cannot be read, or the two contradict each other.
    """
    if shape is None:
        if gpus is None:
            raise InputError.one(
                "fleet-size",
                "the size of the fleet is not given",
                path="--gpus",
                fix="add --gpus N or --nodes KxM",
            )
        if gpus < 1:
            raise InputError.one("fleet-size", f"{gpus} devices", path="--gpus", allowed="1 or more")
        return (Node(POOL, gpus),)
    parts = [_SHAPE.fullmatch(part.strip()) for part in shape.split(",")]
    found = [match for match in parts if match is not None]
    if len(found) < len(parts):
        raise InputError.one(
            "fleet-shape",
            f"{shape!r} is not a shape of nodes",
            path="--nodes",
            allowed="KxM, K nodes of M devices each; CLUSTER:KxM@MODEL, several with commas",
            fix='write for example "29x8"',
        )
    total = sum(int(match["count"]) * int(match["size"]) for match in found)
    if gpus is not None and gpus != total:
        raise InputError.one(
            "fleet-shape",
            f"{shape} has {total} devices, --gpus says {gpus}",
            path="--nodes",
            fix="make them agree or leave --gpus out",
        )
    return tuple(_nodes(found))


def _nodes(parts: Sequence[re.Match[str]]) -> Iterator[Node]:
    """Yield the nodes of all parts of a shape; they are numbered through."""
    width = len(str(sum(int(part["count"]) for part in parts)))
    number = 0
    for part in parts:
        cluster, model = part["cluster"] or "", part["model"] or GENERIC.name
        for _ in range(int(part["count"])):
            number += 1
            name = f"node{number:0{width}d}"
            yield Node(name, int(part["size"]), model, weight_of(model), cluster=cluster)
