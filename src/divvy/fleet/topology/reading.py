"""What one input says, before it is merged with the others."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from divvy.fleet.topology.graph import Finding, Link, Vertex

#: Labels of `nvidia-smi topo -m` from near to far; SOC is what drivers before 2018 wrote for SYS.
PCIE_LABELS: Final = ("PIX", "PXB", "PHB", "NODE", "SYS")
RANK: Final = {label: rank for rank, label in enumerate(PCIE_LABELS, start=1)}
MAX_NVLINKS: Final = 18

_LABEL: Final = re.compile(r"NV(\d{1,2})|SYS|SOC|NODE|PHB|PXB|PIX|X", re.ASCII)


def clean_label(text: str) -> str | None:
    """Return the label in today's spelling (``SYS`` for ``SOC``), None if the text is not one."""
    upper = text.strip().upper()
    match = _LABEL.fullmatch(upper)
    if match is None:
        return None
    if match.group(1) is not None:
        count = int(match.group(1))
        return f"NV{count}" if 1 <= count <= MAX_NVLINKS else None
    return "SYS" if upper == "SOC" else upper


def nvlinks(label: str | None) -> int:
    """Return how many NVLinks a label names; 0 for every other label."""
    return int(label[2:]) if label and label.startswith("NV") else 0


def weaker(first: str, second: str) -> str:
    """Return the label that promises less."""

    def promise(label: str) -> tuple[int, int]:
        return (1, nvlinks(label)) if nvlinks(label) else (0, -RANK.get(label, 0))

    return min((first, second), key=promise)


@dataclass(slots=True)
class Reading:
    """The content of one input.

    Attributes:
        name: The input's name, for provenance.
        form: Which kind of file it is, such as ``nvidia-smi topo -m``.
        vertices: Devices, and for trees also bridges, sockets and switches.
        links: Links that the input itself describes.
        labels: Labels between devices, keyed in the order of the columns.
        measured: Measured one-way rates between devices (directed), 1e9 bytes per second.
        peer_allowed: Whether a pair may use peer-to-peer (``nvidia-smi topo -p2p``).
        nic_gb_per_s: Port rates by NIC name (``ibstat``).
        facts: Words for the whole machine, such as ``arch``.
        findings: What was damaged or unknown.
        tree: Whether `links` hold the PCIe tree.
        cluster: Whether this describes many machines.
        pci: The PCI functions (`divvy.fleet.topology.pcitree.PciNode`) by address, as hints for other inputs.
    """

    name: str
    form: str
    vertices: dict[str, Vertex] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    labels: dict[tuple[str, str], str] = field(default_factory=dict)
    measured: dict[tuple[str, str], float] = field(default_factory=dict)
    peer_allowed: dict[tuple[str, str], bool] = field(default_factory=dict)
    nic_gb_per_s: dict[str, float] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    tree: bool = False
    cluster: bool = False
    pci: dict[str, Any] = field(default_factory=dict)

    def warn(self, code: str, where: str, text: str, fix: str) -> None:
        """Add a finding placed in this input."""
        self.findings.append(Finding(code, f"{self.name}: {where}" if where else self.name, text, fix))
