"""The matrix of nvidia-smi: every trap of the text, and never a wrong link."""

from __future__ import annotations

import random
import re

import pytest

from divvy.errors import InputError
from divvy.fleet.topology.matrix import read_matrix
from divvy.fleet.topology.read import build

CLEAN = """\
        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV4     NODE    SYS     PIX     SYS     0-23            0               N/A
GPU1    NV4      X      NODE    SYS     NODE    SYS     0-23            0               N/A
GPU2    NODE    NODE     X      SYS     NODE    SYS     0-23            0               N/A
GPU3    SYS     SYS     SYS      X      SYS     PHB     24-47           1               N/A
NIC0    PIX     NODE    NODE    SYS      X      SYS
NIC1    SYS     SYS     SYS     PHB     SYS      X

NIC Legend:

  NIC1: mlx5_bond_0
  NIC0: mlx5_7
"""
TRUTH = read_matrix("clean", CLEAN).labels


def codes(text: str) -> list[str]:
    return [finding.code for finding in read_matrix("m", text).findings]


def test_clean_matrix_is_read_whole():
    reading = read_matrix("m", CLEAN)
    assert reading.findings == []
    assert len(reading.labels) == 15
    assert reading.labels["GPU0", "GPU1"] == "NV4"
    assert reading.labels["GPU3", "NIC1"] == "PHB"
    assert reading.vertices["NIC0"].name == "mlx5_7"
    assert reading.vertices["GPU3"].numa == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda t: "\x1b[4m" + t.replace("GPU0    GPU1", "\x1b[0mGPU0    GPU1", 1),
        lambda t: t.replace("SYS", "SOC"),
        lambda t: t.split("\n\n")[0],
        lambda t: t.replace("\n", "\r\n"),
        lambda t: "\n".join(re.sub(r" {2,}|(?<=\d) (?=X)", "\t", line) for line in t.splitlines()),
        lambda t: "some log line\n\n" + t,
        lambda t: t.replace("NODE    SYS     PIX", "NODE    SYSPIX"),
        lambda t: t.replace("NODE     X      SYS", "NODE     X\nSYS"),
    ],
    ids=["ansi", "soc", "no-legend", "crlf", "tabs", "prefix", "fused", "wrapped"],
)
def test_other_spellings_give_the_same_labels(change):
    assert read_matrix("m", change(CLEAN)).labels == TRUTH


def test_no_header_takes_rows_as_columns_and_says_so():
    body = "\n".join(CLEAN.splitlines()[1:7])
    reading = read_matrix("m", body)
    assert reading.labels == TRUTH
    assert "header-missing" in [f.code for f in reading.findings]


def test_missing_rows_are_named_and_mirrored():
    reading = read_matrix("m", "\n".join(CLEAN.splitlines()[:5]))
    assert reading.labels["GPU0", "NIC0"] == "PIX"
    assert ("NIC0", "NIC1") not in reading.labels
    assert any(f.code == "row-missing" and "row NIC0, columns NIC1" in f.where for f in reading.findings)


def test_a_lost_cell_is_named_by_row_and_column():
    text = CLEAN.replace(
        "GPU1    NV4      X      NODE    SYS     NODE", "GPU1    NV4      X      NODE    ???     NODE"
    )
    reading = read_matrix("m", text)
    assert reading.labels == TRUTH
    assert any("row GPU1" in f.where and "GPU3" in f.where for f in reading.findings)


def test_a_dropped_cell_never_shifts_the_row():
    lines = CLEAN.splitlines()
    lines[1] = lines[1].replace("NODE    ", "", 1)
    reading = read_matrix("m", "\n".join(lines))
    assert reading.labels == TRUTH  # the mirrored cells are still there
    assert any("row GPU0" in f.where for f in reading.findings)


def test_ellipsis_and_asymmetry_are_reported():
    text = CLEAN.replace("GPU2    NODE    NODE     X      SYS", "GPU2    NODE    ...      X      SYS")
    assert read_matrix("m", text).labels == TRUTH
    assert codes(text) == ["cell-unreadable"]
    uneven = CLEAN.replace("GPU1    NV4      X", "GPU1    NV2      X")
    reading = read_matrix("m", uneven)
    assert reading.labels["GPU0", "GPU1"] == "NV2"
    assert [f.code for f in reading.findings] == ["asymmetric"]
    assert "row GPU0, column GPU1" in reading.findings[0].where


def test_blank_affinity_and_impossible_links():
    lines = CLEAN.splitlines()
    lines[3] = lines[3][:56].rstrip()
    assert "affinity-blank" in codes("\n".join(lines))
    assert "cell-unreadable" in codes(CLEAN.replace("NV4     NODE", "NV99    NODE"))


def test_not_a_matrix_is_refused():
    with pytest.raises(InputError, match="no row"):
        read_matrix("m", "GPU0 is fine\n")
    with pytest.raises(InputError, match="no kind"):
        build([("x", "hello world")])


@pytest.mark.parametrize("seed", range(300))
def test_damage_never_gives_a_wrong_link_in_silence(seed):
    """Cut, blank and fuse at random: what is left is true, or a finding names row and column."""
    rng = random.Random(seed)
    lines = CLEAN.splitlines()[:7]
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(1, len(lines))
        line = lines[at]
        kind = rng.randrange(5)
        words = list(re.finditer(r"\S+", line))
        if kind == 0 or len(words) < 4:
            lines[at] = line[: rng.randrange(6, max(7, len(line)))]
        elif kind == 1:
            word = rng.choice(words[1:])
            lines[at] = line[: word.start()] + line[word.end() :]
        elif kind == 2:
            word = rng.choice(words[1:-1])
            lines[at] = line[: word.start()] + line[word.end() :].lstrip()
        elif kind == 3:
            word = rng.choice(words[1:])
            lines[at] = line[: word.start()] + "#" * len(word.group()) + line[word.end() :]
        else:
            del lines[at]
            if len(lines) < 4:
                break
    try:
        reading = read_matrix("m", "\n".join(lines))
    except InputError:
        return
    wrong = {pair: label for pair, label in reading.labels.items() if TRUTH.get(pair, label) != label}
    for (a, b), label in wrong.items():
        assert any(a in f.where and b in f.where for f in reading.findings), (a, b, label, lines)
    if any(pair not in reading.labels for pair in TRUTH):
        assert reading.findings


def test_m_and_mp_of_one_machine_do_not_contradict():
    both = [("m", CLEAN), ("mp", CLEAN.replace("NV4 ", "PIX "))]
    for inputs in (both, both[::-1]):
        topo = build(inputs)
        assert topo.label("GPU0", "GPU1") == "NV4"
        assert any(link.kind == "nvlink" for link in topo.links)
        assert "inputs-disagree" not in {f.code for f in topo.findings}
    other = build([("m", CLEAN), ("n", CLEAN.replace("SYS     PIX     SYS", "SYS     NODE    SYS"))])
    assert "inputs-disagree" in {f.code for f in other.findings}


def test_grace_reaches_its_nics_as_its_own():
    text = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    text += "GPU0\t X \tNV18\tNODE\t0-71\t0\t4\nGPU1\tNV18\t X \tSYS\t72-143\t1\t12\nNIC0\tNODE\tSYS\t X \n"
    topo = build([("g", text)])
    assert topo.peering.socket_gb_per_s == 450.0
    assert any(link.kind == "c2c" and link.a == "GPU0" for link in topo.links)


def test_a_nic_has_no_nvlink():
    """Cells of a row that no other row confirms have changed places."""
    text = "\tGPU0\tGPU1\tNIC0\nGPU0\tX\tNODE\tNV8\nGPU1\tNODE\tX\tSYS\n"
    reading = read_matrix("m", text)
    assert ("cell-impossible", "m: row GPU0, column NIC0") in {(f.code, f.where) for f in reading.findings}
    assert ("GPU0", "NIC0") not in reading.labels
