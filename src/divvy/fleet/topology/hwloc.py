"""hwloc topology XML (`lstopo --of xml`), versions 1 and 2: sockets, host bridges, the whole PCIe tree."""

from __future__ import annotations

import math
import re
from typing import Final
from xml.etree.ElementTree import Element

from divvy.fleet.topology.graph import Kind, Link, LinkKind, Origin, Source, Vertex
from divvy.fleet.topology.pcitree import PciNode, Port, TreeBuilder, number_gpus
from divvy.fleet.topology.reading import Reading
from divvy.fleet.topology.speeds import CARDS, CXL_GB_PER_S, HOST_MEMORY_GB_PER_S
from divvy.fleet.topology.xmltext import read_xml

_TYPE: Final = re.compile(r"([0-9a-f]{4})\s+\[([0-9a-f]{4}):([0-9a-f]{4})\]", re.IGNORECASE)
_GPU_NAME: Final = re.compile(r"(?:cuda|nvml|rsmi|opencl\d+d)(\d+)", re.ASCII)
_AGAIN: Final = "write it again with lstopo --of xml"
_OPENFABRICS, _NETWORK, _DISK = "3", "2", "0"
_NVLINK_CARDS: Final = frozenset(card.name for card in CARDS.values() if card.nvlinks)
_CXL_SIZES: Final = ("CXLRAMSize", "CXLPMEMSize", "Size")  # KiB
_AMAZON_BRIDGE: Final = (0x1D0F, 0x0200)


def read_hwloc(name: str, text: str) -> Reading:
    """Return what an hwloc XML says.

    Raises:
        InputError: If not even the first element can be read.
    """
    root, fault = read_xml(name, text)
    reading = Reading(name, "hwloc XML", tree=True)
    if fault:
        reading.warn(
            "xml-cut",
            fault,
            "the file is cut off or damaged here; everything before it is used, everything after it "
            "is unknown",
            _AGAIN,
        )
    builder = TreeBuilder(reading)
    numas = _sockets(root, reading)
    roots: list[tuple[str | None, PciNode]] = []
    _host_bridges(root, None, roots)
    for node in (inner for _, bridge in roots for inner in bridge.walk()):
        node.link_where = name
    for element in root.iter("object"):
        speed = element.get("pci_link_speed", "0")
        if _rate(speed) is None and _rate(speed + "1") is None:
            text = f"pci_link_speed {speed!r} is no rate; it counts as unknown"
            reading.warn("rate-unreadable", f"PCI {element.get('pci_busid', '')}", text, _AGAIN)
    number_gpus(node for _, node in roots)
    reading.pci = {node.bus: node for _, bridge in roots for node in bridge.walk() if node.is_device}
    _attach(reading, builder, roots, list(numas))
    fast = sorted({v.model for v in reading.vertices.values() if v.model in _NVLINK_CARDS})
    if fast:
        reading.warn(
            "nvlink-unknown",
            ", ".join(fast),
            "hwloc does not show NVLinks, and these cards have them",
            "add nvidia-smi topo -m of the same machine: divvy topo show FILE.xml MATRIX.txt",
        )
    builder.close()
    return reading


def _attach(
    reading: Reading, builder: TreeBuilder, roots: list[tuple[str | None, PciNode]], numas: list[str]
) -> None:
    """Add the host bridges with devices below them to their sockets."""
    lost = []
    for position, (numa, bridge) in enumerate(roots):
        if not any(n.is_device for child in bridge.children for n in child.walk()):
            continue
        socket = numa if numa in numas and numa else numas[0]
        known = numa == socket
        if not known and len(numas) > 1:
            lost.append(bridge.bus)
        number = reading.vertices[socket].numa if known or len(numas) == 1 else None
        hb = f"hb{position}"
        reading.vertices[hb] = Vertex(hb, Kind.HOST_BRIDGE, bus=bridge.bus, numa=number)
        source = Source(Origin.DEFAULT, "the processor's own fabric; not a limit by itself")
        reading.links.append(Link(hb, socket, LinkKind.HOST, HOST_MEMORY_GB_PER_S, source, 0.3))
        for child in bridge.children:
            builder.attach(hb, child, number)
    if lost:
        reading.warn(
            "numa-unknown",
            f"host bridge {', '.join(lost)}",
            f"the PCI bus belongs to no NUMA node; {numas[0]} is assumed (a virtual machine?)",
            "add the NCCL topology file of this instance type: it has the sockets",
        )


def _sockets(root: Element, reading: Reading) -> dict[str, Element]:
    """Add NUMA nodes; a machine without any has one."""
    found: dict[str, Element] = {}
    for element in root.iter("object"):
        if element.get("type") == "NUMANode" and "CXL" not in element.get("subtype", "").upper():
            index = element.get("os_index", "0")
            number = int(index) if index.isdecimal() else len(found)
            numa = f"numa{number}"
            memory = element.get("local_memory", "")
            facts = (("memory_bytes", memory),) if memory else ()
            reading.vertices[numa] = Vertex(numa, Kind.NUMA, numa=number, facts=facts)
            found[numa] = element
    if not found:
        reading.vertices["numa0"] = Vertex("numa0", Kind.NUMA, numa=0)
        found["numa0"] = root
    if not any(o.get("type") == "PCIDev" and "0502 " in o.get("pci_type", "") for o in root.iter("object")):
        _memory_only(root, found, reading)
    return found


def _memory_only(root: Element, sockets: dict[str, Element], reading: Reading) -> None:
    """Add NUMA nodes of the subtype CXL where no PCI device shows the memory, at a near socket."""
    parents = {child: parent for parent in root.iter() for child in parent}
    names = {element: numa for numa, element in sockets.items()}
    for element in root.iter("object"):
        if element.get("type") != "NUMANode" or "CXL" not in element.get("subtype", "").upper():
            continue
        above = parents.get(element, root)
        socket = next((names[e] for e in above.iter("object") if e in names), next(iter(sockets)))
        number, memory = element.get("os_index", "0"), element.get("local_memory", "")
        facts = (("memory_bytes", memory),) if memory else ()
        cxl = f"cxl{sum(v.kind is Kind.CXL for v in reading.vertices.values())}"
        reading.vertices[cxl] = Vertex(
            cxl, Kind.CXL, name=f"NUMA node {number}", numa=reading.vertices[socket].numa, facts=facts
        )
        source = Source(Origin.DEFAULT, "hwloc gives no rate; a CXL 2.0 x8 expander is assumed")
        reading.links.append(Link(cxl, socket, LinkKind.CXL, CXL_GB_PER_S, source, 0.25))


def _host_bridges(element: Element, numa: str | None, out: list[tuple[str | None, PciNode]]) -> None:
    """Collect host bridges with the nearest object above them that has exactly one NUMA node."""
    children = element.findall("object")
    nodes = [c for c in children if c.get("type") == "NUMANode"]
    if element.get("type") == "NUMANode":
        numa = f"numa{element.get('os_index', '0')}"
    elif len(nodes) == 1:
        numa = f"numa{nodes[0].get('os_index', '0')}"
    elif element.get("type") == "Machine":
        every = [c for c in element.iter("object") if c.get("type") == "NUMANode"]
        numa = f"numa{every[0].get('os_index', '0')}" if len(every) == 1 else None
    for child in children:
        if child.get("type") == "Bridge" and child.get("bridge_type", "").startswith("0-"):
            bus = child.get("bridge_pci", "").split(":[")[0] + ":" + child.get("bridge_pci", "[")[6:8]
            out.append((numa, PciNode(bus, children=[_node(c) for c in _pci(child)])))
        elif child.get("type") in ("Bridge", "PCIDev"):
            out.append((numa, PciNode(child.get("pci_busid", ""), children=[_node(child)])))
        else:
            _host_bridges(child, numa, out)


def _pci(element: Element) -> list[Element]:
    """Return the bridges and devices directly below an object."""
    return [c for c in element.findall("object") if c.get("type") in ("Bridge", "PCIDev")]


def _node(element: Element) -> PciNode:
    """Return the PCI node of a bridge or device."""
    match = _TYPE.search(element.get("pci_type", ""))
    top, vendor, device = (int(part, 16) for part in match.groups()) if match else (0x0604, 0, 0)
    rate = _rate(element.get("pci_link_speed", "0"))
    node = PciNode(
        bus=element.get("pci_busid", "").lower(),
        device_class=top << 8 or 0x068000,  # class 0 is a chipset function from before there were classes
        ids=(vendor, device),
        gb_per_s=rate,
        link_text=f"pci_link_speed {element.get('pci_link_speed', '')}",
        children=[_node(child) for child in _pci(element)],
    )
    if element.get("type") == "Bridge":
        node.device_class = 0x060400
        if node.ids == _AMAZON_BRIDGE:
            node.gb_per_s, node.note = None, "emulated by the hypervisor: its link speed says nothing"
    else:
        _devices(element, node)
    return node


def _rate(text: str) -> float | None:
    """Return the number in a text, None where it is none that a rate can be."""
    try:
        rate = float(text)
    except ValueError:
        return None
    return rate if 0 < rate < math.inf else None


def _devices(element: Element, node: PciNode) -> None:
    """Read the operating system's devices of a PCI function."""
    devices = [o for o in element.findall("object") if o.get("type") == "OSDev"]
    fabrics = [o.get("name", "") for o in devices if o.get("osdev_type") == _OPENFABRICS]
    networks = [o.get("name", "") for o in devices if o.get("osdev_type") == _NETWORK]
    if node.is_nic:
        names = fabrics or networks
        node.ports = [Port(name, None, bool(fabrics)) for name in names if name]
    for device in devices:
        name = device.get("name", "")
        match = _GPU_NAME.fullmatch(name)
        if match is not None and node.is_gpu and node.gpu is None:
            node.gpu = int(match.group(1))
        if (device.get("osdev_type") == _DISK or node.is_cxl) and not node.name:
            node.name = name
        size = next((i.get("value", "") for i in device.iter("info") if i.get("name") in _CXL_SIZES), "")
        if node.is_cxl and size.isdigit():
            node.facts["memory_bytes"] = str(int(size) * 1024)
