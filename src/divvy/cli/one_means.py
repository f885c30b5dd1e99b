"""What the later planners need besides the state: curves of services, kept between calls, and roads."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from divvy.cli.chatter import libraries_quiet
from divvy.cli.slice_inputs import load_batches, load_profile, load_sku, make_request
from divvy.control.one_plan import layout_document
from divvy.fleet.mig.profile import Placement
from divvy.fleet.node import Node
from divvy.fleet.tenant import Service, Tenants
from divvy.planners.pipeline import Means
from divvy.planners.slices.base import Request
from divvy.planners.slices.capacity import BLOCKS, Block, Curve
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.roads import Roads, roads
from divvy.sim.queries.curves import QUERIES, SEEDS, Rater, measure_curve

_FORMAT = "divvy.curve/1"


def means_of(
    tenants: Tenants,
    nodes: Sequence[Node],
    topology: Sequence[Path],
    planner: str = "divvy",
    dispatcher: str = "divvy",
    told: Any = lambda _: None,
) -> Means:
    """Return what the later planners need for some services on some nodes.

    Args:
        tenants: Services and pairings.
        nodes: The fleet.
        topology: Files of the interconnect; none: the inside of the nodes is assumed.
        planner: Planner of slices.
        dispatcher: Dispatch rule.
        told: Hears what is being planned.

    Raises:
        InputError: If a profile, a distribution or a topology cannot be read.
    """
    curves = {service.name: curve_of(service, planner, dispatcher, told) for service in tenants.services}
    raters = {name: Rater(curve) for name, curve in curves.items()}
    ways = roads_of(nodes, topology) if tenants.pairings else None
    return Means(tenants, curves, raters.__getitem__, ways, Finder(ways) if ways is not None else None)


def wanted_of(tenants: Tenants, curves: Mapping[str, Curve]) -> dict[str, int]:
    """Return how many GPUs each service needs for its rate and its headroom within its objective."""
    return {
        one.name: max(one.least, curves[one.name].needed(one.rate_qps * (1 + one.headroom), one.most))
        for one in tenants.services
    }


def request_of(service: Service) -> Request:
    """Return what a service asks of slices; its number of GPUs means nothing.

    Raises:
        InputError: If its profile or its distribution cannot be read.
    """
    return make_request(
        load_profile(service.profile),
        load_sku(service.sku),
        1,
        load_batches(service.batches),
        None,
        service.slo_us / 1e3,
        service.percentile,
        per_bucket=service.per_bucket,
    )


def curve_of(service: Service, planner: str, dispatcher: str, told: Any = lambda _: None) -> Curve:
    """Return the curve of a service; what was measured before is read from the cache."""
    request = request_of(service)
    kept = _cache() / f"{_digest(request, service.most, planner, dispatcher)}.json"
    blocks = _read(kept)
    if blocks is not None:
        return Curve(request, blocks)
    with libraries_quiet():
        curve = measure_curve(request, service.most, planner, dispatcher, told)
    _write(kept, curve)
    return curve


def roads_of(nodes: Sequence[Node], topology: Sequence[Path]) -> Roads:
    """Return the roads of a fleet: of its files, or of nodes as they usually are, on one non-blocking switch.

    Raises:
        InputError: If a file cannot be read.
    """
    from divvy.cli.topo_input import load  # noqa: PLC0415 - readers of topologies load yaml

    if topology:
        return roads(load(topology))
    from divvy.fleet.topology.read import build  # noqa: PLC0415 - same

    blocks = "\n".join(f'- switch: leaf\n  nodes: ["{node.name}"]' for node in nodes)
    text = f"switches:\n  leaf: {{}}\nblocks:\n{blocks}\n"
    return roads(build([("assumed", text)]))


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "divvy" / "curves"


def _digest(request: Request, most: int, planner: str, dispatcher: str) -> str:
    """Return a fingerprint of everything that a curve depends on."""
    profile = [(c.gpcs, c.batch, c.processes, c.latency_us, c.utilisation) for c in request.profile.cells]
    text = json.dumps(
        [
            _FORMAT, request.sku.name, profile, request.batches.weights, request.slo_us, request.percentile,
            request.per_bucket, min(most, max(BLOCKS)), planner, dispatcher, SEEDS, QUERIES,
        ]
    )  # fmt: skip
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _read(path: Path) -> tuple[Block, ...] | None:
    """Return kept blocks; None where there are none or the file is damaged."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return tuple(
            Block(
                tuple(
                    tuple(Placement(s["start"], s["size"], s["profile"]) for s in gpu) for gpu in row["gpus"]
                ),
                row["dispatcher"],
                row["rate_qps"],
            )
            for row in rows
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, curve: Curve) -> None:
    rows = [
        {
            "gpus": [layout_document(layout) for layout in block.layouts],
            "dispatcher": block.dispatcher,
            "rate_qps": block.rate_qps,
        }
        for block in curve.blocks
    ]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rows), encoding="utf-8")
    except OSError:
        return  # a cache that cannot be written is no reason not to plan
