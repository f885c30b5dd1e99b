"""The label of a pair, computed from a tree, in the words of `nvidia-smi topo -m`."""

from __future__ import annotations

from collections.abc import Iterable

from divvy.fleet.topology.graph import Kind, Link, LinkKind, Vertex, pairs_of

_UP = (LinkKind.PCIE, LinkKind.HOST, LinkKind.C2C)


def tree_labels(
    vertices: dict[str, Vertex], links: Iterable[Link], *, nccl: bool
) -> dict[tuple[str, str], str]:
    """Return the label of every pair of GPUs and NICs of one machine.

    Args:
        vertices: By id.
        links: All links; a PCIe link's first end is the outer one.
        nccl: Use NCCL's terms: through the processor is PHB, because its files have no host bridges.
    """
    parents: dict[str, Link] = {}
    direct: dict[tuple[str, str], str] = {}
    planes: dict[str, tuple[str, int]] = {}
    for link in links:
        if link.kind in _UP:
            parents.setdefault(link.a, link)
        elif link.kind in (LinkKind.NVLINK, LinkKind.XGMI):
            if vertices[link.b].kind is Kind.NVSWITCH:
                planes[link.a] = (link.b, link.count)
            else:
                word = f"NV{link.count}" if link.kind is LinkKind.NVLINK else "XGMI"
                direct[link.a, link.b] = direct[link.b, link.a] = word
    devices = [v.id for v in vertices.values() if v.kind in (Kind.GPU, Kind.NIC)]
    chains = {device: _chain(device, parents) for device in devices}
    out: dict[tuple[str, str], str] = {}
    for a, b in pairs_of(devices):
        if vertices[a].machine != vertices[b].machine:
            continue
        if (a, b) in direct:
            out[a, b] = direct[a, b]
        elif a in planes and b in planes and planes[a][0] == planes[b][0] and planes[a][1]:
            out[a, b] = f"NV{min(planes[a][1], planes[b][1])}"
        else:
            label = _pcie(chains[a], chains[b], vertices, nccl=nccl)
            if label:
                out[a, b] = label
    return out


def _chain(device: str, parents: dict[str, Link]) -> list[tuple[str, int]]:
    """Return the vertices above a device, each with the bridges folded into the links up to it."""
    out: list[tuple[str, int]] = []
    bridges = 0
    while device in parents and len(out) < 32:
        link = parents[device]
        bridges += link.bridges
        device = link.b
        out.append((device, bridges))
    return out


def _pcie(
    first: list[tuple[str, int]], second: list[tuple[str, int]], vertices: dict[str, Vertex], *, nccl: bool
) -> str:
    """Return the PCIe label of two chains, empty where they say nothing."""
    if not first or not second:
        return ""
    above = {name: position for position, (name, _) in enumerate(second)}
    for position, (name, bridges) in enumerate(first):
        if name in above:
            kind = vertices[name].kind
            if kind is Kind.PCIE_SWITCH:
                between = position + above[name] + bridges + second[above[name]][1] + 1
                return "PIX" if between == 1 else "PXB"
            if kind is Kind.HOST_BRIDGE:
                return "PHB"
            return "PHB" if nccl else "NODE"
    return "SYS"
