"""What is wrong with a machine, beyond what was wrong with its files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from divvy.fleet.topology.graph import Finding, Kind, Link, LinkKind, Origin, Topology, Vertex
from divvy.fleet.topology.reading import RANK
from divvy.fleet.topology.speeds import CARDS

_GB_PER_GT = 0.123077
_NAMED_CARDS = {card.name: card for card in CARDS.values()}


def check(topo: Topology) -> list[Finding]:
    """Return every fault of the machine, in the order: GPUs, sockets, NICs, links, network."""
    out: list[Finding] = []
    for rule in (_nvlink, _flattened, _numa, _nic_distance, _nic_sharing, _widths, _rails):
        out.extend(rule(topo))
    return out


def _gpus(topo: Topology) -> list[Vertex]:
    return topo.of_kind(Kind.GPU)


def _data_nics(topo: Topology) -> list[Vertex]:
    """Return NICs that carry RDMA, not kernel sockets."""
    return [v for v in topo.of_kind(Kind.NIC) if dict(v.facts).get("transport") != "tcp"]


def _nvlink(topo: Topology) -> Iterator[Finding]:
    """GPUs off NVLink, or with fewer links than the others of their kind."""
    total: dict[str, int] = defaultdict(int)
    for link in topo.links:
        if link.kind in (LinkKind.NVLINK, LinkKind.XGMI):
            for end in (link.a, link.b):
                total[end] += link.count or 1
    by_machine: dict[str, list[Vertex]] = defaultdict(list)
    for gpu in _gpus(topo):
        by_machine[gpu.machine].append(gpu)
    for gpus in by_machine.values():
        on = [gpu for gpu in gpus if total[gpu.id]]
        if not on:
            continue
        off = [gpu.id for gpu in gpus if not total[gpu.id]]
        if off:
            yield Finding(
                "gpu-off-nvlink",
                ", ".join(off),
                f"no NVLink on {', '.join(off)}, while {', '.join(g.id for g in on)} have it",
                "nvidia-smi nvlink --status and dmesg (Xid 74); reset or replace the GPU or its "
                "bridge, or keep it apart",
            )
        most = max(total[gpu.id] for gpu in on)
        fewer = [gpu for gpu in on if total[gpu.id] < most]
        if fewer:
            names = ", ".join(f"{gpu.id} ({total[gpu.id]} of {most})" for gpu in fewer)
            yield Finding(
                "nvlink-uneven",
                ", ".join(gpu.id for gpu in fewer),
                f"fewer NVLinks than the others: {names}",
                "nvidia-smi nvlink --status: a link is down or disabled; until then transfers to it "
                "are slower",
            )


def _flattened(topo: Topology) -> Iterator[Finding]:
    """Everything behind one host bridge: what a virtual machine shows."""
    labels = list(topo.pairs.values())
    if labels and all(label == "PHB" for label in labels):
        yield Finding(
            "vm-flattened",
            "every pair",
            "every pair reads PHB: a virtual machine that hides the PCIe tree, or a small desktop board",
            "in a VM set NCCL_TOPO_FILE to the provider's file and add it here; ask the host for the "
            "real tree",
        )


def _numa(topo: Topology) -> Iterator[Finding]:
    """GPUs whose NUMA node the input explicitly does not know."""
    unknown = [
        gpu.id
        for gpu in _gpus(topo)
        if gpu.numa is None and dict(gpu.facts).get("numa_affinity", "").upper() in ("N/A", "-1")
    ]
    if unknown:
        yield Finding(
            "numa-unknown",
            ", ".join(unknown),
            "NUMA affinity is N/A: the kernel does not know which socket the GPU is on",
            "enable NUMA in the BIOS or the VM (cat /sys/bus/pci/devices/*/numa_node shows -1), or "
            "bind by CPU affinity",
        )


def _distance(topo: Topology, gpu: str, nic: str) -> int:
    """Return the rank of a pair's label, 9 where unknown."""
    label = topo.label(gpu, nic)
    return RANK.get(label, 9) if label else 9


def _nic_distance(topo: Topology) -> Iterator[Finding]:
    """GPUs whose nearest NIC is on another socket."""
    nics = _data_nics(topo)
    far: list[str] = []
    for gpu in _gpus(topo):
        mine = [nic for nic in nics if nic.machine == gpu.machine]
        known = [rank for nic in mine if (rank := _distance(topo, gpu.id, nic.id)) != 9]
        if known and len(known) == len(mine) and min(known) == RANK["SYS"]:
            far.append(gpu.id)
    if far:
        yield Finding(
            "nic-other-socket",
            ", ".join(far),
            "every NIC is on another socket (SYS): network traffic crosses the socket link, at about "
            "half the rate",
            "move a NIC to a slot of that socket, or let a GPU near a NIC relay over NVLink: divvy "
            "route explain",
        )


def _nic_sharing(topo: Topology) -> Iterator[Finding]:
    """More GPUs than NICs at the same distance."""
    nics = _data_nics(topo)
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for gpu in _gpus(topo):
        ranks = {nic.id: _distance(topo, gpu.id, nic.id) for nic in nics if nic.machine == gpu.machine}
        best = min(ranks.values(), default=9)
        if best != 9:
            groups[tuple(nic for nic, rank in ranks.items() if rank == best)].append(gpu.id)
    shared = [(near, gpus) for near, gpus in groups.items() if len(gpus) > len(near)]
    for near, gpus in shared:
        yield Finding(
            "nic-shared",
            ", ".join(near),
            f"{len(gpus)} GPUs share {len(near)} nearest NIC{'s' if len(near) > 1 else ''}: "
            f"{', '.join(gpus)}",
            f"each gets about 1/{-(-len(gpus) // len(near))} of the rate when all send; stagger them "
            "or add NICs",
        )


def _widths(topo: Topology) -> Iterator[Finding]:
    """PCIe links narrower or slower than the card; equal ones are one finding."""
    found: dict[tuple[str, float, str], list[str]] = defaultdict(list)
    for link in topo.links:
        model = topo.vertices[link.a].model
        card = _NAMED_CARDS.get(model)
        if (
            link.kind is not LinkKind.PCIE
            or card is None
            or not card.width
            or link.source.origin is not Origin.WIDTH
        ):
            continue
        if link.gb_per_s < 0.9 * card.width * card.gt_per_s * _GB_PER_GT:
            found[model, link.gb_per_s, link.source.text].append(f"{link.a} - {link.b}")
    for (model, rate, text), links in found.items():
        card = _NAMED_CARDS[model]
        full = card.width * card.gt_per_s * _GB_PER_GT
        yield Finding(
            "link-reduced",
            ", ".join(links),
            f"{rate:.4g} GB/s ({text}), where a {model} has {full:.4g} (x{card.width}, "
            f"{card.gt_per_s:g} GT/s)",
            "an idle GPU lowers its PCIe speed: read it under load; else reseat the card, check the "
            "riser and BIOS",
        )


def _rails(topo: Topology) -> Iterator[Finding]:
    """Groups of NICs that no network path joins."""
    parent: dict[str, str] = {}

    def find(item: str) -> str:
        parent.setdefault(item, item)
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    network: list[Link] = [link for link in topo.links if link.kind is LinkKind.NETWORK]
    for link in network:
        parent[find(link.a)] = find(link.b)
    groups: dict[str, list[str]] = defaultdict(list)
    for nic in _data_nics(topo):
        if nic.id in parent:
            groups[find(nic.id)].append(nic.id)
    if len(groups) > 1:
        sizes = sorted(groups.values(), key=len, reverse=True)
        names = "; ".join(f"{', '.join(g[:4])}{' ...' if len(g) > 4 else ''} ({len(g)})" for g in sizes[:6])
        yield Finding(
            "rails-apart",
            names,
            f"{len(groups)} groups of NICs cannot reach each other",
            "use NICs of one group at both ends (UCX_NET_DEVICES, NCCL_IB_HCA), or join the rails at a spine",
        )
