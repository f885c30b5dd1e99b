"""Read this machine into the same graph as the files: each part is asked, what is missing is left out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from divvy.errors import DivvyError
from divvy.fleet.topology.graph import Finding, Topology
from divvy.fleet.topology.merge import merge
from divvy.fleet.topology.pcitree import PciNode
from divvy.fleet.topology.read import read
from divvy.fleet.topology.reading import Reading
from divvy.fleet.topology.sysfs import PciFunction, read_sysfs

_TIMEOUT_SECONDS: Final = 20
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)

#: Tools and how they are asked. Their answers go through the same parsers as files. Of several with one
#: name (hwloc's program without graphics, and with it) the first that answers is enough.
REQUESTS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("hwloc", ("lstopo-no-graphics", "--of", "xml", "-")),
    ("hwloc", ("lstopo", "--of", "xml", "-")),
    ("nvidia-smi", ("nvidia-smi", "topo", "-m")),
    ("nvidia-smi", ("nvidia-smi", "topo", "-p2p", "r")),
    ("ibstat", ("ibstat",)),
)


def discover(extra: Sequence[tuple[str, str]] = (), sys_root: Path = Path("/sys")) -> Topology:
    """Return the topology of this machine, merged with further inputs.

    Args:
        extra: Further inputs as (name, text), such as an NCCL XML of the same machine.
        sys_root: Where sysfs is mounted.
    """
    hints: dict[str, PciNode] = {}
    readings: list[Reading] = [read_sysfs(f"{sys_root}", pci_functions(sys_root), numa_nodes(sys_root))]
    silent: list[Finding] = []
    answered: set[tuple[str, str]] = set()
    for name, command in REQUESTS:
        tool = (name, "" if name == "hwloc" else " ".join(command))
        text = ask(command) if tool not in answered else None
        if text is None:
            continue
        try:
            reading = read(" ".join(command), text, hints)
            hints.update(reading.pci)
            readings.append(reading)
            answered.add(tool)
        except DivvyError as error:
            fix = f"run {' '.join(command)} by hand"
            silent.extend(Finding("tool-unreadable", name, fault.message, fix) for fault in error.faults)
    readings += [read(name, text, hints) for name, text in extra]
    readings[0].findings.extend(silent)
    return merge(readings)


def ask(command: Sequence[str]) -> str | None:
    """Return what a tool prints; None where it is not installed, fails or hangs."""
    if shutil.which(command[0]) is None:
        return None
    try:
        answer = subprocess.run(
            list(command), capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 and answer.stdout.strip() else None


def pci_functions(sys_root: Path) -> dict[str, PciFunction]:
    """Return every PCI function of the machine; none where there is no PCI bus."""
    out: dict[str, PciFunction] = {}
    base = sys_root / "bus" / "pci" / "devices"
    for entry in sorted(base.iterdir()) if base.is_dir() else []:
        parts = Path(os.path.realpath(entry)).parts
        chain = [part for part in parts if _ADDRESS.fullmatch(part.lower())]
        root = next((part for part in parts if part.startswith("pci")), "pci")
        bus = entry.name.lower()
        memory, size = _cxl(entry)
        out[bus] = PciFunction(
            bus=bus,
            parent=chain[-2].lower() if len(chain) > 1 else "",
            root=root,
            device_class=_hex(entry / "class"),
            ids=(_hex(entry / "vendor"), _hex(entry / "device")),
            numa=_number(entry / "numa_node", -1),
            speed=_text(entry / "current_link_speed"),
            width=_number(entry / "current_link_width", 0),
            networks=next(
                (p for d in (entry, *sorted(entry.glob("virtio*"))) if (p := _ports(d / "net"))), ()
            ),
            fabrics=_fabrics(entry / "infiniband"),
            disk=_disk(entry / "nvme") or memory,
            memory_bytes=size,
        )
    return out


def numa_nodes(sys_root: Path) -> dict[int, int]:
    """Return the bytes of memory of each NUMA node with processors (a GPU's or CXL memory has none)."""
    out: dict[int, int] = {}
    base = sys_root / "devices" / "system" / "node"
    for entry in sorted(base.glob("node[0-9]*")) if base.is_dir() else []:
        if (entry / "cpulist").exists() and not _text(entry / "cpulist"):
            continue
        match = re.search(r"MemTotal:\s+(\d+) kB", _text(entry / "meminfo"))
        out[int(entry.name.removeprefix("node"))] = int(match.group(1)) * 1024 if match else 0
    return out


def _ports(folder: Path) -> tuple[tuple[str, float], ...]:
    """Return interfaces with their rate in Gb/s."""
    names = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    return tuple((name, max(0, _number(folder / name / "speed", 0)) / 1000.0) for name in names)


def _fabrics(folder: Path) -> tuple[tuple[str, float], ...]:
    """Return RDMA devices with the rate of their first port in Gb/s (``400 Gb/sec (4X NDR)``)."""
    out = []
    for name in sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []:
        match = re.match(r"\d+(?:\.\d+)?", _text(folder / name / "ports" / "1" / "rate"))
        out.append((name, float(match.group(0)) if match else 0.0))
    return tuple(out)


def _disk(folder: Path) -> str:
    """Return the name of the first NVMe controller's namespace."""
    names = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    return f"{names[0]}n1" if names else ""


def _cxl(entry: Path) -> tuple[str, int]:
    """Return the name and the bytes of a function's CXL memory (``mem0``); nothing and 0 without."""
    for folder in sorted(entry.glob("mem[0-9]*")):
        sizes = [_text(folder / part / "size") for part in ("ram", "pmem")]
        return folder.name, sum(int(s, 0) for s in sizes if re.fullmatch(r"0x[0-9a-fA-F]+|\d+", s))
    return "", 0


def _text(path: Path) -> str:
    """Return a file's text, empty where it cannot be read (a link that is down refuses to say its speed)."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path, default: int) -> int:
    """Return the number in a file."""
    text = _text(path)
    return int(text) if re.fullmatch(r"-?\d+", text) else default


def _hex(path: Path) -> int:
    """Return the hexadecimal number in a file."""
    text = _text(path)
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]+", text) else 0
