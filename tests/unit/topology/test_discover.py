"""Reading this machine: a made-up /sys, tools that are there or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from divvy.adapters.topology import discover as module
from divvy.adapters.topology.discover import ask, discover
from divvy.fleet.topology.graph import Kind

MATRIX = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\tPIX\t0-7\t0\nGPU1\tNV18\t X \tNODE\t0-7\t0\nNIC0\tPIX\tNODE\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n"


def device(root: Path, chain: str, **files: str) -> Path:
    """Make one PCI function below its bridges, and its entry on the bus."""
    folder = root / "devices" / "pci0000:00" / chain
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    bus = root / "bus" / "pci" / "devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / folder.name).symlink_to(folder)
    return folder


@pytest.fixture
def system(tmp_path: Path) -> Path:
    node = tmp_path / "devices" / "system" / "node" / "node0"
    node.mkdir(parents=True)
    (node / "meminfo").write_text("Node 0 MemTotal:       1024 kB\n")
    port = {"class": "0x060400", "vendor": "0x1000", "device": "0xc030", "numa_node": "0"}
    link = {"current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16", "numa_node": "0"}
    device(tmp_path, "0000:00:01.0", **port, **{k: v for k, v in link.items() if k != "numa_node"})
    gpu = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330"}
    device(tmp_path, "0000:00:01.0/0000:18:00.0", **gpu, **link)
    device(tmp_path, "0000:00:02.0/0000:19:00.0", **gpu, **{**link, "current_link_width": "8"})
    device(tmp_path, "0000:00:02.0", **port)
    nic = device(
        tmp_path,
        "0000:00:01.0/0000:1a:00.0",
        **{"class": "0x020700", "vendor": "0x15b3", "device": "0x1021"},
        **link,
    )
    rate = nic / "infiniband" / "mlx5_0" / "ports" / "1"
    rate.mkdir(parents=True)
    (rate / "rate").write_text("400 Gb/sec (4X NDR)\n")
    return tmp_path


def test_sysfs_alone(system, monkeypatch):
    monkeypatch.setattr(module, "ask", lambda _: None)
    topo = discover(sys_root=system)
    assert [v.id for v in topo.of_kind(Kind.GPU, Kind.NIC)] == ["GPU0", "mlx5_0", "GPU1"]
    assert topo.label("GPU0", "mlx5_0") == "PIX"
    assert next(k for k in topo.links if k.a == "mlx5_0" and k.b == "fabric").gb_per_s == 50.0
    assert "link-reduced" in {f.code for f in topo.findings}


def test_tools_are_merged_in_and_their_nonsense_is_reported(system, monkeypatch):
    answers = {("nvidia-smi", "topo", "-m"): MATRIX, ("ibstat",): "CA 'mlx5_0'\n no rate\n"}
    monkeypatch.setattr(module, "ask", lambda command: answers.get(tuple(command)))
    topo = discover(sys_root=system)
    assert topo.label("GPU0", "GPU1") == "NV18"
    assert "NIC0" in topo.vertices
    assert "tool-unreadable" in {f.code for f in topo.findings}


HWLOC = """<?xml version="1.0"?><topology version="2.0"><object type="Machine" os_index="0">
<object type="Package" os_index="0">
<object type="NUMANode" os_index="0" local_memory="1024"/>
<object type="Bridge" bridge_type="0-1" bridge_pci="0000:[00-1f]">
<object type="Bridge" bridge_type="1-1" pci_busid="0000:00:02.0" pci_type="0604 [1000:c030]" pci_link_speed="31.5">
<object type="PCIDev" pci_busid="0000:19:00.0" pci_type="0302 [10de:2330]" pci_link_speed="31.507692"/></object>
<object type="PCIDev" pci_busid="0000:1b:00.0" pci_type="0502 [1e98:0001]" pci_link_speed="31.507692">
<object type="OSDev" osdev_type="0" name="cxl_mem0"><info name="CXLRAMSize" value="536870912"/></object></object>
</object></object></object></topology>
"""


def tool(folder: Path, name: str, text: str) -> None:
    """Put a program into a folder that prints a text if it is asked as hwloc is."""
    answer = folder / f"{name}.out"
    answer.write_text(text)
    program = folder / name
    program.write_text(f'#!/bin/sh\n[ "$*" = "--of xml -" ] && exec /bin/cat {answer}\nexit 1\n')
    program.chmod(0o755)


def test_hwloc_is_asked_where_it_is_installed(system, tmp_path, monkeypatch):
    """/sys says nothing of one link; hwloc does. Both are named as sources, and the graph is the same."""
    (system / "devices/pci0000:00/0000:00:02.0/0000:19:00.0/current_link_speed").write_text("Unknown\n")
    alone_path, tools = tmp_path / "none", tmp_path / "bin"
    for folder in (alone_path, tools):
        folder.mkdir()
    monkeypatch.setenv("PATH", str(alone_path))
    alone = discover(sys_root=system)
    tool(tools, "lstopo", HWLOC)
    monkeypatch.setenv("PATH", str(tools))
    both = discover(sys_root=system)
    assert [v for v in both.vertices if v != "cxl0"] == list(alone.vertices)
    known, unknown = (next(k for k in t.links if k.a == "GPU1") for t in (both, alone))
    assert (unknown.source.word, known.source.word) == ("default", "width")
    assert known.source.where == "lstopo --of xml -"
    assert "lstopo --of xml - (hwloc XML)" in both.sources


def test_hwloc_stands_alone_where_sys_shows_nothing(tmp_path, monkeypatch):
    tool(tmp_path, "lstopo-no-graphics", HWLOC)
    tool(tmp_path, "lstopo", "<not the one that is asked>")
    monkeypatch.setenv("PATH", str(tmp_path))
    topo = discover(sys_root=tmp_path / "nothing")
    assert [v.id for v in topo.of_kind(Kind.GPU, Kind.CXL)] == ["GPU0", "cxl0"]
    assert not any("lstopo --of" in s for s in topo.sources)


def test_damaged_hwloc_output_is_reported(system, tmp_path, monkeypatch):
    tool(tmp_path, "lstopo", "Xlib: cannot open display")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "tool-unreadable" in {f.code for f in discover(sys_root=system).findings}


def test_cxl_memory_of_sys_is_a_place_and_memory_without_processors_is_no_socket(system, monkeypatch):
    monkeypatch.setattr(module, "ask", lambda _: None)
    expander = device(
        system,
        "0000:00:03.0",
        **{"class": "0x050210", "vendor": "0x1e98", "device": "0x0001", "numa_node": "0"},
        current_link_speed="32.0 GT/s PCIe",
        current_link_width="8",
    )
    (expander / "mem0" / "ram").mkdir(parents=True)
    (expander / "mem0" / "ram" / "size").write_text("0x8000000000\n")
    for number, cpus in ((0, "0-7"), (1, "")):
        node = system / "devices" / "system" / "node" / f"node{number}"
        node.mkdir(exist_ok=True)
        (node / "cpulist").write_text(cpus + "\n")
    topo = discover(sys_root=system)
    assert [v.id for v in topo.of_kind(Kind.NUMA)] == ["numa0"]
    cxl = topo.vertices["cxl0"]
    assert (cxl.kind, cxl.name, dict(cxl.facts)) == (Kind.CXL, "mem0", {"memory_bytes": str(512 * 2**30)})
    link = next(k for k in topo.links if k.a == "cxl0")
    assert (link.b, link.source.word, round(link.gb_per_s, 1)) == ("numa0", "width", 31.5)


def test_an_empty_machine_and_missing_tools(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ask", lambda _: None)
    assert [v.kind for v in discover(sys_root=tmp_path).vertices.values()] == [Kind.NUMA, Kind.MEMORY]
    assert ask(("divvy-no-such-tool",)) is None
    assert ask(("sh", "-c", "exit 3")) is None
    assert ask(("sh", "-c", "echo yes")) == "yes\n"
