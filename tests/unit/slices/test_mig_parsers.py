"""What MIG tools print: hand-made texts per kind, damage, and the recorded outputs where they are at hand."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from divvy.errors import InputError
from divvy.fleet.mig.parse.devices import parse_device_table, parse_list, parse_mig_uuid
from divvy.fleet.mig.parse.instances import parse_lgi, parse_transcript
from divvy.fleet.mig.parse.kinds import read_any
from divvy.fleet.mig.parse.labels import parse_dcgm, parse_node_labels
from divvy.fleet.mig.parse.parted import parse_parted
from divvy.fleet.mig.parse.profiles import learn_sku, parse_lgip, parse_lgipp
from divvy.fleet.mig.profile import parse_profile_name

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "mig"

LGIP = """\
+-----------------------------------------------------------------------------+
| GPU instance profiles:                                                      |
| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |
|                              Free/Total   GiB              CE    JPEG  OFA  |
|=============================================================================|
|   0  MIG 1g.6gb        14     3/4        5.81       No     14     1     0   |
|                                                             1     0     0   |
+-----------------------------------------------------------------------------+
|   0  MIG 4g.24gb        0     0/1        23.50      No     56     4     0   |
|                                                             4     1     1   |
+-----------------------------------------------------------------------------+
"""
LGIPP = "GPU  0 Profile ID 14 Placements: {0,1,2,3}:1\nGPU  0 Profile ID  0 Placement : {0}:4\n"
LGI = """\
    $ sudo nvidia-smi mig -lgi
    | GPU instances:                                     |
    | GPU   Name          Profile  Instance   Placement  |
    |                       ID       ID       Start:Size |
    |====================================================|
    |   0  MIG 3g.40gb       9        2          0:4     |
    +----------------------------------------------------+
    |   1  MIG 1g.10gb+me   20       13          6:1     |
    +----------------------------------------------------+
"""
U = "b4895dbf-9350-2524-a89b-98161ddd9fe4"


def test_lgip_rows():
    rows = parse_lgip(LGIP)
    assert [(r.name, r.profile_id, r.free, r.total, r.sms, r.copy_engines, r.ofa) for r in rows] == [
        ("1g.6gb", 14, 3, 4, 14, 1, 0),
        ("4g.24gb", 0, 0, 1, 56, 4, 1),
    ]
    assert rows[0].memory_gib == 5.81


def test_lgip_damage_is_reported_with_its_lines():
    broken = LGIP.replace("14     3/4", "14     x/4").replace("23.50      No     56", "23.50      No")
    with pytest.raises(InputError) as caught:
        parse_lgip(broken, "a.txt")
    assert {fault.path for fault in caught.value.faults} >= {"a.txt:6", "a.txt:9"}
    cut = "\n".join(LGIP.splitlines()[:6])
    with pytest.raises(InputError, match="second line"):
        parse_lgip(cut)
    with pytest.raises(InputError, match="nothing"):
        parse_lgip("")


def test_lgipp_rows_and_damage():
    assert [(p.profile_id, p.starts, p.size) for p in parse_lgipp(LGIPP)] == [
        (14, (0, 1, 2, 3), 1),
        (0, (0,), 4),
    ]
    with pytest.raises(InputError):
        parse_lgipp("GPU  0 Profile ID 14 Placements: {0,1,2,3:1")
    with pytest.raises(InputError):
        parse_lgipp("GPU  0 Profile ID 14 Placements: {}:1")


def test_a_sku_is_learned_and_mismatches_are_named():
    sku = learn_sku("X", LGIP, LGIPP)
    assert (sku.compute_slices, sku.memory_slices) == (4, 4)
    assert [p.profile_id for p in sku.profiles] == [14, 0]
    with pytest.raises(InputError, match="no placements"):
        learn_sku("X", LGIP, LGIPP.splitlines()[0])
    with pytest.raises(InputError, match="no row"):
        learn_sku("X", LGIP, LGIPP + "GPU  0 Profile ID 99 Placement : {0}:2")


def test_lgi_rows_and_overlap():
    rows = parse_lgi(LGI)
    assert [(r.gpu, r.profile, r.instance_id, r.start, r.size) for r in rows] == [
        (0, "3g.40gb", 2, 0, 4),
        (1, "1g.10gb+me", 13, 6, 1),
    ]
    with pytest.raises(InputError, match="taken"):
        parse_lgi(
            LGI.replace(
                "|   1  MIG 1g.10gb+me   20       13          6:1",
                "|   0  MIG 1g.10gb+me   20       13          3:1",
            )
        )
    assert parse_lgi("No GPU instances found: Not Found\n") == ()


def test_transcripts_of_success_and_refusal():
    acts = parse_transcript(
        "$ sudo nvidia-smi mig -cgi 9:4 -C\n"
        "Successfully created GPU instance ID  2 on GPU  0 using profile MIG 3g.40gb (ID  9)\n"
        "Successfully created compute instance ID  0 on GPU  0 GPU instance ID  2 using profile MIG 3g.40gb (ID  2)\n"
        "root@host:~# nvidia-smi mig -dgi\n"
        "Unable to destroy GPU instance ID  2 from GPU  0: In use by another client\n"
        "Failed to destroy GPU instances: In use by another client\n"
    )
    assert [(a.verb, a.target, a.succeeded, a.gpu, a.instance_id, a.parent) for a in acts] == [
        ("create", "gpu", True, 0, 2, -1),
        ("create", "compute", True, 0, 0, 2),
        ("destroy", "gpu", False, 0, -1, -1),
        ("destroy", "gpu", False, -1, -1, -1),
    ]
    assert acts[2].reason == "In use by another client"
    with pytest.raises(InputError):
        parse_transcript("Segmentation fault\n")


def test_lists_with_old_and_new_uuids():
    text = (
        f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-{U})\n"
        f"  MIG 3g.40gb     Device  0: (UUID: MIG-{U})\n"
        f"  MIG 1g.10gb+me  Device  1: (UUID: MIG-GPU-{U}/13/0)\n"
        f"GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-{U})\n"
    )
    gpus = parse_list(text)
    assert [len(g.devices) for g in gpus] == [2, 0]
    assert gpus[0].devices[1].uuid == parse_mig_uuid(f"MIG-GPU-{U}/13/0")
    assert (gpus[0].devices[1].uuid.parent, gpus[0].devices[1].uuid.gpu_instance) == (f"GPU-{U}", 13)
    assert parse_mig_uuid("MIG-123") is None
    with pytest.raises(InputError, match="before any GPU"):
        parse_list("  MIG 3g.40gb     Device  0: (UUID: MIG-1)\n")
    with pytest.raises(InputError, match="not a MIG UUID"):
        parse_list(text.replace(f"MIG-{U}", "MIG-oops"))


def test_parted_faults_are_reported_together():
    good = 'version: v1\nmig-configs:\n  a:\n    - devices: [0, 1]\n      mig-enabled: true\n      mig-devices: {"3g.40gb": 2}\n'
    entry = parse_parted(good)["a"][0]
    assert (entry.devices, entry.enabled, entry.slices) == ((0, 1), True, {"3g.40gb": 2})
    bad = (
        good.replace("[0, 1]", "some")
        .replace("true", "maybe")
        .replace('"3g.40gb": 2', '"3g": 2, "1g.5gb": -1')
    )
    with pytest.raises(InputError) as caught:
        parse_parted(bad)
    assert len(caught.value.faults) == 4
    for text in ("a: [", "version: v2\nmig-configs: {}", "- 1"):
        with pytest.raises(InputError):
            parse_parted(text)


def test_node_labels():
    text = (
        '{"metadata": {"labels": {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.product": "X",'
        '"nvidia.com/mig.capable": "true", "nvidia.com/mig.strategy": "mixed",'
        '"nvidia.com/mig-1g.24gb.me.count": "1", "nvidia.com/mig-1g.24gb.me.memory": "23040"}}}'
    )
    labels = parse_node_labels(text)
    assert (labels.gpus, labels.capable, labels.slices[0].profile, labels.slices[0].memory_mib) == (
        2,
        True,
        "1g.24gb+me",
        23040,
    )
    assert labels.slices[0].multiprocessors == -1
    for broken in ("{", '{"a": 1}', text.replace('"23040"', '"many"')):
        with pytest.raises(InputError):
            parse_node_labels(broken)


def test_dcgm_samples():
    samples = parse_dcgm(
        "# HELP x\n"
        'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-1",GPU_I_PROFILE="1g.5gb",GPU_I_ID="13"} 0.9\n'
        'DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-2"} 61\n'
    )
    assert [(s.gpu, s.profile, s.instance, s.value) for s in samples] == [
        (0, "1g.5gb", 13, 0.9),
        (1, "", -1, 61.0),
    ]
    for broken in ('DCGM_X{gpu="0" 1', 'DCGM_X{UUID="a"} 1', "DCGM_X"):
        with pytest.raises(InputError):
            parse_dcgm(broken)


def test_device_table():
    text = (
        "| MIG devices:                                                                            |\n"
        "|  0    1   0   0  |              38MiB / 47488MiB    | 60      0 |  3   0    3    0    3 |\n"
        "|                  |                 0MiB / 65535MiB  |           |                       |\n"
    )
    row = parse_device_table(text)[0]
    assert (row.gpu_instance, row.used_mib, row.total_mib, row.sms, row.bar_total_mib, row.jpeg) == (
        1,
        38,
        47488,
        60,
        65535,
        3,
    )
    with pytest.raises(InputError, match="second line"):
        parse_device_table("\n".join(text.splitlines()[:2]))


def test_unknown_text_is_refused_with_the_kinds():
    with pytest.raises(InputError) as caught:
        read_any("hello", "x.txt")
    assert "lgip" in caught.value.faults[0].allowed


@pytest.mark.parametrize("name", ["1g.10gb", "MIG 1g.10gb+me", "2g.48gb+me.all", "1g.24gb-me", "1c.2g.20gb"])
def test_profile_names_read_back(name):
    assert parse_profile_name(name).text == name.removeprefix("MIG ")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recorded outputs are not beside this checkout")
def test_every_recorded_output_is_read():
    kinds = {path.name: read_any(path.read_text(), path.name)[0] for path in sorted(SHARED.iterdir())}
    assert set(kinds.values()) == {
        "mig-parted", "node-labels", "dcgm", "lgi", "device-table", "list", "lgip", "lgipp", "transcript",
    }  # fmt: skip
    for path in sorted(SHARED.iterdir()):  # cut in the middle of a line: read or refused, never a crash
        text = path.read_text()
        for cut in range(0, len(text), max(1, len(text) // 23)):
            with suppress(InputError):
                read_any(text[:cut], path.name)
