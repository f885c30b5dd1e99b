"""The machine's own description under /sys: PCI functions with class, link and NUMA node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from divvy.fleet.topology.graph import Kind, Link, LinkKind, Origin, Source, Vertex
from divvy.fleet.topology.pcitree import PciNode, Port, TreeBuilder, number_gpus
from divvy.fleet.topology.reading import Reading
from divvy.fleet.topology.speeds import HOST_MEMORY_GB_PER_S, pcie_gb_per_s


@dataclass(frozen=True, slots=True)
class PciFunction:
    """One directory of /sys/bus/pci/devices.

    Attributes:
        bus: Address.
        parent: Address of the bridge above it, empty below a host bridge.
        root: Name of the host bridge, such as ``pci0000:00``.
        device_class: 24-bit class.
        ids: Vendor and device number.
        numa: NUMA node, -1 where the kernel does not know it.
        speed: ``current_link_speed``.
        width: ``current_link_width``.
        networks: Names of network interfaces with their rate in Gb/s (0: unknown).
        fabrics: Names of RDMA devices with their rate in Gb/s (0: unknown).
        disk: Name of its block device or CXL memory.
        memory_bytes: Of a CXL memory device, 0 where unknown.
    """

    bus: str
    parent: str
    root: str
    device_class: int
    ids: tuple[int, int]
    numa: int = -1
    speed: str = ""
    width: int = 0
    networks: tuple[tuple[str, float], ...] = ()
    fabrics: tuple[tuple[str, float], ...] = ()
    disk: str = ""
    memory_bytes: int = 0


def read_sysfs(name: str, functions: Mapping[str, PciFunction], numas: Mapping[int, int]) -> Reading:
    """Return the machine that a snapshot of /sys shows.

    Args:
        name: For provenance, such as ``/sys of HOST``.
        functions: PCI functions by address.
        numas: Bytes of memory by NUMA node; empty where there is no NUMA.
    """
    reading = Reading(name, "sysfs", tree=True)
    for number, size in (numas or {0: 0}).items():
        facts = (("memory_bytes", str(size)),) if size else ()
        reading.vertices[f"numa{number}"] = Vertex(f"numa{number}", Kind.NUMA, numa=number, facts=facts)
    nodes = {bus: _node(function, name) for bus, function in functions.items()}
    roots: dict[tuple[str, int], list[PciNode]] = {}
    for bus, function in functions.items():
        if function.parent in nodes:
            nodes[function.parent].children.append(nodes[bus])
        else:
            roots.setdefault((function.root, function.numa), []).append(nodes[bus])
    number_gpus(node for group in roots.values() for node in group)
    builder = TreeBuilder(reading)
    sockets = [v for v in reading.vertices.values() if v.kind is Kind.NUMA]
    for position, ((root, numa), group) in enumerate(sorted(roots.items())):
        useful = [node for node in group if any(inner.is_device for inner in node.walk())]
        if not useful:
            continue
        # Where there is one node only, nothing is left open.
        number = (sockets[0].numa or 0) if len(sockets) == 1 else numa
        known = f"numa{number}" in reading.vertices
        socket = f"numa{number}" if known else sockets[0].id
        if not known:
            reading.warn(
                "numa-unknown",
                root,
                f"numa_node is {numa}; {socket} is assumed (a virtual machine?)",
                "enable NUMA in the BIOS, or give the VM its NUMA layout",
            )
        bridge = f"hb{position}"
        reading.vertices[bridge] = Vertex(bridge, Kind.HOST_BRIDGE, bus=root, numa=number if known else None)
        source = Source(Origin.DEFAULT, "the processor's own fabric; not a limit by itself")
        reading.links.append(Link(bridge, socket, LinkKind.HOST, HOST_MEMORY_GB_PER_S, source, 0.3))
        for node in useful:
            builder.attach(bridge, node, number if known else None)
    builder.close()
    return reading


def _node(function: PciFunction, name: str) -> PciNode:
    """Return the PCI node of a function, without children."""
    ports = [Port(n, rate or None, gpu_direct=True) for n, rate in function.fabrics]
    ports = ports or [Port(n, rate or None, gpu_direct=False) for n, rate in function.networks]
    return PciNode(
        bus=function.bus,
        device_class=function.device_class or 0x068000,
        ids=function.ids,
        gb_per_s=pcie_gb_per_s(function.speed, function.width),
        link_text=f"current_link_speed {function.speed}, current_link_width {function.width}",
        link_where=name,
        ports=ports,
        name=function.disk,
        facts={"memory_bytes": str(function.memory_bytes)} if function.memory_bytes else {},
    )
