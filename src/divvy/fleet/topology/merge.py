"""Several inputs for one machine become one graph: the best evidence wins, contradictions are reported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from divvy.errors import InputError
from divvy.fleet.topology.checks import check
from divvy.fleet.topology.graph import (
    Finding,
    Kind,
    Link,
    LinkKind,
    Origin,
    Peering,
    Source,
    Topology,
    Vertex,
    pairs_of,
    topology,
)
from divvy.fleet.topology.inside import furnish
from divvy.fleet.topology.labels import tree_labels
from divvy.fleet.topology.nvlinks import add_nvlinks
from divvy.fleet.topology.overlay import apply_measured, apply_peers, apply_ports
from divvy.fleet.topology.pcitree import FABRIC
from divvy.fleet.topology.reading import RANK, Reading, nvlinks
from divvy.fleet.topology.speeds import (
    CROSS_PEER_GB_PER_S,
    HOST_MEMORY_GB_PER_S,
    PEER_SHARE_OF_LINK,
    socket_speed,
)
from divvy.fleet.topology.synthesis import build_tree, is_grace
from divvy.fleet.topology.topograph import FORM

_GRACE_MEMORY_GB_PER_S = 450.0


def merge(readings: Sequence[Reading]) -> Topology:
    """Return the one graph of what several inputs say about one machine or cluster.

    Raises:
        InputError: If none of the inputs has devices.
    """
    given = readings
    readings, told = _furnish(readings)
    base, matrices = _base(readings)
    findings = [finding for reading in readings for finding in reading.findings]
    labels: dict[tuple[str, str], str] = {}
    if base is None:
        base = matrices[0]
        before = len(base.findings)
        build_tree(base)
        grace = is_grace(base)
        add_nvlinks(base, blackwell=grace and _gpus_per_socket(base) > 1)
        findings += base.findings[before:]
        labels = dict(base.labels)
        rest = matrices[1:]
    else:
        grace = False
        rest = matrices
    for reading in readings:
        if reading is not base and reading.tree and not reading.cluster and not base.cluster:
            _compare_trees(base, reading, findings)
    for matrix in rest:
        labels |= _overlay_labels(base, matrix, labels, findings)
    _expect_devices(base, findings)
    _complete(base, grace=grace)
    for reading in readings:
        apply_ports(base, reading, findings)
        apply_measured(base, reading, findings)
    _drop_dangling(base, findings)
    allowed = apply_peers(base, given)
    computed = tree_labels(base.vertices, base.links, nccl=base.form.startswith("NCCL"))
    pairs = labels if base.labels else (computed | labels if len(base.vertices) < 4096 else labels)
    merged = topology(
        " + ".join(reading.name for reading in given),
        base.vertices.values(),
        base.links,
        _peering(base, allowed=allowed),
        pairs=pairs,
        findings=findings,
        sources=[f"{reading.name} ({reading.form})" for reading in given],
    )
    more = [finding for finding in check(merged) if finding.code not in told]
    return replace(merged, findings=(*merged.findings, *more))


def _expect_devices(base: Reading, findings: list[Finding]) -> None:
    """Report a picture without devices."""
    if not any(v.kind in (Kind.GPU, Kind.NIC, Kind.NODE, Kind.PCI) for v in base.vertices.values()):
        text = "there is no GPU, NIC or node in it"
        findings.append(
            Finding("no-devices", base.name, text, "check that the file is whole and of the right machine")
        )


def _furnish(readings: Sequence[Reading]) -> tuple[Sequence[Reading], set[str]]:
    """Return a model with its nodes as other inputs show one, and the codes of what is wrong in each."""
    models = [r for r in readings if r.form == FORM]
    others = [r for r in readings if r.form != FORM]
    if len(models) != 1 or any(r.cluster for r in others) or not any(r.vertices for r in others):
        return readings, set()
    machine = merge(others)
    furnish(models[0], machine)
    return models, {finding.code for finding in machine.findings}


def _base(readings: Sequence[Reading]) -> tuple[Reading | None, list[Reading]]:
    """Return the tree that the rest is laid over (NCCL before hwloc), and the label matrices."""
    trees = [r for r in readings if r.tree]
    matrices = [r for r in readings if r.vertices and not r.tree]
    clusters = [r for r in trees if r.cluster]
    if len(clusters) > 1 or (clusters and len(trees) + len(matrices) > 1):
        names = ", ".join(r.name for r in readings)
        raise InputError.one(
            "inputs-do-not-merge",
            f"{names}: a cluster model and another picture cannot be merged into one machine",
            allowed="several inputs of one machine, or one topograph model with inputs of one of its nodes",
            fix="give them one at a time",
        )
    if not trees and not matrices:
        raise InputError.one(
            "unreadable",
            f"{', '.join(r.name for r in readings)}: no input has devices; overlays need a picture to lie on",
            fix="add nvidia-smi topo -m, an NCCL XML or an hwloc XML of the machine",
        )
    chosen = sorted(trees, key=lambda r: (not r.form.startswith("NCCL"), not _devices(r)))
    return (chosen[0] if chosen else None), matrices


def _devices(reading: Reading) -> bool:
    """Return whether an input shows any device: /sys of a container may show none."""
    return any(v.kind in (Kind.GPU, Kind.NIC, Kind.PCI, Kind.STORAGE) for v in reading.vertices.values())


def _gpus_per_socket(reading: Reading) -> int:
    """Return how many GPUs share the busiest socket."""
    found: dict[str, int] = {}
    for link in reading.links:
        if link.kind is LinkKind.C2C:
            found[link.b] = found.get(link.b, 0) + 1
    return max(found.values(), default=0)


def _compare_trees(base: Reading, other: Reading, findings: list[Finding]) -> None:
    """Compare the link widths of devices that two trees know by the same PCI address."""
    known = {v.bus: v for v in base.vertices.values() if v.bus and v.kind in (Kind.GPU, Kind.NIC)}
    own = {link.a: link for link in base.links if link.kind is LinkKind.PCIE}
    for link in other.links:
        vertex = other.vertices.get(link.a)
        mine = known.get(vertex.bus) if vertex is not None and link.kind is LinkKind.PCIE else None
        here = own.get(mine.id) if mine is not None else None
        if mine is None or here is None or link.source.origin is not Origin.WIDTH:
            continue
        if here.source.origin < Origin.WIDTH:
            _replace(base, here, replace(here, gb_per_s=link.gb_per_s, source=link.source))
            continue
        if here.source.origin is Origin.WIDTH and abs(here.gb_per_s - link.gb_per_s) > 0.05 * here.gb_per_s:
            lower = min(here, link, key=lambda x: x.gb_per_s)
            findings.append(
                Finding(
                    "inputs-disagree",
                    f"{mine.id} ({mine.bus})",
                    f"{here.source.where} gives {here.gb_per_s:.4g} GB/s, {link.source.where} "
                    f"{link.gb_per_s:.4g} GB/s; "
                    f"the lower is used",
                    "lspci -vv shows LnkSta of this device under load",
                )
            )
            _replace(base, here, replace(here, gb_per_s=lower.gb_per_s, source=lower.source))
    missing = [v.bus for v in other.vertices.values() if v.kind is Kind.GPU and v.bus and v.bus not in known]
    if missing:
        findings.append(
            Finding(
                "inputs-disagree",
                ", ".join(missing),
                f"{other.name} has these GPUs, {base.name} does not",
                "check that both inputs are of the same machine",
            )
        )


def _overlay_labels(
    base: Reading, matrix: Reading, known: dict[tuple[str, str], str], findings: list[Finding]
) -> dict[tuple[str, str], str]:
    """Lay a matrix over a tree: its column names become the ids, its NVLinks are added, labels compared."""
    _rename(base, matrix)
    absent = [d for d in matrix.vertices if d not in base.vertices]
    if absent:
        text = f"{matrix.name} has them, {base.name} does not; they are left out"
        findings.append(
            Finding("inputs-disagree", ", ".join(absent), text, "check that both are of the same machine")
        )
    labels = {pair: label for pair, label in matrix.labels.items() if not set(pair) & set(absent)}
    for name, vertex in matrix.vertices.items():
        if name in base.vertices:
            mine = base.vertices[name]
            facts = tuple(dict((*vertex.facts, *mine.facts)).items())
            base.vertices[name] = replace(
                mine, numa=mine.numa if mine.numa is not None else vertex.numa, facts=facts
            )
    if not any(link.kind in (LinkKind.NVLINK, LinkKind.XGMI) for link in base.links):
        extra = Reading(matrix.name, matrix.form, dict(base.vertices), labels=labels)
        add_nvlinks(extra, blackwell=any(v.model in ("B200", "GB200") for v in base.vertices.values()))
        base.vertices.update(extra.vertices)
        base.links.extend(extra.links)
        findings.extend(extra.findings)
        findings[:] = [f for f in findings if f.code != "nvlink-unknown"]
    tree = known or tree_labels(base.vertices, base.links, nccl=base.form.startswith("NCCL"))
    # Of two matrices, one without any NVLink is of topo -mp: it shows PCIe where the other shows NVLink.
    is_mp = bool(known) and not (any(map(nvlinks, labels.values())) and any(map(nvlinks, known.values())))
    for pair, label in labels.items():
        mine_label = tree.get(pair) or tree.get((pair[1], pair[0]))
        if (
            mine_label
            and not _compatible(mine_label, label)
            and not (is_mp and nvlinks(mine_label) != nvlinks(label))
        ):
            findings.append(
                Finding(
                    "inputs-disagree",
                    f"{pair[0]} - {pair[1]}",
                    f"{base.name} gives {mine_label}, {matrix.name} gives {label}",
                    "a lost NVLink, or a template that is not of this machine: compare with "
                    "nvidia-smi nvlink --status",
                )
            )
    kept = {pair: label for pair, label in known.items() if nvlinks(label)}
    return labels | kept


def _compatible(first: str, second: str) -> bool:
    """Return whether both labels can be true (the processor is PHB for NCCL, NODE for nvidia-smi)."""
    if first == second:
        return True
    if bool(nvlinks(first)) != bool(nvlinks(second)):
        return False  # -m shows NVLink where -mp shows PCIe, but -mp has no NV label at all
    near = {"PIX": 0, "PXB": 0, "PHB": 1, "NODE": 1, "SYS": 2}
    return first in RANK and second in RANK and near[first] == near[second]


def _rename(base: Reading, matrix: Reading) -> None:
    """Give the base's NICs the column names of the matrix, by the legend's names."""
    by_name = {v.name: v.id for v in base.vertices.values() if v.kind is Kind.NIC and v.name}
    new = {
        by_name[v.name]: v.id
        for v in matrix.vertices.values()
        if v.name in by_name and by_name[v.name] != v.id
    }
    if not new:
        return
    base.vertices = {
        new.get(name, name): replace(vertex, id=new.get(name, name)) for name, vertex in base.vertices.items()
    }
    base.links = [replace(link, a=new.get(link.a, link.a), b=new.get(link.b, link.b)) for link in base.links]


def _complete(base: Reading, *, grace: bool) -> None:
    """Add what every machine has: memory at each socket, links between sockets, the network."""
    numas = [v for v in base.vertices.values() if v.kind is Kind.NUMA]
    linked = {link.ends for link in base.links if link.kind is LinkKind.SOCKET}
    for numa in numas:
        memory = numa.id.replace("numa", "dram") if "/" not in numa.id else numa.id.replace("/numa", "/dram")
        if memory in base.vertices:
            continue
        base.vertices[memory] = Vertex(memory, Kind.MEMORY, numa=numa.numa, machine=numa.machine)
        rate = _GRACE_MEMORY_GB_PER_S if grace else HOST_MEMORY_GB_PER_S
        source = Source(Origin.DEFAULT, "memory of one socket, one way")
        base.links.append(Link(memory, numa.id, LinkKind.MEMORY, rate, source, 0.1))
    if base.form != FORM and not grace:
        for a, b in pairs_of([numa.id for numa in numas]):
            first, second = base.vertices[a], base.vertices[b]
            if first.machine == second.machine and tuple(sorted((a, b))) not in linked:
                facts = dict(first.facts)
                vendor = facts.get("vendor", "")
                numbers = [facts.get(k, "") for k in ("familyid", "modelid")]
                family, model = (int(n) if n.isdigit() else 0 for n in numbers)
                speed, why = socket_speed(vendor, family, model)
                base.links.append(Link(a, b, LinkKind.SOCKET, speed, Source(Origin.DEFAULT, why), 0.3))
    if any(link.b == FABRIC for link in base.links):
        base.vertices[FABRIC] = Vertex(FABRIC, Kind.FABRIC)


def _drop_dangling(base: Reading, findings: list[Finding]) -> None:
    """Leave out links to vertices that a damaged file has lost, and links without a rate."""
    lost = [link for link in base.links if not {link.a, link.b} <= base.vertices.keys()]
    for link in lost:
        text = "one end is not in the file; the link is left out"
        findings.append(
            Finding("link-dangling", f"{base.name}: {link.a} - {link.b}", text, "save the file again")
        )
    for link in base.links:
        if not 0 < link.gb_per_s < math.inf:
            text = f"{link.gb_per_s:g} GB/s is no rate ({link.source.text}); the link is left out"
            findings.append(Finding("rate-unreadable", f"{link.a} - {link.b}", text, "save the file again"))
            lost.append(link)
    if lost:
        base.links = [link for link in base.links if link not in lost]


def _peering(base: Reading, *, allowed: bool) -> Peering:
    """Return how well the processor switches peer traffic."""
    widest = max(
        (
            link.gb_per_s
            for link in base.links
            if link.kind is LinkKind.PCIE and base.vertices[link.a].kind is Kind.GPU
        ),
        default=31.507692,
    )
    coherent = [link.gb_per_s for link in base.links if link.kind is LinkKind.C2C]
    if coherent:  # Grace: the processor reaches GPU memory as its own (NCCL issue 1579)
        far = [link.gb_per_s for link in base.links if link.kind is LinkKind.SOCKET]
        return Peering(max(coherent), min(far, default=max(coherent)), allowed)
    socket = round(PEER_SHARE_OF_LINK * widest, 3)
    between = [link.gb_per_s for link in base.links if link.kind is LinkKind.SOCKET]
    return Peering(socket, min([CROSS_PEER_GB_PER_S, *between]), allowed)


def _replace(base: Reading, old: Link, new: Link) -> None:
    """Put a link in the place of another."""
    base.links[base.links.index(old)] = new
