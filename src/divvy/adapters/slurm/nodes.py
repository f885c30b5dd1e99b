"""Slurm's nodes as nodes of the fleet: one per GPU type, as large as managed jobs may use it.

What cannot be given to managed jobs is not there for the planners: GPUs of jobs that are not managed, GPUs
that are cut into shards, what is free on a node that somebody else has reserved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from divvy.adapters.slurm.record import MARK, SlurmJob, SlurmNode, View
from divvy.adapters.slurm.settings import SlurmSettings
from divvy.fleet.device import GENERIC
from divvy.fleet.node import Node, NodeState

#: How the cause of a node's state begins where Slurm is its author.
SLURM: Final = "slurm: "
#: A node that is powered down for want of work is none of these: a job that is released wakes it.
_DOWN: Final = ("DOWN", "FAIL", "NOT_RESPONDING", "FUTURE", "UNKNOWN")
_DRAINED: Final = ("DRAIN",)


class FleetNames:
    """Names and models of the nodes, and which Slurm nodes and types they stand for.

    Args:
        nodes: Slurm's nodes.
    """

    def __init__(self, nodes: Mapping[str, SlurmNode]) -> None:
        self.parts: dict[str, tuple[tuple[str, str, int], ...]] = {}
        """Slurm node to (name here, model, GPUs) of each type on it."""
        self._partition: dict[str, set[str]] = {}
        for node in nodes.values():
            models = node.gpus.models or ((GENERIC.name, node.gpus.total),)
            several = len(models) > 1
            self.parts[node.name] = tuple(
                (f"{node.name}:{model}" if several else node.name, model, count) for model, count in models
            )
            for partition in node.partitions:
                self._partition.setdefault(partition, set()).update(model for model, _ in models)
        self.models = {model for parts in self.parts.values() for _, model, _ in parts}

    def split(self, node: str, gpus: int, models: tuple[tuple[str, int], ...]) -> list[tuple[str, int]]:
        """Return the nodes here on which GPUs of a Slurm node lie; ``models`` are those of the whole job."""
        parts = self.parts.get(node, ())
        wanted = {model for model, _ in models}
        fitting = [part for part in parts if part[1] in wanted] or list(parts)
        found: list[tuple[str, int]] = []
        for place, (name, _, size) in enumerate(fitting):
            take = gpus if place == len(fitting) - 1 else min(gpus, size)
            found.append((name, take))
            gpus -= take
        return found

    def model_of(self, job: SlurmJob) -> str:
        """Return the model that a job must have: the type it names, or the only one of its partitions."""
        named = [model for model, _ in job.gpus.models]
        if len(named) == 1 and named[0] in self.models:
            return named[0]
        if named:
            return ""
        there = set().union(*(self._partition.get(name, set()) for name in job.partition.split(",")))
        return there.pop() if len(there) == 1 and len(self.models) > 1 else ""


def fleet_nodes(
    view: View,
    names: FleetNames,
    settings: SlurmSettings,
    foreign: Mapping[str, int],
    ours: Mapping[str, int],
) -> Iterable[Node]:
    """Yield the nodes of the fleet.

    Args:
        view: What Slurm says.
        names: Made from its nodes.
        settings: How this Slurm is treated.
        foreign: GPUs by node here that jobs which are not managed hold.
        ours: The same of managed jobs.
    """
    reserved = {
        node
        for reservation in view.reservations.values()
        if reservation.active and not reservation.name.startswith(MARK)
        for node in reservation.nodes
    }
    managed = set(settings.partitions)
    for node in view.nodes.values():
        if managed and not managed.intersection(node.partitions):
            continue
        state, cause = _state(node)
        shared = node.shared
        for name, model, count in names.parts[node.name]:
            cut = min(shared, count)
            shared -= cut
            gpus = max(count - cut - foreign.get(name, 0), 0)
            if node.name in reserved:
                gpus = min(gpus, ours.get(name, 0))
            yield Node(name, gpus, model, settings.weight_of(model), state=state, cause=cause)


def _state(node: SlurmNode) -> tuple[NodeState, str]:
    words = node.state.replace("*", "+NOT_RESPONDING").split("+")
    if any(word in _DOWN for word in words):
        return NodeState.DOWN, f"{SLURM}{node.state} {node.reason}".rstrip()
    if any(word.startswith(_DRAINED) for word in words):
        return NodeState.DRAINING, f"{SLURM}{node.reason or node.state}"
    return NodeState.UP, ""
