"""Nodes: machines with devices of one model, and their health."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from divvy.fleet.device import GENERIC


class NodeState(IntEnum):
    """What may happen on a node.

    ``UP`` takes work. ``DRAINING`` takes none; what runs keeps its protection and is stopped at its
    expiry. ``DOWN`` takes none and what ran there is lost.
    """

    UP = 0
    DRAINING = 1
    DOWN = 2


@dataclass(frozen=True, slots=True)
class Node:
    """A machine as the planners see it.

    Attributes:
        name: Unique name.
        gpus: Devices on it.
        model: Name of their device model.
        weight: Charge per device-millisecond (see `divvy.fleet.device`).
        domain: NVLink or rail domain; gangs prefer to stay inside one. Empty: unknown.
        state: Health.
        cause: Why the node is not up; empty when it is.
        cluster: Cluster that it belongs to; gangs stay inside one. Empty: the only one there is.
    """

    name: str
    gpus: int
    model: str = GENERIC.name
    weight: int = GENERIC.weight
    domain: str = ""
    state: NodeState = NodeState.UP
    cause: str = ""
    cluster: str = ""


def devices_by_model(nodes: Iterable[Node], there: Iterable[int]) -> dict[str, int]:
    """Return how many devices of each model count as capacity, in order of name.

    Args:
        nodes: Nodes.
        there: Devices of each that count.
    """
    found: dict[str, int] = {}
    for node, gpus in zip(nodes, there, strict=True):
        if gpus:
            found[node.model] = found.get(node.model, 0) + gpus
    return dict(sorted(found.items()))
