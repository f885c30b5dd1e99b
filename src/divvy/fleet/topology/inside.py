"""A file of one machine put into every node of a cluster model, in the place of the assumed inside."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from divvy.fleet.topology.graph import Kind, Link, LinkKind, Origin, Source, Topology, Vertex
from divvy.fleet.topology.reading import Reading
from divvy.fleet.topology.topograph import UPLINK, weight

_MESH = frozenset({LinkKind.NVLINK, LinkKind.XGMI})


def furnish(cluster: Reading, machine: Topology) -> None:
    """Give every node of a cluster model the inside of a machine; switches and domains stay.

    The machine's NICs hang on the switch that the node hangs on, with the rates of its file. GPUs of
    a domain with several nodes join its plane with the sum of their own NVLinks.

    Args:
        cluster: A cluster model; changed.
        machine: The merged inputs of one node.
    """
    leaves = _leaves(cluster)
    domains = {v.machine: v.domain for v in cluster.vertices.values() if v.kind is Kind.GPU}
    planes = {v.domain: v.id for v in cluster.vertices.values() if v.kind is Kind.NVSWITCH}
    nodes = list(dict.fromkeys(v.machine for v in cluster.vertices.values() if v.machine))
    shared = {d for d in planes if sum(domain == d for domain in domains.values()) > 1}
    inner = {v.id for v in cluster.vertices.values() if v.machine in nodes or _is_own(v, shared)}
    kept = [v for v in cluster.vertices.values() if v.id not in inner]
    cluster.links = [link for link in cluster.links if not {link.a, link.b} & inner]
    cluster.vertices = {}
    for node in nodes:
        domain = domains.get(node, "")
        plane = planes[domain] if domain in shared else ""
        for vertex in _vertices(machine, node, domain, joined=bool(plane)):
            cluster.vertices[vertex.id] = vertex
        cluster.links.extend(_links(machine, node, leaves.get(node, ""), plane))
    cluster.vertices |= {v.id: v for v in kept}
    _widen(cluster)
    cluster.facts["inside"] = machine.name
    cluster.findings += [replace(f, where=f"every node, {f.where}") for f in machine.findings]
    if not any(v.kind is Kind.NIC for v in machine.vertices.values()):
        cluster.warn(
            "nic-missing",
            machine.name,
            "the machine has no NIC, so its nodes cannot reach each other",
            "add the machine's matrix with NICs, or an NCCL or hwloc XML",
        )


def _widen(cluster: Reading) -> None:
    """Give uplinks that the file does not know the rate of the NICs that are below them now."""
    kinds = {name: vertex.kind for name, vertex in cluster.vertices.items()}
    below: dict[str, float] = defaultdict(float)
    children: dict[str, list[str]] = defaultdict(list)
    for link in cluster.links:
        if link.kind is LinkKind.NETWORK and kinds.get(link.a) is Kind.NIC:
            below[link.b] += link.gb_per_s
        elif link.source is UPLINK:
            children[link.b].append(link.a)
    cluster.links = [
        replace(link, gb_per_s=weight(link.a, children, below, frozenset({link.b})) or link.gb_per_s)
        if link.source is UPLINK
        else link
        for link in cluster.links
    ]


def _is_own(vertex: Vertex, shared: Iterable[str]) -> bool:
    """Return whether this is the plane of one node, which the machine's file replaces."""
    return vertex.kind is Kind.NVSWITCH and vertex.domain not in shared


def _leaves(cluster: Reading) -> dict[str, str]:
    """Return the switch on which the NICs of each node hang."""
    return {
        cluster.vertices[link.a].machine: link.b
        for link in cluster.links
        if link.kind is LinkKind.NETWORK
        and link.a in cluster.vertices
        and cluster.vertices[link.a].kind is Kind.NIC
    }


def _vertices(machine: Topology, node: str, domain: str, *, joined: bool) -> Iterable[Vertex]:
    """Yield the machine's places under the names of a node."""
    for vertex in machine.vertices.values():
        is_left_out = vertex.kind is Kind.FABRIC or (joined and vertex.kind is Kind.NVSWITCH)
        if not is_left_out:
            mine = domain if vertex.kind in (Kind.GPU, Kind.NVSWITCH) else ""
            yield replace(vertex, id=f"{node}/{vertex.id}", machine=node, domain=mine)


def _links(machine: Topology, node: str, leaf: str, plane: str) -> Iterable[Link]:
    """Yield the machine's links under the names of a node, joined to its leaf and its plane."""
    nvlinks: dict[str, list[Link]] = {}
    for link in machine.links:
        kinds = {machine.vertices[link.a].kind, machine.vertices[link.b].kind}
        if Kind.FABRIC in kinds:
            if leaf:
                yield replace(link, a=f"{node}/{link.a}", b=leaf)
        elif plane and link.kind in _MESH:
            for end in (link.a, link.b):
                if machine.vertices[end].kind is Kind.GPU:
                    nvlinks.setdefault(end, []).append(link)
        else:
            yield replace(link, a=f"{node}/{link.a}", b=f"{node}/{link.b}")
    for gpu in (v.id for v in machine.of_kind(Kind.GPU)) if plane else ():
        mine = nvlinks.get(gpu, [])
        rate = sum(link.gb_per_s for link in mine)
        if mine:
            best = min((link.source for link in mine), key=lambda s: s.origin)
            source = Source(best.origin, f"NVLink of the machine: {best.text}", best.where)
            count = sum(link.count for link in mine)
            yield Link(f"{node}/{gpu}", plane, LinkKind.NVLINK, rate, source, 0.6, count=count)
        else:
            source = Source(
                Origin.DEFAULT, "the machine's file shows no NVLink, the model a domain: NVLink 4 assumed"
            )
            yield Link(f"{node}/{gpu}", plane, LinkKind.NVLINK, 450.0, source, 0.6)
