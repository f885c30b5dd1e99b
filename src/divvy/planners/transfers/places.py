"""From a topology to what the serving planners need: fleets, tiers, the pipe between two sides."""

from __future__ import annotations

import numpy as np

from divvy.errors import InputError
from divvy.fleet.topology.graph import Kind, LinkKind, Topology
from divvy.fleet.topology.speeds import CXL_GB_PER_S, NVME_GB_PER_S
from divvy.perf.transfer import KINDS
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.columns import GB
from divvy.planners.transfers.divvy import plan_and_split
from divvy.planners.transfers.experts import Fleet
from divvy.planners.transfers.models import Shape
from divvy.planners.transfers.overlap import Pipe
from divvy.planners.transfers.plan import Transfer, resolve
from divvy.planners.transfers.roads import Roads, roads
from divvy.planners.transfers.tiers import Tier

_HBM_GB_PER_S = {
    "A100": 1555.0,
    "H100": 3350.0,
    "H200": 4800.0,
    "B200": 8000.0,
    "GB200": 8000.0,
    "MI300": 5300.0,
}


def fleet_of(topo: Topology) -> Fleet:
    """Return the GPUs with their NVLink domains; without NVLink each GPU is a domain of its own.

    Raises:
        InputError: If there is no GPU.
    """
    gpus = topo.of_kind(Kind.GPU)
    if not gpus:
        raise InputError.one("too-few-places", f"{topo.name} has no GPU", path="--topo")
    plane = {k.a: k.b for k in topo.links if topo.vertices[k.b].kind is Kind.NVSWITCH}
    mesh = {end for k in topo.links if k.kind in (LinkKind.NVLINK, LinkKind.XGMI) for end in (k.a, k.b)}
    names: list[str] = []
    domain = []
    for gpu in gpus:
        name = (
            gpu.domain or plane.get(gpu.id) or (f"mesh {gpu.machine}".strip() if gpu.id in mesh else gpu.id)
        )
        if name not in names:
            names.append(name)
        domain.append(names.index(name))
    near = [k.gb_per_s for k in topo.links if k.kind in (LinkKind.NVLINK, LinkKind.XGMI)]
    far = sum(
        k.gb_per_s for k in topo.links if k.kind is LinkKind.NETWORK and topo.vertices[k.a].kind is Kind.NIC
    )
    return Fleet(
        [g.id for g in gpus],
        np.array(domain, dtype=np.int64),
        min(near, default=16.0),
        far / len(gpus) if far else 16.0,
        names,
    )


def tiers_of(topo: Topology, room: dict[str, int]) -> list[Tier]:
    """Return the tiers as the first GPU sees them, from near to far; tiers without room are left out.

    Raises:
        InputError: If there is no GPU.
    """
    gpus = topo.of_kind(Kind.GPU)
    if not gpus:
        raise InputError.one("too-few-places", f"{topo.name} has no GPU", path="--topo")
    gpu = gpus[0]
    ways = roads(topo)
    finder = Finder(ways)
    model = next((v for k, v in _HBM_GB_PER_S.items() if gpu.model.startswith(k)), 2000.0)
    memories = [m.id for m in topo.of_kind(Kind.MEMORY) if m.numa == gpu.numa] or [
        m.id for m in topo.of_kind(Kind.MEMORY)
    ]
    found = finder.between(memories[0], gpu.id) if memories else []
    host = max((float(c.gb_per_s) for c in found), default=16.0)
    disks = topo.of_kind(Kind.STORAGE)
    paths = [c for d in disks for c in finder.between(d.id, gpu.id)]
    disk = max((float(c.gb_per_s) for c in paths), default=0.0)
    drive = min(disk, NVME_GB_PER_S * len(disks)) if disk else NVME_GB_PER_S
    tiers = [
        Tier("hbm", room["hbm"], 0.5e-6, model, f"HBM of {gpu.model or 'a GPU'} (default)"),
        Tier(
            "host",
            room["host"],
            KINDS["host-staged"].startup_s / 3,
            host,
            "route from the socket's memory to the GPU",
        ),
        _cxl(topo, finder, gpu.id, room["cxl"], host),
        Tier(
            "nvme",
            room["nvme"],
            90e-6,
            drive,
            f"{len(disks)} drives" if disks else "one gen-4 drive (default)",
        ),
    ]
    return [tier for tier in tiers if tier.capacity_bytes > 0]


def _cxl(topo: Topology, finder: Finder, gpu: str, room: int, host: float) -> Tier:
    """Return the CXL tier: the expanders of the graph with the routes from them, else an assumed one.

    Args:
        topo: The topology.
        finder: Finds the routes.
        gpu: The GPU that reads.
        room: Bytes asked for; negative means what the graph knows.
        host: Rate of the route from the socket's memory.
    """
    known = topo.of_kind(Kind.CXL)
    size = sum(int(dict(v.facts).get("memory_bytes", "0")) for v in known)
    rates = [max((float(c.gb_per_s) for c in finder.between(v.id, gpu)), default=0.0) for v in known]
    if not any(rates):
        return Tier("cxl", max(room, 0), 1.2e-6, min(CXL_GB_PER_S, host), "CXL 2.0 x8 expander (default)")
    names = ", ".join(v.id for v in known)
    rate = min(sum(rates), host)
    return Tier("cxl", room if room >= 0 else size, 1.2e-6, rate, f"route from {names} to the GPU")


def _rank(ways: Roads, gpus: list[str], text: str, *, is_source: bool) -> int:
    """Return the position of the GPU that a text means."""
    name = ways.end(text, source=is_source)
    if name not in gpus:
        path = "--from" if is_source else "--to"
        raise InputError.one("place-unknown", f"{text!r} is no GPU", path=path, allowed=", ".join(gpus[:24]))
    return gpus.index(name)


def pipe_of(
    topo: Topology, shape: Shape, prompt: int, tp: int, streams: int, source: str, target: str
) -> Pipe:
    """Return the way of a KV cache from one side's ranks to the other's, with all ranks and streams at once.

    Raises:
        InputError: If there are too few GPUs or no way between them.
    """
    gpus = [v.id for v in topo.of_kind(Kind.GPU)]
    ranks = tp or max(1, min(4, len(gpus) // 2, shape.kv_heads if not shape.latent else 4))
    ways = roads(topo)
    first = _rank(ways, gpus, source, is_source=True) if source else 0
    second = _rank(ways, gpus, target, is_source=False) if target else first + ranks
    if len(gpus) < 2 or max(first, second) + ranks > len(gpus) or abs(first - second) < ranks:
        raise InputError.one(
            "too-few-places",
            f"{topo.name} has {len(gpus)} GPUs: {ranks} ranks from {first} and {ranks} from {second} "
            "do not fit",
            path="--tp",
            fix="use fewer ranks, or other first GPUs with --from and --to",
        )
    size = shape.kv_bytes_per_token * prompt
    each = size if shape.latent else -(-size // ranks)
    copies = ranks if shape.latent else 1
    batch = [
        Transfer(
            f"{s}-{r}", gpus[first + r], gpus[second + r], max(1, each // copies if shape.latent else each)
        )
        for s in range(streams)
        for r in range(ranks)
    ]
    finder = Finder(ways)
    moved = resolve(ways, batch)
    if not all(finder.between(t.source, t.target) for t in moved):
        raise InputError.one("no-link", f"no link joins the two sides in {topo.name}", path="--topo")
    plan, split = plan_and_split(ways, moved)
    kinds = {flow.kind for flow in plan.flows}
    span = split.makespan_s if split is not None else max(f.size_bytes for f in plan.flows) / GB
    return Pipe(size / GB / span, min(ways.costs[k].startup_s for k in kinds), ", ".join(sorted(kinds)))
