"""Truths that people measured, and the claims of TopKV, beside what the model gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from divvy.fleet.topology.graph import LinkKind
from divvy.fleet.topology.read import build
from divvy.perf.transfer import KINDS, predict
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.experts import default_traffic, plan_experts
from divvy.planners.transfers.layout import plan_layout
from divvy.planners.transfers.models import SHAPES
from divvy.planners.transfers.overlap import plan_overlap
from divvy.planners.transfers.places import fleet_of, pipe_of
from divvy.planners.transfers.plan import Transfer
from divvy.planners.transfers.roads import Roads, roads
from divvy.planners.transfers.tiers import Tier, plan_tiers, read_access
from divvy.sim.flows.compare import run

Row = dict[str, Any]

_PAIRS: Final = """\
\tGPU0\tGPU1\tGPU2\tCPU Affinity
GPU0\tX\tPIX\tSYS\t0-7
GPU1\tPIX\tX\tSYS\t0-7
GPU2\tSYS\tSYS\tX\t8-15
"""
_NO_PEER: Final = "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNS\tNS\nGPU1\tNS\tX\tNS\nGPU2\tNS\tNS\tX\n"
_NVL72: Final = (
    "blocks:\n- {switch: leaf, nodes: ['tray[01-18]'], annotations: {accelerator.topology/domain: nvl72}}\n"
)


def _hopper() -> str:
    """Return the matrix of an 8-GPU NVSwitch machine with a 400 Gb/s NIC for each GPU."""
    names = [f"GPU{i}" for i in range(8)] + [f"NIC{i}" for i in range(8)]

    def label(a: int, b: int) -> str:
        if a == b:
            return "X"
        if max(a, b) < 8:
            return "NV18"
        return "PIX" if a % 8 == b % 8 else "NODE" if (a % 8 < 4) == (b % 8 < 4) else "SYS"

    rows = ["\t" + "\t".join(names)]
    rows += [f"{n}\t" + "\t".join(label(a, b) for b in range(16)) for a, n in enumerate(names)]
    return "\n".join(rows)


def _pcie() -> str:
    """Return the matrix of the same machine without NVLink."""
    return _hopper().replace("NV18", "NODE")


#: Three kinds of machine: NVSwitch, a rack-wide NVLink domain, PCIe only.
ARCHITECTURES: Final = {"NVSwitch, 8 GPUs": _hopper, "NVL72": lambda: _NVL72, "PCIe only, 8 GPUs": _pcie}


def _row(
    case: str, contender: str, measure: str, value: float, unit: str, note: str = "", **more: Any
) -> Row:
    """Return one row; the claims have no targets."""
    base = {"interval": None, "n": 1, "target": None, "met": None}
    return {
        "case": case,
        "contender": contender,
        "measure": measure,
        "value": value,
        "unit": unit,
        **base,
        "note": note,
        **more,
    }


def truth_rows() -> Iterator[Row]:
    """Yield the reference truths, each as a ratio that must be above 1."""
    yield from _staged()
    found = {c.kind: c.gb_per_s for c in Finder(roads(build([("m", _PAIRS)]))).between("GPU0", "GPU2")}
    yield _truth(
        "staging over GPUDirect through the processor",
        float(found["host-staged"] / found["pcie-p2p"]),
        "NCCL issue 465",
    )
    pieces, bytes_ = 91_000, 2 * 10**9
    nvlink, rdma = (
        predict(kind, bytes_, rate).seconds + (pieces - 1) * KINDS[kind].descriptor_s
        for kind, rate in (("nvlink", 450.0), ("rdma-affine", 50.0))
    )
    yield _truth("NVLink over RDMA with 91,000 descriptors, not gathered", nvlink / rdma, "vLLM issue 55434")
    gathered = predict("nvlink", bytes_, 450.0, pieces).seconds
    yield _truth("the same, not gathered over gathered", nvlink / gathered, "what the plan does about it")


def _staged() -> Iterator[Row]:
    """Yield what staging below one uplink costs, with NCCL's rate between sockets and with a wide one."""
    topo = build([("m", _PAIRS), ("p", _NO_PEER)])
    wide = topo.with_links(replace(k, gb_per_s=100.0) if k.kind is LinkKind.SOCKET else k for k in topo.links)
    case, size = "PIX over SYS without peer-to-peer", 10**9
    for graph, where in ((topo, "sockets' link as NCCL assumes"), (wide, "sockets' link no limit")):
        ways = roads(graph)
        both = [_span(ways, [("GPU0", far), (far, "GPU0")], size) for far in ("GPU1", "GPU2")]
        note = "as a ring sends; NCCL issue 1309"
        yield _truth(case, both[0] / both[1], note, f"both directions, {where}")
        one = [_span(ways, [("GPU0", far)], size) for far in ("GPU1", "GPU2")]
        yield _row(case, "model", f"one direction, {where}", one[0] / one[1], "ratio")


def _truth(case: str, ratio: float, note: str, measure: str = "ratio") -> Row:
    """Return a truth with its target."""
    return _row(case, "model", measure, ratio, "ratio", note, target=1.0, met=ratio > 1.0)


def _span(ways: Roads, pairs: list[tuple[str, str]], size: int, planner: str = "divvy") -> float:
    """Return the makespan of equal transfers."""
    batch = [Transfer(f"t{i}", a, b, size) for i, (a, b) in enumerate(pairs)]
    return run(ways, Finder(ways), batch, planner)[1].makespan_s


def claim_rows() -> Iterator[Row]:
    """Yield TopKV's claims beside what the planner gives: one-way figures, then with contention."""
    case = "KV transfer: uniform RDMA over the plan"
    source = "arXiv 2607.28633, by analysis; 18 divides a two-way NVLink figure by a one-way InfiniBand one"
    yield _row(case, "TopKV (claim)", "speed-up", 18.0, "ratio", source, interval=[3.0, 18.0])
    yield _row(case, "TopKV (claim)", "the same, one way", 9.0, "ratio", "450 over 50 GB/s, both one way")
    yield _row(
        case, "TopKV (claim)", "the same, measured NVLink", 7.9, "ratio", "396 GB/s on an H200 pair over 50"
    )
    size = SHAPES["llama-3-70b"].kv_bytes_per_token * 8192 // 4
    for name, text in ARCHITECTURES.items():
        ways = roads(build([("m", text())]))
        gpus = [v.id for v in ways.topo.vertices.values() if v.kind == "gpu"]
        alone = [(gpus[0], gpus[4])]
        crowd = [(gpus[i], gpus[4 + i]) for i in range(4)] + [(gpus[i], gpus[4]) for i in range(1, 4)]
        for measure, pairs in (("one transfer", alone), ("seven, three into one GPU", crowd)):
            own, base = _span(ways, pairs, size), _span(ways, pairs, size, "uniform-rdma")
            topkv = _span(ways, pairs, size, "topkv")
            yield _row(
                case,
                f"divvy, {name}",
                measure,
                base / own,
                "ratio",
                f"one-way figures; {size / 1e9:.3g} GB each",
            )
            yield _row(
                case,
                f"TopKV's rule, {name}",
                measure,
                base / topkv,
                "ratio",
                "its class choice in the same simulator",
            )
    yield from _hidden()
    yield from _placements()


def _hidden() -> Iterator[Row]:
    """Yield the hidden fraction of layer-wise transfer on the three machines."""
    case = "layer-wise transfer: hidden fraction"
    yield _row(
        case,
        "TopKV (claim)",
        "hidden",
        0.85,
        "fraction",
        "first version of the paper, by analysis",
        interval=[0.60, 0.85],
    )
    note = "second version of the paper, by analysis"
    yield _row(case, "TopKV (claim)", "hidden, again", 1.0, "fraction", note, interval=[0.76, 1.00])
    shape = SHAPES["llama-3-70b"]
    for name, text in ARCHITECTURES.items():
        for streams in (1, 8):
            pipe = pipe_of(build([("m", text())]), shape, 8192, 4, streams, "", "")
            for prefill in (0.9, 0.05):
                plan = plan_overlap(shape, 8192, prefill, pipe)
                most = plan["bound"]["hidden_fraction"]
                note = f"bound {most:.3f}; {pipe.gb_per_s:.4g} GB/s for this stream by {pipe.kind}"
                measure = f"prefill {prefill * 1000:.0f} ms, {streams} stream{'s' if streams > 1 else ''}"
                yield _row(
                    case, f"divvy, {name}", measure, plan["figure"]["hidden_fraction"], "fraction", note
                )


def _placements() -> Iterator[Row]:
    """Yield experts, tiers and layouts: the figure over its bound, the baseline over the figure."""
    fleet = fleet_of(
        build(
            [
                (
                    "m",
                    _NVL72
                    + _NVL72[8:].replace("tray", "rack").replace("leaf", "leaf2").replace("nvl72", "nvl-b"),
                )
            ]
        )
    )
    shape = SHAPES["deepseek-v3"]
    traffic = default_traffic(shape.experts, fleet.domain, 4096, shape.top_k, 1)
    plan = plan_experts(fleet, traffic, shape.hidden * 2.0, shape.name)
    yield from _beside(
        "experts by NVLink domain", plan, "dispatch_s", "deepseek-v3 on two NVL72 domains, assumed traffic"
    )
    tiers = [
        Tier("hbm", 40e9, 0.5e-6, 3350.0, "default"),
        Tier("host", 100e9, 12e-6, 63.0, "default"),
        Tier("cxl", 240e9, 1.2e-6, 28.0, "default"),
        Tier("nvme", 4e12, 90e-6, 6.5, "default"),
    ]
    access = read_access(
        "skewed", [{"id": str(i), "reads": 1000.0 / (1 + (i * 37) % 800)} for i in range(800)], 400e9
    )
    plan = plan_tiers(tiers, access)
    yield from _beside("memory tiers", plan, "mean_read_s", "400 GB, reads by 1/rank")
    yield from _latencies()
    claim = "here with the bytes of a piece"
    yield _row(
        "memory tiers",
        "model",
        "CXL read over NVMe read",
        plan["topkv_claim"]["here_cxl_latency_over_nvme"],
        "ratio",
        claim,
    )
    for model, old, new in (("llama-3-70b", 4, 8), ("qwen3-235b", 8, 2), ("deepseek-v3", 4, 16)):
        plan = plan_layout(SHAPES[model], old, new)
        yield from _beside(
            f"layout {model} tp {old} to {new}",
            plan,
            "seconds",
            f"{plan['figure']['descriptors']} descriptors a rank",
        )


def _latencies() -> Iterator[Row]:
    """Yield TopKV's claim for CXL memory, beside the latencies assumed here."""
    measure = "CXL latency over NVMe latency"
    note = "6 times the capacity; latency of one access, by analysis"
    yield _row("memory tiers", "TopKV (claim)", measure, 1 / 86, "ratio", note)
    yield _row("memory tiers", "model", measure, 1.2e-6 / 90e-6, "ratio", "assumed here: 1.2 and 90 us")


def _beside(case: str, plan: dict[str, Any], key: str, note: str) -> Iterator[Row]:
    """Yield a plan's figure against its bound and its baseline."""
    figure, bound, base = (float(plan[part][key]) for part in ("figure", "bound", "baseline"))
    yield _row(case, "divvy", "over the bound", figure / bound, "ratio", note)
    yield _row(case, plan["baseline"]["name"], "over divvy", base / figure, "ratio", note)
