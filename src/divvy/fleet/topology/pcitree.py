"""PCIe trees, shared by the NCCL and hwloc readers: bridges with one child are folded into their link."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from divvy.fleet.topology.graph import Kind, Link, LinkKind, Origin, Source, Vertex
from divvy.fleet.topology.reading import Reading
from divvy.fleet.topology.speeds import (
    CARDS,
    CXL_GB_PER_S,
    NIC_DEFAULT_GBIT,
    NIC_GBIT,
    PCIE_BOTH_WAYS,
    TCP_GB_PER_S,
    Card,
)

DEFAULT_X16 = 31.507692
FABRIC = "fabric"
_SOCKET_NAMES = ("eth", "en", "bond", "br", "wl", "veth", "ib")


@dataclass(slots=True)
class Port:
    """One network port of a NIC: its name, rate, and whether it reads GPU memory."""

    name: str
    gbit: float | None
    gpu_direct: bool | None


@dataclass(slots=True)
class PciNode:
    """One PCI function, or a bridge with what hangs below it.

    Attributes:
        bus: Address in lower case.
        device_class: The 24-bit class, 0 where the input does not say it.
        ids: Vendor and device number.
        gb_per_s: One-way rate of the link to its parent, None where unknown.
        link_text: How the input wrote that rate.
        link_where: The input that has it, where it is not this one.
        children: Functions below a bridge.
        gpu: GPU number as the input gives it; None if it does not.
        gpu_facts: Further words of the GPU.
        ports: Network ports.
        name: Name of the operating system's device (storage, CXL memory).
        note: What to show beside a bridge.
        facts: Further words of the device.
    """

    bus: str
    device_class: int = 0
    ids: tuple[int, int] = (0, 0)
    gb_per_s: float | None = None
    link_text: str = ""
    link_where: str = ""
    children: list[PciNode] = field(default_factory=list)
    gpu: int | None = None
    gpu_facts: dict[str, str] = field(default_factory=dict)
    ports: list[Port] = field(default_factory=list)
    name: str = ""
    note: str = ""
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def card(self) -> Card | None:
        """Return the card's data sheet, None for an unknown card."""
        return CARDS.get(self.ids)

    @property
    def is_gpu(self) -> bool:
        """Return whether this is a GPU, by its own element or by its class and vendor."""
        top = self.device_class >> 8
        return self.gpu is not None or top in (0x0302, 0x1200) or (top == 0x0380 and not self.children)

    @property
    def is_nic(self) -> bool:
        """Return whether this is a NIC, by its ports or by its class."""
        return bool(self.ports) or self.device_class >> 16 == 0x02

    @property
    def is_storage(self) -> bool:
        """Return whether this is an NVMe drive."""
        return self.device_class >> 8 == 0x0108

    @property
    def is_cxl(self) -> bool:
        """Return whether this is a CXL memory device."""
        return self.device_class >> 8 == 0x0502

    @property
    def is_device(self) -> bool:
        """Return whether this belongs into the graph by itself."""
        known = self.is_gpu or self.is_nic or self.is_storage or self.is_cxl
        return known or (self.device_class == 0 and not self.children)

    def walk(self) -> Iterable[PciNode]:
        """Yield this node and everything below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def number_gpus(roots: Iterable[PciNode]) -> None:
    """Give every GPU without a number the next free one, in the order of PCI addresses as nvidia-smi does."""
    gpus = [node for root in roots for node in root.walk() if node.is_gpu]
    taken = {node.gpu for node in gpus if node.gpu is not None}
    free = (i for i in range(len(gpus) + len(taken)) if i not in taken)
    for node in sorted((n for n in gpus if n.gpu is None), key=lambda n: n.bus):
        node.gpu = next(free)


class TreeBuilder:
    """Adds PCI nodes to a reading as vertices and links."""

    def __init__(self, reading: Reading, machine: str = "") -> None:
        self.reading = reading
        self.machine = machine
        self._prefix = f"{machine}/" if machine else ""
        self._switches = 0
        self._nics = 0
        self._cxls = 0
        self._unknown: list[str] = []

    def name(self, text: str) -> str:
        """Return the id of a vertex of this machine."""
        return self._prefix + text

    def attach(self, parent: str, node: PciNode, numa: int | None, *, bridges: int = 0) -> None:
        """Add a node below a vertex; a bridge with a single useful child is folded into the link."""
        useful = [child for child in node.children if any(n.is_device for n in child.walk())]
        if node.is_device and not useful:
            self._device(parent, node, numa, bridges)
        elif len(useful) == 1:
            child = useful[0]
            rates = [r for r in (node.gb_per_s, child.gb_per_s) if r is not None]
            if rates and min(rates) != child.gb_per_s:
                child.gb_per_s, child.link_text = min(rates), f"{node.link_text} (bridge {node.bus})"
            self.attach(parent, child, numa, bridges=bridges + 1)
        elif useful:
            switch = self.name(f"sw{self._switches}")
            self._switches += 1
            facts = (("note", node.note),) if node.note else ()
            self.reading.vertices[switch] = Vertex(
                switch, Kind.PCIE_SWITCH, bus=node.bus, numa=numa, machine=self.machine, facts=facts
            )
            widest = max((n.gb_per_s or 0.0 for child in useful for n in child.walk()), default=0.0)
            self._link(switch, parent, node, bridges, fallback=widest or DEFAULT_X16)
            for child in useful:
                self.attach(switch, child, numa)

    def close(self) -> None:
        """Report devices whose class the input leaves open."""
        if self._unknown:
            self.reading.warn(
                "class-unknown",
                ", ".join(self._unknown),
                "these devices have no class: GPUs and NICs cannot be told apart",
                "add the machine's hwloc XML (lstopo --of xml) or nvidia-smi topo -m; NCCL reads the "
                "class from sysfs",
            )

    def _device(self, parent: str, node: PciNode, numa: int | None, bridges: int) -> None:
        """Add a GPU, a NIC, a drive, or a device of unknown class."""
        card = node.card
        model = card.name if card else ""
        if node.is_gpu:
            facts = tuple(sorted(node.gpu_facts.items()))
            vertex = Vertex(
                self.name(f"GPU{node.gpu}"),
                Kind.GPU,
                bus=node.bus,
                numa=numa,
                machine=self.machine,
                model=model,
                facts=facts,
            )
        elif node.is_nic:
            self._nic(parent, node, numa, bridges, model)
            return
        elif node.is_cxl:
            self._cxl(node, numa)
            return
        elif node.is_storage:
            name = node.name or node.bus
            vertex = Vertex(self.name(name), Kind.STORAGE, bus=node.bus, numa=numa, machine=self.machine)
        else:
            self._unknown.append(node.bus)
            vertex = Vertex(
                self.name(f"pci-{node.bus}"), Kind.PCI, bus=node.bus, numa=numa, machine=self.machine
            )
        self.reading.vertices[vertex.id] = vertex
        self._link(vertex.id, parent, node, bridges)

    def _cxl(self, node: PciNode, numa: int | None) -> None:
        """Add a CXL memory device: memory of its socket, behind a link of its own."""
        cxl = self.name(f"cxl{self._cxls}")
        self._cxls += 1
        sockets = [v for v in self.reading.vertices.values() if v.kind is Kind.NUMA]
        mine = [v for v in sockets if v.machine == self.machine]
        socket = next((v.id for v in mine if v.numa == numa), mine[0].id)
        facts = tuple(sorted(node.facts.items()))
        self.reading.vertices[cxl] = Vertex(
            cxl, Kind.CXL, name=node.name, bus=node.bus, numa=numa, machine=self.machine, facts=facts
        )
        if node.gb_per_s is not None:
            source = Source(Origin.WIDTH, node.link_text, node.link_where or self.reading.name)
        else:
            source = Source(Origin.DEFAULT, "width not given; a CXL 2.0 x8 expander is assumed")
        rate = node.gb_per_s or CXL_GB_PER_S
        self.reading.links.append(Link(cxl, socket, LinkKind.CXL, rate, source, 0.25))

    def _nic(self, parent: str, node: PciNode, numa: int | None, bridges: int, model: str) -> None:
        """Add a NIC with each of its ports; a NIC without a name is numbered."""
        ports = node.ports or [Port(f"NIC{self._nics}", None, None)]
        self._nics += 1
        for port in ports:
            nic = self.name(port.name)
            is_socket = port.gpu_direct is not True and port.name.startswith(_SOCKET_NAMES)
            facts = (("transport", "tcp"),) if is_socket else ()
            self.reading.vertices[nic] = Vertex(
                nic,
                Kind.NIC,
                name=port.name,
                bus=node.bus,
                numa=numa,
                machine=self.machine,
                model=model,
                peer=False if is_socket else port.gpu_direct,
                facts=facts,
            )
            self._link(nic, parent, node, bridges)
            self._to_fabric(nic, node, port, is_socket=is_socket)

    def _to_fabric(self, nic: str, node: PciNode, port: Port, *, is_socket: bool) -> None:
        """Join a port to the network."""
        gbit = port.gbit if port.gbit is not None else NIC_GBIT.get(node.ids, 0.0)
        if port.gbit is not None:
            source = Source(Origin.WIDTH, f"port rate {port.gbit:g} Gb/s", self.reading.name)
        elif gbit:
            source = Source(Origin.DEFAULT, f"data sheet of the card: {gbit:g} Gb/s")
        else:
            gbit = NIC_DEFAULT_GBIT
            source = Source(Origin.DEFAULT, f"rate not given; {gbit:g} Gb/s assumed")
        rate, kind, latency = gbit / 8.0, LinkKind.NETWORK, 2.0
        if is_socket:
            kind, latency = LinkKind.TCP, 25.0
            if rate > TCP_GB_PER_S:
                rate, source = TCP_GB_PER_S, Source(Origin.DEFAULT, "kernel TCP with its copies")
        self.reading.links.append(Link(nic, FABRIC, kind, rate, source, latency))

    def _link(self, child: str, parent: str, node: PciNode, bridges: int, *, fallback: float = 0.0) -> None:
        """Add the PCIe link from a node to its parent."""
        card = node.card
        if node.gb_per_s is not None:
            rate, source = (
                node.gb_per_s,
                Source(Origin.WIDTH, node.link_text, node.link_where or self.reading.name),
            )
        elif fallback:
            rate, source = (
                fallback,
                Source(Origin.DEFAULT, "width not given; as wide as the widest device below it"),
            )
        elif card is not None and card.width:
            rate = DEFAULT_X16 * card.width / 16 * card.gt_per_s / 16.0
            source = Source(Origin.DEFAULT, f"width not given; data sheet of {card.name}")
        else:
            rate, source = DEFAULT_X16, Source(Origin.DEFAULT, "width not given; PCIe 4 x16 assumed")
        self.reading.links.append(
            Link(child, parent, LinkKind.PCIE, rate, source, 0.5, bridges=bridges, both_ways=PCIE_BOTH_WAYS)
        )
