"""Plans as documents: ``divvy.route.plan/1``, ``divvy.route.explain/1``, with what was rejected and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from divvy.perf.transfer import overhead, predict
from divvy.planners.transfers.candidates import ORDER, Candidate, Finder, vertices_on
from divvy.planners.transfers.plan import Flow, Refused, RoutePlan, Transfer
from divvy.planners.transfers.roads import Path, Roads, bottleneck
from divvy.sim.flows.fluid import Outcome

GB = 1e9


def edges_of(ways: Roads, path: Path) -> list[dict[str, Any]]:
    """Return the links of a path in order, each with how often it is crossed (in either direction)."""
    times: dict[int, int] = defaultdict(int)
    ends: dict[int, tuple[str, str]] = {}
    for index in path.arcs:
        arc = ways.arcs[index]
        if arc.link >= 0:
            link = ways.topo.links[arc.link]
            times[arc.link] += 1
            ends.setdefault(arc.link, (link.a, link.b) if arc.forward else (link.b, link.a))
    return [{"a": a, "b": b, "times": times[link]} for link, (a, b) in ends.items()]


def plan_document(
    ways: Roads,
    finder: Finder,
    transfers: Sequence[Transfer],
    plan: RoutePlan,
    outcome: Outcome,
    bound_s: float,
    refused: Sequence[Refused] = (),
) -> dict[str, Any]:
    """Return the document of a plan that was run."""
    load = _load(ways, plan.flows)
    rows = []
    for index, transfer in enumerate(transfers):
        mine = [i for i, flow in enumerate(plan.flows) if flow.transfer == index]
        if not mine:
            continue
        flows = [plan.flows[i] for i in mine]
        finish = outcome.by_transfer[index]
        rows.append(
            {
                "id": transfer.id,
                "from": transfer.source,
                "to": transfer.target,
                "bytes": transfer.size_bytes,
                "release": transfer.release_s,
                "routes": _routes(ways, flows, transfer),
                "start": float(min(outcome.start_s[i] for i in mine)),
                "finish": finish,
                "deadline": transfer.deadline_s,
                "late_s": max(0.0, finish - transfer.deadline_s) if transfer.deadline_s is not None else 0.0,
                "bottleneck": _bottleneck(ways, flows, load),
                "rejected": _rejected(ways, finder, transfer, flows, finish - transfer.release_s, load),
            }
        )
    return {
        "schema": "divvy.route.plan/1",
        "topology": ways.topo.name,
        "planner": plan.planner,
        "transfers": rows,
        "makespan_s": outcome.makespan_s,
        "bound_s": bound_s,
        "of_bound": outcome.makespan_s / bound_s if bound_s > 0 else None,
        "unplanned": [
            {"id": r.transfer, "code": r.code, "reason": r.text} for r in (*refused, *plan.refused)
        ],
    }


def _routes(ways: Roads, flows: Sequence[Flow], transfer: Transfer) -> list[dict[str, Any]]:
    """Return the routes of a transfer, parts in several windows put together, the largest first."""
    by_path: dict[tuple[int, ...], list[Flow]] = defaultdict(list)
    for flow in flows:
        by_path[flow.path.arcs].append(flow)
    rows = [
        {
            "kind": parts[0].kind,
            "via": [
                v
                for v in vertices_on(ways, parts[0].path)[1:-1]
                if ways.topo.vertices[v].kind in ("gpu", "nic")
            ],
            "edges": edges_of(ways, parts[0].path),
            "share": sum(part.size_bytes for part in parts) / transfer.size_bytes,
            "coalesced": any(part.coalesce for part in parts),
        }
        for parts in by_path.values()
    ]
    return sorted(rows, key=lambda row: -float(row["share"]))


def _load(ways: Roads, flows: Sequence[Flow]) -> dict[int, float]:
    """Return how long each resource would be busy with all flows, at its full rate."""
    load: dict[int, float] = defaultdict(float)
    for flow in flows:
        for resource, times in flow.path.uses:
            load[resource] += times * flow.size_bytes / GB / float(ways.capacity[resource])
    return load


def _bottleneck(ways: Roads, flows: Sequence[Flow], load: dict[int, float]) -> str:
    """Return the busiest resource on the main route of a transfer."""
    main = max(flows, key=lambda flow: flow.size_bytes)
    busiest = max(main.path.uses, key=lambda use: (load[use[0]], use[1], -use[0]))[0]
    return ways.labels[busiest]


def _rejected(
    ways: Roads,
    finder: Finder,
    transfer: Transfer,
    flows: Sequence[Flow],
    took_s: float,
    load: dict[int, float],
) -> list[dict[str, Any]]:
    """Return the best candidate of each kind that was not used, with its time alone and why not."""
    used = {flow.kind for flow in flows}
    best: dict[str, tuple[float, Candidate]] = {}
    for candidate in finder.between(transfer.source, transfer.target):
        alone = predict(
            candidate.kind, transfer.size_bytes, candidate.gb_per_s, transfer.descriptors, ways.costs
        ).seconds
        if candidate.kind not in used and (candidate.kind not in best or alone < best[candidate.kind][0]):
            best[candidate.kind] = (alone, candidate)
    rows = []
    for kind in ORDER:
        if kind not in best:
            continue
        alone, candidate = best[kind]
        full = ways.labels[max(candidate.path.uses, key=lambda use: load.get(use[0], 0.0))[0]]
        narrow = ways.labels[bottleneck(ways, candidate.path)]
        if alone > took_s:
            why = (
                f"slower even alone: {narrow} carries {candidate.gb_per_s:.4g} GB/s for it; "
                f"{alone / took_s:.3g} times the plan"
            )
        else:
            why = f"as fast alone, but the batch needs {full} for other bytes"
        rows.append({"kind": kind, "predicted_s": alone, "via": list(candidate.via), "why": why})
    return rows


def explain_document(
    ways: Roads,
    finder: Finder,
    transfer: Transfer,
    plan: RoutePlan,
    outcome: Outcome,
    bound_s: float,
    *,
    both_ways_s: float,
) -> dict[str, Any]:
    """Return how one transfer should go, what limits it, and every other way with its predicted time.

    Args:
        ways: The roads.
        finder: Their candidates.
        transfer: The transfer.
        plan: Its plan.
        outcome: What came of it.
        bound_s: The bound.
        both_ways_s: When it ends if as many bytes go the other way at the same time.
    """
    document = plan_document(ways, finder, [transfer], plan, outcome, bound_s)
    row = document["transfers"][0]
    told = [
        predict(f.kind, f.size_bytes, _alone(ways, f), transfer.descriptors, ways.costs) for f in plan.flows
    ]
    low, high = min(p.low / p.seconds for p in told), max(p.high / p.seconds for p in told)
    taken = {flow.path.arcs for flow in plan.flows}
    return {
        "schema": "divvy.route.explain/1",
        "topology": ways.topo.name,
        "from": transfer.source,
        "to": transfer.target,
        "bytes": transfer.size_bytes,
        "descriptors": transfer.descriptors,
        "label": ways.topo.label(transfer.source, transfer.target),
        "routes": row["routes"],
        "predicted_s": row["finish"],
        "both_ways_s": both_ways_s,
        "expected_s": [row["finish"] * low, row["finish"] * high],
        "gb_per_s": transfer.size_bytes / GB / row["finish"],
        "bottleneck": row["bottleneck"],
        "bound_s": bound_s,
        "of_bound": document["of_bound"],
        "candidates": [
            _candidate(ways, transfer, c, is_taken=c.path.arcs in taken)
            for c in finder.between(transfer.source, transfer.target)
        ],
        "rejected": row["rejected"],
    }


def _alone(ways: Roads, flow: Flow) -> float:
    """Return the rate of a flow's path alone."""
    return min(float(ways.capacity[r]) / times for r, times in flow.path.uses)


def _candidate(ways: Roads, transfer: Transfer, candidate: Candidate, *, is_taken: bool) -> dict[str, Any]:
    """Return one candidate with its prediction."""
    told = predict(candidate.kind, transfer.size_bytes, candidate.gb_per_s, transfer.descriptors, ways.costs)
    fixed = overhead(candidate.kind, transfer.size_bytes, transfer.descriptors, ways.costs)
    return {
        "kind": candidate.kind,
        "via": list(candidate.via),
        "edges": edges_of(ways, candidate.path),
        "gb_per_s": float(candidate.gb_per_s),
        "predicted_s": told.seconds,
        "expected_s": [told.low, told.high],
        "overhead_s": fixed.seconds,
        "coalesce": fixed.coalesce,
        "cost": {
            "startup_s": candidate.cost.startup_s,
            "descriptor_s": candidate.cost.descriptor_s,
            "source": candidate.cost.source,
        },
        "bottleneck": ways.labels[bottleneck(ways, candidate.path)],
        "chosen": is_taken,
    }
