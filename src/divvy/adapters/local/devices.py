"""The devices of this machine, the nodes they are offered as, and who holds which."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from divvy.adapters.local.nvml import Gpu
from divvy.errors import Fault, InputError
from divvy.fleet.device import CPU_SLOT, weight_of
from divvy.fleet.event import NodeChanged
from divvy.fleet.node import Node, NodeState

_SHAPE: Final = re.compile(r"(?:(\d+)\s*x\s*)?(\d+)", re.ASCII)
_CLUSTER: Final = re.compile(r"[A-Za-z0-9_-]{1,63}", re.ASCII)
CLUSTERS_HELP: Final = 'for example "east:2x4,west:4"'
SHAPE_HELP: Final = 'devices, or nodes x devices on each, such as "8" or "2x4"'

_GONE: Final = "no longer offered by the local engine"

#: (node name, indices of devices on it) pairs, in the order of the placement.
Assignment = tuple[tuple[str, tuple[int, ...]], ...]


class Device(NamedTuple):
    """A GPU or a CPU slot.

    Attributes:
        ordinal: Number on this machine, across the nodes that it is offered as.
        uuid: Name of the GPU; empty for a CPU slot.
        minor: Minor number of its device file; -1 for a CPU slot.
    """

    ordinal: int
    uuid: str = ""
    minor: int = -1


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node that this machine is offered as. One machine may be several, to try gangs out.

    Attributes:
        name: Unique name.
        model: Device model.
        devices: Its devices; the place in here is the index on the node.
        cluster: Cluster that it belongs to; empty where there is only one.
    """

    name: str
    model: str
    devices: tuple[Device, ...]
    cluster: str = ""

    def to_node(self) -> Node:
        """Return the node as the planners see it."""
        weight = weight_of(self.model)
        return Node(self.name, len(self.devices), self.model, weight, cluster=self.cluster)


def parse_shape(text: str) -> tuple[int, int]:
    """Return (nodes, devices on each) that a shape such as ``2x4`` or ``8`` means.

    Raises:
        ValueError: If the text is not a shape of at least one device.
    """
    match = _SHAPE.fullmatch(text.strip())
    nodes, each = (int(match.group(1) or 1), int(match.group(2))) if match else (0, 0)
    if not nodes or not each:
        raise ValueError(f"{text!r} is not a shape; write {SHAPE_HELP}")
    return nodes, each


def offer_clusters(host: str, text: str) -> tuple[LocalNode, ...]:
    """Return nodes of CPU slots in several clusters, to try them out: ``east:2x4,west:4``.

    Raises:
        ValueError: If the text is not a list of clusters and shapes, or names a cluster twice.
    """
    found: list[LocalNode] = []
    first = 0
    for part in text.split(","):
        cluster, _, shape = part.strip().rpartition(":")
        if not _CLUSTER.fullmatch(cluster) or cluster in {node.cluster for node in found}:
            raise ValueError(f"{part!r} is not a cluster of its own with a shape; write {CLUSTERS_HELP}")
        for node in offer_slots(f"{host}-{cluster}", *parse_shape(shape)):
            devices = tuple(Device(device.ordinal + first) for device in node.devices)
            found.append(replace(node, devices=devices, cluster=cluster))
        first = sum(len(node.devices) for node in found)
    return tuple(found)


def offer_slots(host: str, nodes: int, each: int) -> tuple[LocalNode, ...]:
    """Return nodes of CPU slots; several are called HOST-1, HOST-2, ..."""
    return tuple(
        LocalNode(
            host if nodes == 1 else f"{host}-{number + 1}",
            CPU_SLOT.name,
            tuple(Device(number * each + index) for index in range(each)),
        )
        for number in range(nodes)
    )


def offer_gpus(host: str, gpus: Sequence[Gpu], shape: tuple[int, int] | None = None) -> tuple[LocalNode, ...]:
    """Return nodes of GPUs: one per model, or as many of equal size as the shape says.

    Raises:
        InputError: If the shape asks for more GPUs than there are, or would mix models on a node.
    """
    models = list(dict.fromkeys(gpu.model for gpu in gpus))
    if shape is None:
        return tuple(
            LocalNode(
                host if len(models) == 1 else f"{host}-{model}",
                model,
                _devices(g for g in gpus if g.model == model),
            )
            for model in models
        )
    nodes, each = shape
    if nodes * each > len(gpus) or len(models) > 1:
        raise InputError(
            "the GPUs of this machine cannot be offered in this shape",
            [
                Fault(
                    "node-shape",
                    "nodes",
                    f"{nodes}x{each} asked, {len(gpus)} GPUs of {', '.join(models)} here",
                )
            ],
        )
    return tuple(
        LocalNode(
            host if nodes == 1 else f"{host}-{number + 1}", models[0], _devices(gpus[number * each :][:each])
        )
        for number in range(nodes)
    )


def _devices(gpus: Iterable[Gpu]) -> tuple[Device, ...]:
    return tuple(Device(gpu.ordinal, gpu.uuid, gpu.minor) for gpu in gpus)


def announce(
    offered: Sequence[LocalNode], known: Iterable[Node], busy: Container[str], at: int
) -> list[NodeChanged]:
    """Return what the state must hear about the nodes of this machine, given what it knows.

    A drain that people asked for is kept. A node that is offered no more drains while runs are still on it
    and is down afterwards (see `faded`); offered again, it is up again.

    Args:
        offered: What this machine is offered as.
        known: Nodes as the state knows them.
        busy: Names of nodes on which runs were found.
        at: Now.
    """
    before = {node.name: node for node in known}
    changes: list[NodeChanged] = []
    for local in offered:
        node, old = local.to_node(), before.pop(local.name, None)
        if old is not None:
            node = replace(node, domain=old.domain)
            if old.cause != _GONE:
                node = replace(node, state=old.state, cause=old.cause)
        if node != old:
            changes.append(NodeChanged(at, node))
    for old in before.values():
        if old.state is not NodeState.DOWN:
            state = NodeState.DRAINING if old.name in busy else NodeState.DOWN
            changes.append(NodeChanged(at, replace(old, state=state, cause=_GONE)))
    return changes


def fading(changes: Iterable[NodeChanged]) -> list[Node]:
    """Return the announced nodes that drain because they are offered no more."""
    return [
        change.node
        for change in changes
        if change.node.state is NodeState.DRAINING and change.node.cause == _GONE
    ]


def faded(node: Node, at: int) -> NodeChanged:
    """Return that a node that is offered no more has become empty."""
    return NodeChanged(at, replace(node, state=NodeState.DOWN))


class Book:
    """Who holds which device of the offered nodes."""

    def __init__(self, nodes: Sequence[LocalNode]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._holder: dict[str, list[str]] = {node.name: [""] * len(node.devices) for node in nodes}
        self._held: dict[str, Assignment] = {}

    def misfit(self, placement: Sequence[tuple[str, int]]) -> str:
        """Return why a placement could never be served here; empty where it can."""
        for name, count in placement:
            if name not in self.nodes:
                return f"this machine is not node {name} (it is {', '.join(self.nodes)})"
            if count > len(self.nodes[name].devices):
                return f"node {name} has {len(self.nodes[name].devices)} devices, {count} are asked for"
        return ""

    def take(self, key: str, placement: Sequence[tuple[str, int]]) -> Assignment | None:
        """Give a run its devices, the lowest free ones; None, and nothing taken, while some are held."""
        chosen: list[tuple[str, tuple[int, ...]]] = []
        for name, count in placement:
            free = [index for index, holder in enumerate(self._holder[name]) if not holder][:count]
            if len(free) < count:
                return None
            chosen.append((name, tuple(free)))
        assignment = tuple(chosen)
        self.claim(key, assignment)
        return assignment

    def claim(self, key: str, assignment: Assignment) -> None:
        """Note what a run holds that was found running; devices that are offered no more are let be."""
        self._held[key] = assignment
        for name, indices in assignment:
            holders = self._holder.get(name, [])
            for index in indices:
                if index < len(holders):
                    holders[index] = key

    def busy(self) -> set[str]:
        """Return the names of the nodes on which runs hold devices, also of those offered no more."""
        return {name for assignment in self._held.values() for name, _ in assignment}

    def release(self, key: str) -> None:
        """Free what a run holds, if anything."""
        for name, indices in self._held.pop(key, ()):
            holders = self._holder.get(name, [])
            for index in indices:
                if index < len(holders) and holders[index] == key:
                    holders[index] = ""

    def holders(self) -> dict[str, tuple[str, ...]]:
        """Return per node who holds each device; empty where nobody does."""
        return {name: tuple(holders) for name, holders in self._holder.items()}

    def devices(self, assignment: Assignment) -> tuple[Device, ...]:
        """Return the devices of an assignment, in its order."""
        return tuple(self.nodes[name].devices[index] for name, indices in assignment for index in indices)

    def others(self, assignment: Assignment) -> tuple[Device, ...]:
        """Return the devices of this machine that an assignment does not hold."""
        own = set(self.devices(assignment))
        return tuple(device for node in self.nodes.values() for device in node.devices if device not in own)
