"""XML, cluster and overlay inputs; merging and checks."""

from __future__ import annotations

import json
import random
import re

import pytest

from divvy.errors import DivvyError, InputError
from divvy.fleet.topology.graph import Kind, LinkKind, Topology
from divvy.fleet.topology.picture import draw
from divvy.fleet.topology.read import build
from divvy.fleet.topology.topograph import expand
from divvy.fleet.topology.xmltext import read_xml

NCCL = """<system version="1">
  <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:16:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="0000:18:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16 GT/s" link_width="16">
        <gpu dev="0" sm="80" rank="0" gdr="1">
          <nvlink target="0000:19:00.0" count="4" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:19:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16 GT/s" link_width="8">
        <gpu dev="1" sm="80" rank="1" gdr="1">
          <nvlink target="0000:18:00.0" count="4" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:1a:00.0" class="0x020700" vendor="0x15b3" device="0x101b" link_speed="16 GT/s" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="200000" port="1" gdr="1"/></nic>
      </pci>
    </pci>
  </cpu>
</system>
"""
HWLOC = """<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0"><object type="Machine" os_index="0">
 <object type="Package"><object type="NUMANode" os_index="0" local_memory="1000"/>
  <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[16-1a]">
   <object type="PCIDev" pci_busid="0000:18:00.0" pci_type="0302 [10de:20b0] [10de:134f] a1" pci_link_speed="31.507692"/>
   <object type="PCIDev" pci_busid="0000:19:00.0" pci_type="0302 [10de:20b0] [10de:134f] a1" pci_link_speed="31.507692"/>
   <object type="PCIDev" pci_busid="0000:1a:00.0" pci_type="0207 [15b3:101b] [15b3:0] 00" pci_link_speed="31.5">
    <object type="OSDev" name="mlx5_0" osdev_type="3"/></object>
  </object></object></object></topology>
"""
PEERS = " \tGPU0\tGPU1\n GPU0\tX\tNS\n GPU1\tNS\tX\n"
IBSTAT = "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 100\n\t\tLink layer: InfiniBand\n"
MEASURED = """Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 900.00  30.50
     1  31.00 900.00
"""


def codes(topo: Topology) -> set[str]:
    return {finding.code for finding in topo.findings}


def link(topo: Topology, a: str, b: str):
    return next(k for k in topo.links if {k.a, k.b} == {a, b})


def test_nccl_gives_tree_nvlinks_rates_and_a_narrow_slot():
    topo = build([("n.xml", NCCL)])
    assert [v.id for v in topo.of_kind(Kind.GPU, Kind.NIC)] == ["GPU0", "GPU1", "mlx5_0"]
    assert link(topo, "GPU0", "GPU1").gb_per_s == 100.0
    assert link(topo, "GPU0", "GPU1").source.word == "label"
    assert link(topo, "GPU0", "sw0").source.word == "width"
    assert topo.label("GPU0", "mlx5_0") == "PIX"
    assert topo.label("GPU0", "GPU1") == "NV4"
    assert link(topo, "mlx5_0", "fabric").gb_per_s == 25.0
    assert "link-reduced" in codes(topo)


def test_a_cut_xml_keeps_what_came_before_and_says_where():
    topo = build([("n.xml", NCCL[: NCCL.index("0000:1a")])])
    assert [v.id for v in topo.of_kind(Kind.GPU)] == ["GPU0", "GPU1"]
    assert "xml-cut" in codes(topo)
    with pytest.raises(InputError):
        build([("n.xml", "<sys")])
    with pytest.raises(InputError, match="entities"):
        build([("n.xml", '<!DOCTYPE x [<!ENTITY a "b">]><system/>')])


def test_nvlink_ends_must_agree():
    topo = build(
        [("n.xml", NCCL.replace('target="0000:18:00.0" count="4"', 'target="0000:18:00.0" count="3"'))]
    )
    assert link(topo, "GPU0", "GPU1").gb_per_s == 75.0
    assert "nvlink-uneven-ends" in codes(topo)


def test_two_inputs_are_merged_and_their_contradiction_is_reported():
    topo = build([("n.xml", NCCL), ("h.xml", HWLOC)])
    assert len(topo.of_kind(Kind.GPU)) == 2
    disagree = [f for f in topo.findings if f.code == "inputs-disagree"]
    assert [f.where for f in disagree] == ["GPU1 (0000:19:00.0)"]
    assert link(topo, "GPU1", "sw0").gb_per_s == pytest.approx(15.75, rel=0.01)


def test_hwloc_tells_a_template_what_its_devices_are():
    bare = '<system><cpu numaid="0"><pci busid="0000:18:00.0"/><pci busid="0000:1a:00.0"/></cpu></system>'
    assert "class-unknown" in codes(build([("t.xml", bare)]))
    topo = build([("t.xml", bare), ("h.xml", HWLOC)])
    assert [v.id for v in topo.of_kind(Kind.GPU, Kind.NIC)] == ["GPU0", "mlx5_0"]
    assert "class-unknown" not in codes(topo)


def test_matrix_names_win_and_nvlinks_are_added_to_hwloc():
    matrix = "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV4\tPHB\nGPU1\tNV4\t X \tPHB\nNIC0\tPHB\tPHB\t X \n\nNIC Legend:\n  NIC0: mlx5_0\n"
    topo = build([("h.xml", HWLOC), ("m.txt", matrix)])
    assert "NIC0" in topo.vertices
    assert topo.vertices["NIC0"].name == "mlx5_0"
    assert link(topo, "GPU0", "GPU1").kind is LinkKind.NVLINK
    lost = build([("n.xml", NCCL), ("m.txt", matrix.replace("NV4", "PIX"))])
    assert any(f.code == "inputs-disagree" and "GPU0 - GPU1" in f.where for f in lost.findings)


def test_overlays_change_rates_and_peers_with_provenance():
    topo = build([("n.xml", NCCL), ("ib", IBSTAT), ("bw", MEASURED), ("p2p", PEERS)])
    assert link(topo, "mlx5_0", "fabric").gb_per_s == 12.5
    assert link(topo, "GPU0", "GPU1").source.word == "measured"
    assert link(topo, "GPU0", "GPU1").gb_per_s == 30.5
    assert "slow-link" in codes(topo)
    assert topo.peering.allowed is False
    with pytest.raises(InputError, match="need a picture"):
        build([("ib", IBSTAT)])


def test_checks_see_lost_nvlinks_shared_nics_and_flat_machines():
    head = "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\n"
    rows = [
        "GPU0\t X \tNV4\tNV4\tSYS\tPIX\t0-7\t0",
        "GPU1\tNV4\t X \tNV2\tSYS\tNODE\t0-7\t0",
        "GPU2\tNV4\tNV2\t X \tSYS\tNODE\t0-7\t0",
        "GPU3\tSYS\tSYS\tSYS\t X \tSYS\t8-15\t1",
        "NIC0\tPIX\tNODE\tNODE\tSYS\t X \t\t",
    ]
    found = codes(build([("m", head + "\n".join(rows))]))
    assert {"gpu-off-nvlink", "nvlink-uneven", "nic-other-socket", "nic-shared"} <= found
    flat = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t0-7\tN/A\nGPU1\tPHB\t X \t0-7\tN/A\n"
    assert {"vm-flattened", "numa-unknown"} <= codes(build([("m", flat)]))


def test_clusters():
    model = "switches:\n  s: {switches: [a, b]}\nblocks:\n- {switch: a, nodes: ['n[1-2]'], annotations: {accelerator.x/domain: d1}}\n- {switch: b, nodes: [n3]}\n"
    topo = build([("t.yaml", model)])
    assert len(topo.of_kind(Kind.GPU)) == 24
    assert codes(topo) == set()
    apart = build([("t.yaml", model.replace("[a, b]", "[a]"))])
    assert "rails-apart" in codes(apart)
    assert expand("I[21-22,25]") == ["I21", "I22", "I25"]
    assert expand("srv[08-10]x") == ["srv08x", "srv09x", "srv10x"]
    cut = build([("t.yaml", model + "- {switch: b, nodes: [n4")])
    assert "yaml-cut" in codes(cut)
    pair = {"src_dev": "m0", "dst_dev": "m1", "src_numa": 0, "dst_numa": 1, "bandwidth": 20000, "latency": 5}
    tent = build([("t.json", json.dumps([{"src_host": "a", "dst_host": "b", "endpoints": [pair, {}]}]))])
    assert link(tent, "a/m0", "b/m1").gb_per_s == 20.0
    assert "pair-unreadable" in codes(tent)
    labels = {
        "items": [{"metadata": {"name": f"n{i}", "labels": {"nvidia.com/gpu.clique": "c"}}} for i in range(2)]
    }
    assert len(build([("k.json", json.dumps(labels))]).of_kind(Kind.NODE)) == 2


def test_ibnetdiscover_joins_both_ends_once():
    dump = """vendid=0x1
Switch\t2 "S-1"\t\t# "MF0;LEAF:X/U1" enhanced port 0 lid 1 lmc 0
[1]\t"H-1"[1](aa) \t\t# "node1 mlx5_0" lid 2 4xNDR
[2]\t"H-2"[1](bb) \t\t# "node2 mlx5_0" lid 3 4xHDR
Ca\t1 "H-1"\t\t# "node1 mlx5_0"
[1](aa) \t"S-1"[1]\t\t# lid 2 lmc 0 "MF0;LEAF:X/U1" lid 1 4xNDR
Ca\t1 "H-2"\t\t# "node2 mlx5_0"
[1](bb) \t"S-1"[2]\t\t# lid 3 lmc 0 "MF0;LEAF:X/U1" lid 1 4xNDR
broken
[9] nonsense
"""
    topo = build([("ib", dump)])
    assert link(topo, "LEAF", "node1/mlx5_0").gb_per_s == 50.0
    assert link(topo, "LEAF", "node2/mlx5_0").gb_per_s == 25.0
    assert {"cable-speed", "line-unreadable"} <= codes(topo)
    cut = build([("ib", dump[: dump.index("Ca")])])
    assert link(cut, "LEAF", "node2/mlx5_0").gb_per_s == 25.0
    assert codes(cut) == {"end-undescribed"}


@pytest.mark.parametrize("text", [NCCL, HWLOC])
def test_pictures_are_whole_svg(text):
    picture = draw(build([("x", text)]))
    assert picture.startswith("<svg")
    assert picture.rstrip().endswith("</svg>")
    assert "GPU1" in picture


MODEL = "switches:\n  s: {switches: [a]}\nblocks:\n- switch: a\n  nodes: ['n[1-2]']\n  annotations:\n    accelerator.x/domain: d\n"


@pytest.mark.parametrize("text", [NCCL, HWLOC, MODEL, MEASURED, IBSTAT, PEERS], ids=lambda t: t[:12].strip())
def test_damage_is_refused_or_reported_but_never_crashes(text):
    for seed in range(150):
        rng = random.Random(seed)
        spoilt = text
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(len(spoilt))
            junk = rng.choice(["", "0", "x", '"', "<", ">", ":", "-", "[", "{", "\n", " "])
            spoilt = spoilt[:at] + junk + spoilt[at + rng.randint(0, 9) :] or "x"
        try:
            topo = build(
                [("base", NCCL), ("spoilt", spoilt)]
                if text in (MEASURED, IBSTAT, PEERS)
                else [("spoilt", spoilt)]
            )
        except DivvyError:
            continue
        assert all(k.a in topo.vertices and k.b in topo.vertices for k in topo.links)
        draw(topo)


GPU_AT = '<system version="1"><cpu numaid="0"><pci busid="0000:01:00.0" class="0x030200" {link}>{inside}</pci></cpu></system>'


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            GPU_AT.format(link='link_speed="16 GT/s" link_width="-16"', inside='<gpu dev="0"/>'),
            "rate-unreadable",
        ),
        (GPU_AT.format(link='link_width="wide"', inside='<gpu dev="0"/>'), "rate-unreadable"),
        (
            GPU_AT.format(link="", inside='<gpu dev="0"><nvlink target="fffffff:ff:ff.0" count="-4"/></gpu>'),
            "nvlink-count",
        ),
        (
            GPU_AT.format(link="", inside='<nic><net name="m" speed="-100"/></nic><gpu dev="0"/>'),
            "rate-unreadable",
        ),
        (HWLOC.replace('pci_link_speed="', 'pci_link_speed="-'), "rate-unreadable"),
        (HWLOC.replace('pci_link_speed="', 'pci_link_speed="nan" x="'), "rate-unreadable"),
        (
            "switches: {a: {switches: [b]}, b: {switches: [a]}}\nblocks: [{switch: a, nodes: [n]}]",
            "switch-circle",
        ),
        ('blocks: [{switch: a, nodes: ["n[1-999999999]", m]}]', "node-range"),
        ('blocks: [{switch: a, nodes: ["n[5-1]", m]}]', "node-range"),
    ],
)
def test_impossible_numbers_are_reported_and_never_become_links(text, code):
    topo = build([("m", text)])
    assert code in {f.code for f in topo.findings}
    assert all(0 < k.gb_per_s < 10_000 for k in topo.links)


def test_a_measured_zero_is_no_rate():
    matrix = "\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n"
    table = "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D     0      1\n     0 900.0 0.00\n     1 90.0 900.0\n"
    topo = build([("m", matrix), ("t", table)])
    assert ("cell-unreadable", "t: row GPU0, column GPU1") in {(f.code, f.where) for f in topo.findings}


def test_a_wide_machine_is_drawn_with_its_equal_nics_as_one_box_for_both_colour_schemes():
    trees = "".join(
        f'<pci busid="0000:{g}0:00.0" class="0x060400"><pci busid="0000:{g}1:00.0" class="0x030200"><gpu dev="{g}"/></pci>'
        + "".join(
            f'<pci busid="0000:{g}2:{i:02x}.0" class="0x020000"><nic><net name="m{g}_{i}" speed="100000"/></nic></pci>'
            for i in range(20)
        )
        + "</pci>"
        for g in range(2)
    )
    topo = build([("w.xml", f'<system version="1"><cpu numaid="0">{trees}</cpu></system>')])
    picture = draw(topo)
    assert picture.count(">20 NICs<") == 2
    assert "m0_0 ..." in picture
    assert "m0_1" not in picture
    assert int(re.search(r"width='(\d+)'", picture).group(1)) < 1000
    assert "prefers-color-scheme: dark" in picture
    assert read_xml("picture", picture)[1] == ""


def test_cxl_memory_is_drawn_at_its_socket():
    expander = '<pci busid="0000:09:00.0" class="0x050210" link_speed="32.0 GT/s" link_width="8"/>'
    gpu = '<pci busid="0000:01:00.0" class="0x030200"><gpu dev="0"/></pci>'
    topo = build([("c.xml", f'<system version="1"><cpu numaid="0">{gpu}{expander}</cpu></system>')])
    assert next(k for k in topo.links if k.a == "cxl0").b == "numa0"
    assert ">cxl0<" in draw(topo)
