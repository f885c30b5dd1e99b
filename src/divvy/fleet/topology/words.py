"""What each label and kind means, in one place for tables, pictures and docs."""

from __future__ import annotations

from typing import Final

from divvy.fleet.topology.graph import Kind, LinkKind

LABELS: Final = {
    "NV#": "# bonded NVLinks",
    "PIX": "one PCIe switch between them",
    "PXB": "several PCIe switches, same root",
    "PHB": "through one host bridge (the processor)",
    "NODE": "through several host bridges of one NUMA node",
    "SYS": "across NUMA nodes",
}

#: Colours of kinds in pictures: fill and stroke.
COLOURS: Final[dict[Kind, tuple[str, str]]] = {
    Kind.GPU: ("#e8f5e9", "#2e7d32"),
    Kind.NIC: ("#e3f2fd", "#1565c0"),
    Kind.PCIE_SWITCH: ("#f3e5f5", "#7b1fa2"),
    Kind.HOST_BRIDGE: ("#fafafa", "#9e9e9e"),
    Kind.NUMA: ("#fff8e1", "#b26a00"),
    Kind.MEMORY: ("#fffde7", "#b26a00"),
    Kind.NVSWITCH: ("#c8e6c9", "#1b5e20"),
    Kind.SWITCH: ("#e1f5fe", "#0277bd"),
    Kind.FABRIC: ("#e1f5fe", "#0277bd"),
    Kind.NODE: ("#eceff1", "#455a64"),
    Kind.STORAGE: ("#efebe9", "#5d4037"),
    Kind.CXL: ("#fce4ec", "#ad1457"),
    Kind.PCI: ("#f5f5f5", "#757575"),
}

STROKES: Final[dict[LinkKind, str]] = {
    LinkKind.NVLINK: "#43a047",
    LinkKind.XGMI: "#43a047",
    LinkKind.C2C: "#00897b",
    LinkKind.PCIE: "#8e24aa",
    LinkKind.HOST: "#9e9e9e",
    LinkKind.MEMORY: "#ffa000",
    LinkKind.SOCKET: "#ef6c00",
    LinkKind.NETWORK: "#1e88e5",
    LinkKind.TCP: "#90a4ae",
    LinkKind.STORAGE: "#6d4c41",
    LinkKind.CXL: "#d81b60",
}
