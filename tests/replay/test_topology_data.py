"""Every sample of ../shared/data: read, checked, planned. The samples are not in the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from divvy.errors import DivvyError
from divvy.fleet.topology.graph import Kind, Topology
from divvy.fleet.topology.picture import draw
from divvy.fleet.topology.read import build
from divvy.planners.transfers.registry import PEERS
from divvy.planners.transfers.roads import roads
from divvy.sim.flows.batches import random_batch
from divvy.sim.flows.compare import compare

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
FOLDERS = ("topo", "nccl_xml", "hwloc_xml", "cluster_topology")
SAMPLES = sorted(
    path
    for folder in FOLDERS
    for path in (DATA / folder).glob("*")
    if path.is_file() and path.name != "SOURCE.txt"
)
pytestmark = pytest.mark.skipif(not SAMPLES, reason=f"no samples in {DATA}")

#: Faults that the damaged or unusual samples must show; a sample that is not here may have others.
EXPECTED = {
    "hopper-8gpu-8nic-pix.txt": set(),
    "dgx-a100-8gpu-10nic.txt": set(),
    "a100-8gpu-narrow-columns.txt": set(),
    "v100-dgx1-cube-mesh-1nic.txt": {"nic-other-socket", "nic-shared"},
    "h100-8gpu-9nic-reversed-TRUNCATED.txt": {"row-missing"},
    "gb200-tray-nic-node-TRUNCATED.txt": {"row-missing"},
    "nv8-a800-8gpu-9nic-TRUNCATED.txt": {"row-missing"},
    "vm-1gpu-1nic.txt": {"vm-flattened"},
    "bridge-2gpu-nv2-numa-na.txt": {"numa-unknown"},
    "nccl-h200-baremetal-EXCERPT.xml": {"xml-cut"},
    "azure-ncv4-topo.xml": {"nvlink-self"},
    "aws-p4d-24xl-topo.xml": {"nvlink-unknown", "nic-shared", "link-reduced"},
    "topograph-nvl72.yaml": set(),
}


def topo_of(path: Path) -> Topology:
    return build([(path.name, path.read_text(encoding="utf-8"))])


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_sample_is_read(path):
    topo = topo_of(path)
    assert topo.vertices
    assert all(
        link.a in topo.vertices and link.b in topo.vertices and link.gb_per_s > 0 for link in topo.links
    )
    if path.name in EXPECTED:
        assert {finding.code for finding in topo.findings} == EXPECTED[path.name]
    assert draw(topo).startswith("<svg")


@pytest.mark.parametrize("path", [p for p in SAMPLES if p.suffix == ".txt"], ids=lambda p: p.name)
def test_matrix_pairs_are_what_the_text_says(path):
    """Read the rows in the plainest way; whatever that gives must be in the pairs."""
    topo = topo_of(path)
    header: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        words = line.replace("\t", " ").split()
        if not header and words and words[0] == "GPU0" and words[1] != "X":
            header = [w for w in words if w.startswith(("GPU", "NIC", "mlx")) and w != "GPU"]
        elif header and words and words[0] in header and len(words) > len(header):
            for column, label in zip(header, words[1:], strict=False):
                if label != "X" and column != words[0]:
                    assert topo.label(words[0], column) == label


@pytest.mark.parametrize(
    "path", [p for p in SAMPLES if "ibnet" not in p.name and "large" not in p.name], ids=lambda p: p.name
)
def test_plan_is_near_the_bound_and_no_peer_is_better(path):
    topo = topo_of(path)
    places = topo.of_kind(Kind.GPU) or topo.of_kind(Kind.NODE)
    if len(places) < 2:
        with pytest.raises(DivvyError, match="no pair"):
            random_batch(topo, "random:n=8,seed=3")
        return
    batch = random_batch(topo, "random:n=8,seed=3")
    results, _ = compare(path.name, roads(topo), batch, ["divvy", *PEERS])
    own = results[0]
    assert own.planner == "divvy"
    assert 1 - 1e-6 <= own.of_bound <= 1.1
    assert all(own.makespan_s <= other.makespan_s * 1.02 for other in results)
