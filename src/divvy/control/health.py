"""Health of nodes: the events that drain them and bring them back."""

from __future__ import annotations

from dataclasses import replace

from divvy.control.state import FleetState
from divvy.errors import NotFoundError
from divvy.fleet.event import NodeChanged
from divvy.fleet.node import NodeState


def with_node_state(state: FleetState, name: str, to: NodeState, cause: str, at: int) -> NodeChanged:
    """Return the event that gives a node another health.

    Raises:
        NotFoundError: If there is no such node.
    """
    nodes = state.snapshot.nodes
    row = nodes.row.get(name)
    if row is None:
        raise NotFoundError.one(
            "node-unknown", f"no node {name}", path="node", allowed=", ".join(sorted(nodes.row)[:20])
        )
    return NodeChanged(at, replace(nodes.node[row], state=to, cause=cause))
