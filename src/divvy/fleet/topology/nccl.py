"""NCCL and RCCL topology XML: dumps (NCCL_TOPO_DUMP_FILE) and templates (NCCL_TOPO_FILE)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from xml.etree.ElementTree import Element

from divvy.fleet.topology.graph import Kind, Link, LinkKind, Origin, Source, Vertex
from divvy.fleet.topology.pcitree import PciNode, Port, TreeBuilder, number_gpus
from divvy.fleet.topology.reading import Reading
from divvy.fleet.topology.speeds import (
    CARDS,
    NVLINK_GB_PER_S,
    PCIE_BOTH_WAYS,
    XGMI_DEFAULT_GB_PER_S,
    XGMI_GB_PER_S,
    pcie_gb_per_s,
)
from divvy.fleet.topology.xmltext import read_xml

_MOST_LINKS = 64
_DUMP = "dump it again with NCCL_TOPO_DUMP_FILE"
_MATRIX = "add nvidia-smi topo -m of the same machine: divvy topo show FILE.xml MATRIX.txt"


def read_nccl(name: str, text: str, hints: Mapping[str, PciNode] | None = None) -> Reading:
    """Return what an NCCL topology XML says.

    Args:
        name: The input's name, for provenance.
        text: The file.
        hints: PCI functions of the same machine from another input, by address; they tell what a device
            is where this file leaves its class open.

    Raises:
        InputError: If not even the first element can be read.
    """
    root, fault = read_xml(name, text)
    reading = Reading(name, "NCCL topology XML", tree=True)
    if fault:
        reading.warn(
            "xml-cut",
            fault,
            "the file is cut off or damaged here; everything before it is used, everything after it "
            "is unknown",
            "dump it again with NCCL_TOPO_DUMP_FILE",
        )
    cpus = root.findall("cpu") if root.tag == "system" else list(root.iter("cpu"))
    hosts = list(dict.fromkeys(cpu.get("host_hash", "") for cpu in cpus))
    for host in hosts:
        machine = f"host{hosts.index(host)}" if len(hosts) > 1 else ""
        _machine(reading, machine, [cpu for cpu in cpus if cpu.get("host_hash", "") == host], hints or {})
    reading.cluster = len(hosts) > 1
    return reading


def _machine(reading: Reading, machine: str, cpus: list[Element], hints: Mapping[str, PciNode]) -> None:
    """Add one host: sockets, PCIe trees, NVLinks."""
    builder = TreeBuilder(reading, machine)
    trees: list[tuple[str, int | None, list[PciNode]]] = []
    for position, cpu in enumerate(cpus):
        number = _int(cpu.get("numaid", ""), -1)
        if number < 0:
            reading.warn(
                "numa-unknown",
                f"cpu {position}",
                f"numaid is {cpu.get('numaid', 'missing')}: the NUMA node is unknown (a virtual machine?)",
                "give the VM its NUMA layout, or add the host's own dump",
            )
        numa = builder.name(f"numa{number if number >= 0 else position}")
        facts = tuple(
            (k, cpu.get(k, "")) for k in ("affinity", "arch", "vendor", "familyid", "modelid") if cpu.get(k)
        )
        reading.vertices[numa] = Vertex(
            numa, Kind.NUMA, numa=number if number >= 0 else None, machine=machine, facts=facts
        )
        nodes = [_node(element, reading) for element in cpu.findall("pci")]
        loose = [PciNode("", ports=_ports(nic, reading)) for nic in cpu.findall("nic")]
        for node in (inner for root in nodes for inner in root.walk()):
            _complete(node, hints)
        trees.append((numa, number if number >= 0 else None, [*nodes, *loose]))
    number_gpus(node for _, _, nodes in trees for node in nodes)
    for socket, known, nodes in trees:
        for node in nodes:
            builder.attach(socket, node, known)
    builder.close()
    _nvlinks(reading, builder, cpus, {n.bus: n for _, _, nodes in trees for t in nodes for n in t.walk()})


def _node(element: Element, reading: Reading) -> PciNode:
    """Return the PCI node of an element, with everything below it."""
    bus = element.get("busid", "").lower()
    width, speed = _int(element.get("link_width", ""), 0), element.get("link_speed", "")
    if width < 0 or (element.get("link_width", "0") or "0") != str(width):
        text = f"link_width {element.get('link_width')!r} is no number of lanes; it counts as unknown"
        reading.warn("rate-unreadable", f"pci {bus}", text, _DUMP)
    gpu = element.find("gpu")
    node = PciNode(
        bus=bus,
        device_class=_int(element.get("class", ""), 0, base=16),
        ids=(_int(element.get("vendor", ""), 0, base=16), _int(element.get("device", ""), 0, base=16)),
        gb_per_s=pcie_gb_per_s(speed, width),
        link_text=f"link_speed {speed}, link_width {width}",
        children=[_node(child, reading) for child in element.findall("pci")],
        ports=[port for nic in element.findall("nic") for port in _ports(nic, reading)],
    )
    if gpu is not None:
        number = _int(gpu.get("dev", ""), -1)
        node.gpu = number if number >= 0 else None
        node.gpu_facts = {k: gpu.get(k, "") for k in ("sm", "gcn", "rank") if gpu.get(k)}
    return node


def _complete(node: PciNode, hints: Mapping[str, PciNode]) -> None:
    """Fill in what the file leaves open about a device from another input."""
    hint = hints.get(node.bus)
    if hint is None or node.children:
        return
    node.device_class = node.device_class or hint.device_class
    node.ids = node.ids if any(node.ids) else hint.ids
    node.ports = node.ports or hint.ports
    node.name = node.name or hint.name
    node.gpu = node.gpu if node.gpu is not None or not node.is_gpu else hint.gpu
    if node.gb_per_s is None and hint.gb_per_s is not None:
        node.gb_per_s, node.link_text, node.link_where = hint.gb_per_s, hint.link_text, hint.link_where


def _ports(nic: Element, reading: Reading) -> list[Port]:
    """Return the ports of a ``nic`` element."""
    ports = []
    for net in nic.findall("net"):
        speed = _int(net.get("speed", ""), -1)
        if speed < 0 and net.get("speed"):
            text = f"speed {net.get('speed')!r} is no rate in Mb/s; it counts as unknown"
            reading.warn("rate-unreadable", f"net {net.get('name') or net.get('dev', '')}", text, _DUMP)
        direct = net.get("gdr")
        ports.append(
            Port(
                net.get("name") or f"net{net.get('dev', '')}",
                speed / 1000.0 if speed > 0 else None,
                None if direct is None else direct == "1",
            )
        )
    return ports


def _nvlinks(reading: Reading, builder: TreeBuilder, cpus: list[Element], nodes: dict[str, PciNode]) -> None:
    """Add NVLink, XGMI and C2C: GPU to GPU, or GPU to the switch plane that it shares with others."""
    to_switch: dict[str, int] = defaultdict(int)
    direct: dict[tuple[str, str], int] = {}
    rates: dict[str, tuple[float, Source, LinkKind]] = {}
    elements = [
        (pci, gpu)
        for cpu in cpus
        for pci in cpu.iter("pci")
        for gpu in pci.findall("gpu")
        if pci.get("busid", "").lower() in nodes  # in a damaged file a pci may stand where none belongs
    ]
    for pci, gpu in elements:
        bus = pci.get("busid", "").lower()
        here = builder.name(f"GPU{nodes[bus].gpu}")
        rates[here] = _rate(nodes[bus], gpu, reading.name)
        for link in [*gpu.findall("nvlink"), *gpu.findall("xgmi")]:
            target, count = link.get("target", "").lower(), _int(link.get("count", ""), 0)
            if not 1 <= count <= _MOST_LINKS:
                text = f"count {link.get('count')!r} is no number of links; the link is left out"
                reading.warn("nvlink-count", f"{here} to {target}", text, _MATRIX)
            elif target == bus:
                reading.warn(
                    "nvlink-self",
                    f"{here} ({bus})",
                    f"{count} NVLinks lead from the GPU to itself; they are left out",
                    _MATRIX,
                )
            elif target in nodes and nodes[target].is_gpu:
                direct[here, builder.name(f"GPU{nodes[target].gpu}")] = count
            elif link.get("tclass", "")[:6] == "0x0680" or target.startswith("fffffff"):
                to_switch[here] += count
            else:
                reading.warn(
                    "nvlink-target",
                    f"{here} to {target}",
                    "the target is not in the file; the link is left out",
                    _MATRIX,
                )
        _c2c(reading, builder, gpu, here)
    _direct(reading, direct, rates)
    _planes(reading, builder, to_switch, rates)
    gpus = [v for v in reading.vertices.values() if v.kind is Kind.GPU and v.machine == builder.machine]
    if gpus and not elements:
        reading.warn(
            "nvlink-unknown",
            "gpu",
            "this is a template without gpu elements: NVLinks are not in it (NCCL reads them when it starts)",
            _MATRIX,
        )


def _direct(
    reading: Reading, direct: dict[tuple[str, str], int], rates: dict[str, tuple[float, Source, LinkKind]]
) -> None:
    """Add links between two GPUs; the two ends must agree on their number."""
    done: set[tuple[str, str]] = set()
    for (a, b), count in direct.items():
        key = (a, b) if a <= b else (b, a)
        if key in done:
            continue
        done.add(key)
        other = direct.get((b, a))
        if other != count:
            reading.warn(
                "nvlink-uneven-ends",
                f"{a} - {b}",
                f"{a} reports {count} links to {b}, {b} reports "
                f"{other if other is not None else 'none'}; the lower is used",
                "nvidia-smi nvlink --status shows which link is down",
            )
            if not other:
                continue
        rate, source, kind = rates[a]
        both = min(count, other or count)
        text = Source(source.origin, f"{both} x {source.text}", source.where)
        reading.links.append(Link(a, b, kind, rate * both, text, 0.6, count=both))


def _planes(
    reading: Reading,
    builder: TreeBuilder,
    to_switch: dict[str, int],
    rates: dict[str, tuple[float, Source, LinkKind]],
) -> None:
    """Add the NVSwitch plane and each GPU's links into it."""
    if not to_switch:
        return
    plane = builder.name("nvswitch0")
    reading.vertices[plane] = Vertex(plane, Kind.NVSWITCH, machine=builder.machine)
    for gpu, count in to_switch.items():
        rate, source, kind = rates[gpu]
        text = Source(source.origin, f"{count} x {source.text}", source.where)
        reading.links.append(Link(gpu, plane, kind, rate * count, text, 0.6, count=count))


def _c2c(reading: Reading, builder: TreeBuilder, gpu: Element, here: str) -> None:
    """Add the chip-to-chip link of Grace machines to the socket that the GPU sits on."""
    for link in gpu.findall("c2c"):
        rate = _int(link.get("bw", ""), 0) * max(1, _int(link.get("count", ""), 1)) / 1000.0
        numa = reading.vertices[here].numa
        socket = builder.name(f"numa{numa}")
        if rate > 0 and socket in reading.vertices:
            source = Source(Origin.WIDTH, f"c2c bw {link.get('bw')} MB/s", reading.name)
            reading.links.append(
                Link(here, socket, LinkKind.C2C, rate, source, 0.6, both_ways=PCIE_BOTH_WAYS)
            )


def _rate(node: PciNode, gpu: Element, where: str) -> tuple[float, Source, LinkKind]:
    """Return the one-way rate of one link of a GPU, by its card or its compute capability."""
    gcn = gpu.get("gcn")
    if gcn is not None:
        rate = XGMI_GB_PER_S.get(gcn, XGMI_DEFAULT_GB_PER_S)
        return rate, Source(Origin.LABEL, f"XGMI of {gcn}, {rate:g} GB/s one way", where), LinkKind.XGMI
    card = CARDS.get(node.ids)
    generation = (
        card.nvlink_generation if card and card.nvlink_generation else _generation(_int(gpu.get("sm", ""), 0))
    )
    rate = NVLINK_GB_PER_S[generation]
    return rate, Source(Origin.LABEL, f"NVLink {generation}, {rate:g} GB/s one way", where), LinkKind.NVLINK


def _generation(sm: int) -> int:
    """Return the NVLink generation that a compute capability has."""
    return 1 if sm < 70 else 2 if sm < 80 else 3 if sm < 90 else 4 if sm < 100 else 5


def _int(text: str, default: int, *, base: int = 10) -> int:
    """Return the number in a text, the default where it is not one."""
    try:
        return int(text, base)
    except ValueError:
        return default
