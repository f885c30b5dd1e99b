"""Drains that people ask for outlast what an engine says about the node's health."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from divvy.control.ports import Engine, Order
from divvy.control.state import FleetState
from divvy.fleet.event import Event, NodeChanged
from divvy.fleet.node import NodeState

#: How the cause of such a drain begins; the name of who asked follows, then a colon and the reason.
DRAINED_BY: Final = "drained by "


class DrainKeeper:
    """An engine whose healthy nodes stay out of service while somebody wants them drained.

    An engine reports its nodes afresh whenever it starts and cannot know what was asked of the loop.

    Args:
        engine: The engine.
        state: Holds the drains.
    """

    def __init__(self, engine: Engine, state: FleetState) -> None:
        self._engine = engine
        self._state = state

    def submit(self, orders: Sequence[Order]) -> Iterable[Event]:
        """Pass orders on."""
        return self._keep(self._engine.submit(orders))

    def poll(self) -> Iterable[Event]:
        """Return what happened."""
        return self._keep(self._engine.poll())

    def _keep(self, events: Iterable[Event]) -> Iterator[Event]:
        nodes = self._state.snapshot.nodes
        for event in events:
            if isinstance(event, NodeChanged) and event.node.state is NodeState.UP:
                row = nodes.row.get(event.node.name)
                if row is not None and nodes.node[row].cause.startswith(DRAINED_BY):
                    kept = nodes.node[row]
                    yield NodeChanged(
                        event.at, replace(event.node, state=NodeState.DRAINING, cause=kept.cause)
                    )
                    continue
            yield event
