"""Incast: many senders into one NIC. A limit on how many flows enter it at once; others wait."""

from __future__ import annotations

from divvy.fleet.topology.graph import Kind, LinkKind
from divvy.planners.transfers.roads import Roads


def limits(ways: Roads, most: int) -> dict[int, int]:
    """Return the limit of every resource by which bytes enter a NIC from the network.

    The last link is the bottleneck of an incast whatever the order, so waiting costs nothing there, and a
    switch's buffer holds `most` flows instead of all (a real 3-host incast was 15% off fair shares).
    """
    out: dict[int, int] = {}
    for arc in ways.arcs:
        if arc.link < 0 or ways.topo.links[arc.link].kind not in (LinkKind.NETWORK, LinkKind.TCP):
            continue
        vertex, state = ways.names[arc.head]
        if ways.topo.vertices[vertex].kind is Kind.NIC and state == "in":
            out[arc.resources[0]] = most
    return out
