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


def test_an_empty_machine_and_missing_tools(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ask", lambda _: None)
    assert [v.kind for v in discover(sys_root=tmp_path).vertices.values()] == [Kind.NUMA, Kind.MEMORY]
    assert ask(("divvy-no-such-tool",)) is None
    assert ask(("sh", "-c", "exit 3")) is None
    assert ask(("sh", "-c", "echo yes")) == "yes\n"
