"""A change of links and a batch in flight: what had arrived, and how it ends with a new plan or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from divvy.planners.transfers.bound import bound
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.plan import Flow, Transfer
from divvy.planners.transfers.registry import PLANNERS
from divvy.planners.transfers.replan import Change, Replanned, changed, replan
from divvy.planners.transfers.roads import Roads, roads
from divvy.sim.flows.document import plan_document
from divvy.sim.flows.fluid import Outcome, simulate


def arrived(flows: Sequence[Flow], outcome: Outcome, now_s: float) -> list[float]:
    """Return the bytes of each flow that have arrived at a moment; the outcome has its pieces."""
    out = [0.0] * len(flows)
    for piece in outcome.pieces:
        span = min(piece.end_s, now_s) - piece.begin_s
        if span > 0:
            for index in range(len(flows)):
                out[index] += float(piece.rates[index]) * span * 1e9
    return [min(done, flow.size_bytes) for done, flow in zip(out, flows, strict=True)]


def heal(
    ways: Roads,
    finder: Finder,
    transfers: Sequence[Transfer],
    changes: Sequence[Change],
    now_s: float,
    *,
    planner: str = "divvy",
    seed: int = 0,
    moved: Mapping[str, int] | None = None,
) -> tuple[Replanned, dict[str, Any]]:
    """Return the new plan and its ``divvy.route.replan/1`` document.

    Args:
        ways: The roads before the change.
        finder: Their candidates.
        transfers: The whole batch.
        changes: Links that are slow or dead from `now_s` on.
        now_s: When.
        planner: Name of the planner.
        seed: For planners that choose at random.
        moved: Bytes that have arrived by transfer; None: what the first plan would have moved by then.
    """
    first = PLANNERS[planner](ways, finder, transfers, seed)
    outcome = simulate(ways, first.flows, keep_pieces=True)
    by_flow = arrived(first.flows, outcome, now_s)
    known = dict(moved) if moved is not None else _by_transfer(transfers, first.flows, by_flow)
    again = replan(ways, transfers, known, changes, now_s, planner=planner, seed=seed)
    ended = simulate(again.ways, again.plan.flows)
    left = [t for t in again.rest if t.id not in {r.transfer for r in again.plan.refused}]
    least = bound(again.ways, again.finder, left)
    plan = plan_document(again.ways, again.finder, again.rest, again.plan, ended, least, again.refused)
    return again, {
        "schema": "divvy.route.replan/1",
        "at_s": now_s,
        "changes": [{"a": c.a, "b": c.b, "gb_per_s": c.gb_per_s} for c in changes],
        "moved": {t.id: known.get(t.id, 0) for t in transfers},
        "done": again.done,
        "before_s": outcome.makespan_s,
        "without_s": _without(ways, first.flows, by_flow, changes, now_s)
        if now_s < outcome.makespan_s
        else outcome.makespan_s,
        "plan": plan,
    }


def _by_transfer(
    transfers: Sequence[Transfer], flows: Sequence[Flow], by_flow: Sequence[float]
) -> dict[str, int]:
    """Return whole bytes that have arrived by transfer."""
    out = {t.id: 0.0 for t in transfers}
    for flow, done in zip(flows, by_flow, strict=True):
        out[transfers[flow.transfer].id] += done
    size = {t.id: t.size_bytes for t in transfers}
    return {name: min(size[name], int(done + 0.5)) for name, done in out.items()}


def _without(
    ways: Roads, flows: Sequence[Flow], by_flow: Sequence[float], changes: Sequence[Change], now_s: float
) -> float | None:
    """Return when the first plan would end over the changed links; None for never."""
    slow = [c if c.gb_per_s > 0 else replace(c, gb_per_s=1e-12) for c in changes]
    after = roads(changed(ways.topo, slow), ways.costs)
    rest = [
        replace(flow, size_bytes=flow.size_bytes - done, start_s=max(flow.start_s, now_s))
        for flow, done in zip(flows, by_flow, strict=True)
        if flow.size_bytes - done > 0.5
    ]
    dead = {i for i, room in enumerate(after.capacity) if room < 1e-9}
    if any(dead & {r for r, _ in flow.path.uses} for flow in rest):
        return None
    return max(now_s, simulate(after, rest).makespan_s)
