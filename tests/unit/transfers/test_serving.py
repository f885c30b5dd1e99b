"""Plans for serving: layouts, overlap, tiers, experts; each against its bound and its baseline."""

from __future__ import annotations

import numpy as np
import pytest

from divvy.errors import InputError
from divvy.fleet.topology.read import build
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.experts import Fleet, bound_s, dispatch_s, plan_experts, read_traffic
from divvy.planners.transfers.layout import held, moves, plan_layout
from divvy.planners.transfers.models import SHAPES, shape_of
from divvy.planners.transfers.overlap import Pipe, plan_overlap
from divvy.planners.transfers.places import tiers_of
from divvy.planners.transfers.roads import roads
from divvy.planners.transfers.tiers import Access, Tier, plan_tiers, read_access


@pytest.mark.parametrize(
    ("model", "kib"),
    [
        ("llama-3-8b", 128),
        ("llama-3-70b", 320),
        ("llama-3-405b", 504),
        ("qwen3-8b", 144),
        ("qwen3-235b", 188),
        ("deepseek-v3", 68.6),
    ],
)
def test_published_bytes_per_token(model, kib):
    assert SHAPES[model].kv_bytes_per_token / 1024 == pytest.approx(kib, abs=0.05)


def test_shapes_by_numbers_and_their_faults():
    assert shape_of("layers=2,kv_heads=4,head_dim=8").kv_bytes_per_token == 2 * 2 * 4 * 8 * 2
    for text in ("llama-9", "layers=2", "layers=x,kv_heads=1,head_dim=1"):
        with pytest.raises(InputError):
            shape_of(text)


@pytest.mark.parametrize("model", ["llama-3-70b", "qwen3-235b", "deepseek-v3"])
@pytest.mark.parametrize("source", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("target", [1, 2, 4, 8, 16])
def test_each_target_rank_gets_exactly_what_it_holds(model, source, target):
    shape, tokens = SHAPES[model], 64
    todo = moves(shape, source, target, tokens)
    for rank in range(target):
        mine = [m for m in todo if m.target == rank]
        if shape.latent:
            assert sum(m.size_bytes for m in mine) == shape.kv_bytes_per_token * tokens
            assert sorted(m.first for m in mine) == list(range(source))
        else:
            heads = sorted(h for m in mine for h in range(m.first, m.first + m.count))
            assert heads == list(held(shape.kv_heads, target, rank))
            for move in mine:
                owned = held(shape.kv_heads, source, move.source)
                assert set(range(move.first, move.first + move.count)) <= set(owned)


def test_replicated_sources_share_the_work():
    given = [0] * 16
    for move in moves(SHAPES["llama-3-70b"], 16, 8, 64):
        given[move.source] += move.size_bytes
    assert sum(1 for g in given if g) == 8
    latent = [0] * 4
    for move in moves(SHAPES["deepseek-v3"], 4, 8, 64):
        latent[move.source] += move.size_bytes
    assert max(latent) <= 1.01 * min(latent)


def test_layout_plan_keeps_the_budget_and_beats_single_heads():
    free = plan_layout(SHAPES["llama-3-70b"], 4, 8)
    assert free["bound"]["seconds"] <= free["figure"]["seconds"] <= free["baseline"]["seconds"]
    tight = plan_layout(SHAPES["llama-3-70b"], 4, 8, budget=2)
    assert tight["plan"]["method"] == "whole"
    assert tight["figure"]["descriptors"] <= 2
    assert tight["plan"]["within_budget"]
    impossible = plan_layout(SHAPES["llama-3-70b"], 4, 8, budget=1)
    assert not impossible["plan"]["within_budget"]


def test_overlap_is_between_bound_and_whole_cache():
    shape = SHAPES["llama-3-70b"]
    for rate in (5.0, 50.0, 400.0):
        plan = plan_overlap(shape, 8192, 0.9, Pipe(rate, 20e-6, "x"))
        assert plan["bound"]["end_s"] <= plan["figure"]["end_s"] + 1e-12
        assert plan["figure"]["end_s"] <= plan["baseline"]["end_s"]
        assert 0.0 <= plan["figure"]["hidden_fraction"] < 1.0
    slow = plan_overlap(shape, 8192, 0.9, Pipe(1.0, 20e-6, "x"))
    assert slow["figure"]["hidden_fraction"] < 0.35


def tiers() -> list[Tier]:
    return [
        Tier("hbm", 10e9, 1e-6, 1000.0, "t"),
        Tier("host", 30e9, 1e-5, 50.0, "t"),
        Tier("nvme", 1e12, 1e-4, 6.0, "t"),
    ]


def test_tiers_static_is_the_bound_without_an_order():
    access = read_access("a", [{"id": f"x{i}", "reads": 100 - i} for i in range(100)], 100e9)
    plan = plan_tiers(tiers(), access)
    assert plan["figure"]["mean_read_s"] == pytest.approx(plan["bound"]["mean_read_s"])
    naive = plan_tiers(
        tiers(), read_access("a", [{"id": f"x{i}", "reads": 1 + i} for i in range(100)], 100e9)
    )
    assert naive["figure"]["mean_read_s"] < naive["baseline"]["mean_read_s"]
    assert sum(row["bytes"] for row in plan["plan"]["placement"]) == pytest.approx(100e9)


def test_tiers_against_lru_and_belady():
    rng = np.random.default_rng(1)
    order = [str(int(x) % 100) for x in rng.zipf(1.3, 3000)]
    plan = plan_tiers(tiers(), read_access("a", order, 100e9))
    assert plan["bound"]["mean_read_s"] <= plan["figure"]["mean_read_s"] * (1 + 1e-9)
    assert plan["figure"]["mean_read_s"] <= plan["baseline"]["mean_read_s"]
    loop = plan_tiers(tiers(), read_access("a", [{"hash_ids": list(range(20))}] * 50, 20e9))
    assert loop["bound"]["mean_read_s"] <= loop["figure"]["mean_read_s"] * (1 + 1e-9)


def test_lru_by_hand():
    """Three pieces of 10 GB, room for one on top: a, b, a, a reads from host, host, host, hbm."""
    two = [Tier("hbm", 10e9, 0.0, 10.0, "t"), Tier("host", 30e9, 0.0, 1.0, "t")]
    access = Access(dict.fromkeys("cab", 10e9), {"a": 3.0, "b": 1.0, "c": 0.0}, tuple("abaa"))
    plan = plan_tiers(two, access)
    assert plan["baseline"]["mean_read_s"] == pytest.approx((10 + 10 + 10 + 1) / 4)


def test_tiers_refuse_what_does_not_fit_or_is_not_read():
    with pytest.raises(InputError, match="does not fit"):
        plan_tiers(tiers()[:1], Access({"a": 2e10}, {"a": 1.0}))
    with pytest.raises(InputError, match="no access"):
        read_access("a", [], 1.0)


def fleet() -> Fleet:
    return Fleet([f"g{i}" for i in range(8)], np.array([0] * 4 + [1] * 4), 450.0, 50.0, ["d0", "d1"])


def test_experts_follow_their_tokens_and_respect_the_bound():
    rng = np.random.default_rng(3)
    traffic = rng.gamma(1.0, 100.0, size=(8, 32))
    traffic[:4, ::2] *= 20
    traffic[4:, 1::2] *= 20
    plan = plan_experts(fleet(), traffic, 8192.0, "x")
    assert plan["bound"]["dispatch_s"] <= plan["figure"]["dispatch_s"] < plan["baseline"]["dispatch_s"]
    assert plan["figure"]["between_domains_fraction"] < 0.2
    assert sorted(plan["plan"]["experts_per_domain"].values()) == [16, 16]
    for _ in range(20):
        place = rng.permutation(np.repeat(np.arange(8), 4))
        assert dispatch_s(fleet(), traffic, place, 8192.0) >= bound_s(fleet(), traffic, 8192.0) * (1 - 1e-9)


def test_traffic_files():
    gpus = ["g0", "g1"]
    assert read_traffic([[1, 2], [3, 4]], gpus, 2) is not None
    assert read_traffic({"traffic": {"g0": [1, 2], "g1": [3, 4]}}, gpus, 2) is not None
    assert read_traffic([4.0, 2.0], gpus, 2) is not None
    for wrong in ([[1, 2]], [["a", 2], [3, 4]], [[-1, 2], [3, 4]], {"g0": [1, 2]}):
        assert read_traffic(wrong, gpus, 2) is None


CXL = """<topology version="2.0"><object type="Machine"><object type="Package">
<object type="NUMANode" os_index="0" local_memory="1024"/>{node}
<object type="Bridge" bridge_type="0-1" bridge_pci="0000:[00-1f]">
<object type="PCIDev" pci_busid="0000:19:00.0" pci_type="0302 [10de:2330]" pci_link_speed="63.015385"/>
{device}</object></object></object></topology>"""
EXPANDER = (
    '<object type="PCIDev" pci_busid="0000:1b:00.0" pci_type="0502 [1e98:0001]" pci_link_speed="{rate}"/>'
)


def test_cxl_memory_is_a_place_with_routes_and_the_tier_is_read_through_them():
    topo = build([("m.xml", CXL.format(node="", device=EXPANDER.format(rate="31.507692")))])
    (route,) = Finder(roads(topo)).between("cxl0", "GPU0")
    assert (route.kind, round(float(route.gb_per_s), 1)) == ("host-staged", 31.5)
    room = {"hbm": 1, "host": 1, "cxl": 10, "nvme": 1}
    cxl = next(t for t in tiers_of(topo, room) if t.name == "cxl")
    assert (round(cxl.gb_per_s, 1), cxl.source) == (31.5, "route from cxl0 to the GPU")


def test_a_numa_node_of_cxl_memory_is_no_socket():
    node = '<object type="NUMANode" os_index="1" subtype="CXL-DRAM" local_memory="4096"/>'
    topo = build([("m.xml", CXL.format(node=node, device=""))])
    assert [v.id for v in topo.vertices.values() if v.kind in ("numa", "cxl")] == ["numa0", "cxl0"]
    tiers = tiers_of(topo, {"hbm": 1, "host": 1, "cxl": -1, "nvme": 1})
    assert next(t for t in tiers if t.name == "cxl").capacity_bytes == 4096


def test_without_cxl_in_the_picture_the_tier_is_assumed_and_says_so():
    topo = build([("m.xml", CXL.format(node="", device=""))])
    assert "cxl" not in {t.name for t in tiers_of(topo, {"hbm": 1, "host": 1, "cxl": -1, "nvme": 1})}
    tiers = tiers_of(topo, {"hbm": 1, "host": 1, "cxl": 10, "nvme": 1})
    assert "default" in next(t for t in tiers if t.name == "cxl").source


@pytest.mark.parametrize(
    "entry",
    [
        {"id": "a", "reads": "x"},
        {"id": "a", "reads": -1},
        {"id": "a", "reads": float("nan")},
        {"id": "a", "bytes": -5},
        {"id": "a", "bytes": True},
        {"hash_ids": 3},
        None,
        1.5,
    ],
)
def test_entries_that_are_no_access_are_told(entry):
    with pytest.raises(InputError) as caught:
        read_access("a.json", [{"id": "b"}, entry], 1e9)
    assert caught.value.faults[0].path.startswith("a.json:[1]")


def test_sizes_may_be_text_and_all_may_be_zero():
    access = read_access("a", [{"id": "x", "bytes": "3GB"}, {"id": "y", "bytes": "1GB"}], 8e9)
    assert access.sizes == {"x": 6e9, "y": 2e9}
    assert read_access("a", [{"id": "x", "bytes": 0}], 8e9).sizes == {"x": 8e9}
    with pytest.raises(InputError):
        read_access("a", [{"id": "x"}], 0.0)


@pytest.mark.parametrize("document", [[1], {"layers": None, "kv_heads": 1, "head_dim": 1}])
def test_files_that_are_no_shape_are_refused(document):
    with pytest.raises(InputError):
        shape_of("shape.json", document)


def test_a_negative_number_of_experts_is_refused():
    with pytest.raises(InputError):
        shape_of("experts=-5,layers=1,kv_heads=1,head_dim=1")
