"""Placement rules: known counts, an independent legality test, the driver's greedy placement."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divvy.errors import DivvyError, InputError
from divvy.fleet.mig.emit import draw, emit, mig_parted, nvidia_smi
from divvy.fleet.mig.layout import (
    all_layouts,
    check,
    creation_order,
    faults,
    free_instances,
    greedy_start,
    maximal_layouts,
    multiset,
    place,
)
from divvy.fleet.mig.parse.parted import parse_parted
from divvy.fleet.mig.parse.profiles import learn_sku, read_table
from divvy.fleet.mig.profile import Placement
from divvy.fleet.mig.skus import SKUS, find_sku
from divvy.planners.slices.packing import fit, lay_out, shapes, split

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "mig"
A100, A30 = find_sku("A100-80GB"), find_sku("A30")

# Written from the -lgipp lines of the MIG User Guide, not from the table under test: gpcs -> starts, size.
SEVEN = {1: (range(7), 1), 2: ((0, 2, 4), 2), 3: ((0, 4), 4), 4: ((0,), 4), 7: ((0,), 8)}
FOUR = {1: (range(4), 1), 2: ((0, 2), 2), 4: ((0,), 4)}


def brute_force(table, compute):
    """All legal layouts by trying every subset of placements of pairwise disjoint cells."""
    options = [(g, s, frozenset(range(s, s + size))) for g, (starts, size) in table.items() for s in starts]
    legal = set()
    for count in range(compute + 1):
        for chosen in combinations(options, count):
            cells = [c for _, _, taken in chosen for c in taken]
            if len(cells) == len(set(cells)) and sum(g for g, _, _ in chosen) <= compute:
                legal.add(frozenset((g, s) for g, s, _ in chosen))
    return legal


@pytest.mark.parametrize("name", SKUS)
def test_counts_of_every_sku(name):
    sku = SKUS[name]
    found = maximal_layouts(sku)
    expected = (19, 14, 298) if sku.compute_slices == 7 else (5, 4, 26)
    assert (len(found), len({multiset(x) for x in found}), len(all_layouts(sku))) == expected


@pytest.mark.parametrize(("sku", "table"), [(A100, SEVEN), (A30, FOUR)])
def test_layouts_are_those_of_brute_force(sku, table):
    mine = {frozenset((sku.profile(p.profile).gpcs, p.start) for p in layout) for layout in all_layouts(sku)}
    legal = brute_force(table, sku.compute_slices)
    assert mine == legal
    maximal = {x for x in legal if not any(x < y for y in legal)}
    named = {
        frozenset((sku.profile(p.profile).gpcs, p.start) for p in layout) for layout in maximal_layouts(sku)
    }
    assert named == maximal


def test_the_fourteen_multisets_of_an_a100():
    texts = {"+".join(str(g) for g in sorted(_sizes(x), reverse=True)) for x in maximal_layouts(A100)}
    assert texts == {
        "7", "4+3", "4+2+1", "4+1+1+1", "3+3", "3+2+2", "3+2+1+1", "3+2+1", "3+1+1+1+1", "3+1+1+1",
        "2+2+2+1", "2+2+1+1+1", "2+1+1+1+1+1", "1+1+1+1+1+1+1",
    }  # fmt: skip


def _sizes(layout):
    return [A100.profile(p.profile).gpcs for p in layout]


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([p.name for p in A100.profiles]), st.integers(0, 4)))
def test_place_finds_a_legal_layout_or_there_is_none(wanted):
    layout = place(A100, wanted)
    if layout is not None:
        assert faults(A100, layout) == []
        assert dict(multiset(layout)) == {name: count for name, count in wanted.items() if count}
    else:
        names = {name for name, count in wanted.items() if count}
        profiles = tuple(p for p in A100.profiles if p.name in names)
        target = tuple(sorted((name, count) for name, count in wanted.items() if count))
        assert all(multiset(x) != target for x in all_layouts(A100, profiles))


@pytest.mark.parametrize(
    ("layout", "code"),
    [
        ([Placement(1, 4, "4g.40gb")], "mig-start"),
        ([Placement(0, 4, "4g.40gb"), Placement(2, 2, "2g.20gb")], "mig-overlap"),
        ([Placement(0, 1, "1g.10gb+me"), Placement(1, 1, "1g.10gb+me")], "mig-limit"),
        ([Placement(0, 1, "9g.90gb")], "mig-unknown-profile"),
        ([Placement(0, 2, "1g.10gb")], "mig-size"),
    ],
)
def test_illegal_layouts_are_named(layout, code):
    with pytest.raises(InputError) as caught:
        check(A100, layout)
    assert code in {fault.code for fault in caught.value.faults}


def test_the_driver_places_greedily_from_the_end():
    taken = []
    for name in ("1g.10gb", "1g.10gb", "2g.20gb"):  # -cgi 19,19,14,9: the last one fails
        start = greedy_start(A100, A100.profile(name), taken)
        taken.append(A100.at(name, start))
    assert [p.start for p in taken] == [6, 5, 2]
    assert greedy_start(A100, A100.profile("3g.40gb"), taken) is None
    taken = []
    for name in ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"):  # large ones first fits
        start = greedy_start(A100, A100.profile(name), taken)
        assert start is not None
        taken.append(A100.at(name, start))


def test_free_instances_are_as_lgip_counts_them():
    assert [free_instances(A100, p, ()) for p in A100.profiles] == [7, 3, 2, 1, 1, 1, 4]
    taken = [A100.at("3g.40gb", 0)]
    assert free_instances(A100, A100.profile("4g.40gb"), taken) == 0
    assert free_instances(A100, A100.profile("1g.10gb"), taken) == 3
    assert free_instances(A100, A100.profile("2g.20gb"), taken) == 1


def test_wishes_for_several_gpus_are_split_exactly():
    for wanted in ((5, 2, 2, 1, 1), (0, 0, 0, 4, 0), (3, 1, 0, 1, 2), (0, 6, 0, 0, 2)):
        per_gpu = split(A100, wanted, 4)
        assert per_gpu is not None
        assert tuple(map(sum, zip(*per_gpu, strict=True))) == wanted
        for shape in per_gpu:
            assert faults(A100, lay_out(A100, shape)) == []
    assert split(A100, (0, 0, 0, 3, 0), 2) is None
    kept, dropped = fit(A100, (2, 0, 0, 3, 0), 2)
    assert tuple(a + b for a, b in zip(map(sum, zip(*kept, strict=True)), dropped, strict=True)) == (
        2,
        0,
        0,
        3,
        0,
    )
    assert sum(dropped) == 1


def test_emitted_forms_name_starts_and_read_back():
    layouts = (lay_out(A100, (1, 1, 0, 1, 0)), lay_out(A100, (0, 0, 2, 0, 0)), lay_out(A100, (1, 1, 0, 1, 0)))
    config = parse_parted(mig_parted(A100, layouts))["divvy"]
    assert [(c.devices, c.slices) for c in config] == [
        ((0, 2), {"4g.40gb": 1, "2g.20gb": 1, "1g.10gb": 1}),
        ((1,), {"3g.40gb": 2}),
    ]
    commands = nvidia_smi(A100, layouts)
    assert "nvidia-smi mig -i 0 -cgi 4g.40gb:0,2g.20gb:4,1g.10gb:6 -C" in commands
    assert "nvidia.com/mig-3g.40gb: 2" in emit("k8s", A100, layouts)
    assert draw(A100, layouts[0]).startswith("[4g---")
    with pytest.raises(DivvyError):
        emit("xml", A100, layouts)


def test_creation_order_is_large_first():
    for layout in maximal_layouts(A100):
        sizes = [p.size for p in creation_order(layout)]
        assert sizes == sorted(sizes, reverse=True)


def test_shapes_are_the_multisets():
    assert len(shapes(A100)) == 14
    assert len(shapes(A30)) == 4


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a100-80", "A100-80GB"), ("A100-SXM4-40GB", "A100-40GB"), ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("H100 NVL", "H100-NVL-94GB"), ("GH200-144", "GH200-144GB"), ("RTX PRO 6000", "RTX-PRO-6000-96GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000-96GB"), ("b200", "B200-180GB"),
    ],
)  # fmt: skip
def test_names_of_skus(text, name):
    assert find_sku(text).name == name


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recorded outputs are not beside this checkout")
def test_layouts_derived_from_recorded_outputs():
    lgipp = (SHARED / "nvidia-smi_mig_lgipp_7slice.txt").read_text()
    for name, sku in (("a100-80gb", "A100-80GB"), ("h100nvl94", "H100-NVL-94GB")):
        learned = learn_sku(sku, (SHARED / f"nvidia-smi_mig_lgip_{name}.txt").read_text(), lgipp)
        assert maximal_layouts(learned) == maximal_layouts(find_sku(sku))
        known = {p.name: p for p in find_sku(sku).profiles}
        for profile in learned.profiles:
            mine = known[profile.name]
            assert (profile.gpcs, profile.size, profile.starts, profile.limit, profile.sms) == (
                mine.gpcs, mine.size, mine.starts, mine.limit, mine.sms,
            )  # fmt: skip
    a30 = read_table((SHARED / "nvidia-smi_mig_lgip_lgipp_a30.txt").read_text(), "A30")
    assert (len(maximal_layouts(a30)), len({multiset(x) for x in maximal_layouts(a30)})) == (5, 4)
