"""An order of states and resources that depends on what they are and not on what they are called.

Linear programs have many equally good answers, and a solver returns one that depends on the order of its
rows. So that a machine whose devices are renamed gets the same plan, everything that the program sees is put
into an order that names have no part in. Colours are refined (Weisfeiler and Leman): what a state is, which
transfer begins or ends there, and again and again the colours around it. Where a colour is left on several
states that nothing tells apart, one of them is marked and the refinement goes on. Which one does not matter
as long as they are images of each other in a symmetry of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from divvy.planners.transfers.plan import Transfer
from divvy.planners.transfers.roads import Roads

Colours = NDArray[np.uint64]
Indices = NDArray[np.int64]

_MOST_WORK: Final = 4_000_000
"""Arcs looked at; beyond it the order of the input decides between states that look alike."""


class Order(NamedTuple):
    """Indices of states and of resources, in the order to use."""

    states: list[int]
    resources: list[int]


class _Graph(NamedTuple):
    """The roads as arrays: arcs by their ends, and which arc uses which resource."""

    tail: Indices
    head: Indices
    arc: Indices
    resource: Indices
    arc_colour: Colours


def _mix(values: Colours) -> Colours:
    """Return well-mixed colours (SplitMix64's finish)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)


def canonical(ways: Roads, transfers: Sequence[Transfer]) -> Order:
    """Return the order of the roads for a batch; renaming devices changes no more than the indices in it."""
    graph, states, resources = _first(ways)
    for position, transfer in enumerate(transfers):
        for state, word in ((ways.sources[transfer.source], 1), (ways.sinks[transfer.target], 2)):
            states[state : state + 1] += _mix(np.array([3 * position + word], dtype=np.uint64))
    left = _MOST_WORK
    kinds = 0
    marked = 0
    while True:
        states, resources, kinds, rounds = _refine(graph, states, resources, kinds)
        left -= rounds * len(graph.tail)
        if kinds == len(states) or left <= 0:
            break
        marked += 1
        states[_alike(states)] ^= np.uint64(marked)
    _, resources = _used(graph, states, resources)  # they are a round behind
    return Order(np.argsort(states, kind="stable").tolist(), np.argsort(resources, kind="stable").tolist())


def _first(ways: Roads) -> tuple[_Graph, Colours, Colours]:
    """Return the arrays and the colours to begin with: kinds, capacities, latencies."""
    topo = ways.topo
    words = [f"{topo.vertices[name].kind} {state.split(' ')[0]}" for name, state in ways.names]
    states = np.array([crc32(word.encode()) for word in words], dtype=np.uint64)
    resources = np.ascontiguousarray(ways.capacity).view(np.uint64).copy()
    kinds = [str(topo.links[a.link].kind) if a.link >= 0 else "" for a in ways.arcs]
    latency = np.array([a.latency_us for a in ways.arcs], dtype=np.float64).view(np.uint64)
    colour = _mix(latency + np.array([crc32(kind.encode()) for kind in kinds], dtype=np.uint64))
    uses = [(i, r) for i, a in enumerate(ways.arcs) for r in a.resources]
    graph = _Graph(
        np.array([a.tail for a in ways.arcs], dtype=np.int64),
        np.array([a.head for a in ways.arcs], dtype=np.int64),
        np.array([u[0] for u in uses], dtype=np.int64),
        np.array([u[1] for u in uses], dtype=np.int64),
        colour,
    )
    return graph, _mix(states), _mix(resources)


def _used(graph: _Graph, states: Colours, resources: Colours) -> tuple[Colours, Colours]:
    """Return the colours of arcs by their ends, and of resources by the arcs that use them."""
    arcs = _mix(graph.arc_colour + np.uint64(3) * states[graph.tail] + np.uint64(5) * states[graph.head])
    used = np.zeros_like(resources)
    np.add.at(used, graph.resource, arcs[graph.arc])
    return arcs, _mix(resources + used)


def _refine(
    graph: _Graph, states: Colours, resources: Colours, kinds: int
) -> tuple[Colours, Colours, int, int]:
    """Return the colours once no further state can be told apart, how many there are, rounds done."""
    rounds = 0
    while True:
        rounds += 1
        arcs, resources = _used(graph, states, resources)
        over = np.zeros_like(arcs)
        np.add.at(over, graph.arc, resources[graph.resource])
        arcs = _mix(arcs + over)
        around = np.zeros_like(states)
        np.add.at(around, graph.tail, np.uint64(7) * arcs)
        np.add.at(around, graph.head, np.uint64(11) * arcs)
        states = _mix(states + _mix(around))
        now = len(np.unique(states))
        if now == kinds or now == len(states):
            return states, resources, now, rounds
        kinds = now


def _alike(states: Colours) -> int:
    """Return the first state of the smallest set of states that have the same colour."""
    _, first, counts = np.unique(states, return_index=True, return_counts=True)
    several = np.flatnonzero(counts > 1)
    return int(first[several[np.argmin(counts[several])]])
