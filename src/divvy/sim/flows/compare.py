"""Run planners over topologies on the same work, beside the bound."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from divvy.planners.transfers.bound import bound
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.columns import Split
from divvy.planners.transfers.divvy import plan_and_split
from divvy.planners.transfers.plan import Flow, Refused, RoutePlan, Transfer
from divvy.planners.transfers.registry import PLANNERS
from divvy.planners.transfers.roads import Roads
from divvy.sim.flows.fluid import Outcome, simulate


@dataclass(slots=True)
class Result:
    """One planner on one topology."""

    topology: str
    planner: str
    transfers: int
    makespan_s: float
    p99_s: float
    mean_s: float
    bound_s: float
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def of_bound(self) -> float:
        """Return makespan over bound."""
        return self.makespan_s / self.bound_s

    def to_json(self) -> dict[str, Any]:
        """Return the row of the ``divvy.route.compare/1`` document."""
        return {
            "topology": self.topology,
            "planner": self.planner,
            "transfers": self.transfers,
            "makespan_s": self.makespan_s,
            "p99_s": self.p99_s,
            "mean_s": self.mean_s,
            "bound_s": self.bound_s,
            "of_bound": self.of_bound,
            "kinds": self.kinds,
        }


def reachable(finder: Finder, transfers: Sequence[Transfer]) -> tuple[list[Transfer], list[Refused]]:
    """Return the transfers that have any way, and the refusals of the others."""
    kept: list[Transfer] = []
    refused: list[Refused] = []
    for transfer in transfers:
        if finder.between(transfer.source, transfer.target):
            kept.append(transfer)
        else:
            text = f"no link of any kind joins {transfer.source} and {transfer.target}"
            refused.append(Refused(transfer.id, "no-link", text))
    return kept, refused


def run(
    ways: Roads,
    finder: Finder,
    transfers: Sequence[Transfer],
    planner: str,
    seed: int = 0,
    *,
    keep_pieces: bool = False,
    incast: Mapping[int, int] | None = None,
) -> tuple[RoutePlan, Outcome, Split | None]:
    """Return a planner's plan, what came of it, and the program's solution where it serves for the bound."""
    split: Split | None = None
    if planner == "divvy":
        plan, split = plan_and_split(ways, transfers)
    else:
        plan = PLANNERS[planner](ways, finder, transfers, seed)
    return plan, simulate(ways, plan.flows, keep_pieces=keep_pieces, incast=incast), split


def both_ways(ways: Roads, finder: Finder, transfer: Transfer) -> float:
    """Return when a transfer and its mirror image have both ended, as a ring of two sends them.

    Where bytes that go one way cross a link up and down (staging below one PCIe switch), this shows what
    one direction alone does not: the link carries both crossings of both.
    """
    back = replace(transfer, id=f"{transfer.id} back", source=transfer.target, target=transfer.source)
    kept, _ = reachable(finder, [transfer, back])
    return run(ways, finder, kept, "divvy")[1].makespan_s


def compare(
    name: str, ways: Roads, transfers: Sequence[Transfer], planners: Sequence[str], seed: int = 0
) -> tuple[list[Result], list[dict[str, str]]]:
    """Return results of planners on one topology, and what could not be planned with its reason."""
    finder = Finder(ways)
    kept, refused = reachable(finder, transfers)
    unplanned = [
        {"topology": name, "planner": "", "transfer": r.transfer, "code": r.code, "reason": r.text}
        for r in refused
    ]
    if not kept:
        return [], unplanned
    least: float | None = None
    results: list[Result] = []
    for planner in sorted(planners, key=lambda p: p != "divvy"):
        plan, outcome, split = run(ways, finder, kept, planner, seed)
        if least is None:
            least = bound(ways, finder, kept, split)
        if plan.refused:
            shown = "; ".join(r.text for r in plan.refused[:2]) + (" ..." if len(plan.refused) > 2 else "")
            reason = f"{len(plan.refused)} of {len(kept)} transfers have no route by its rule: {shown}"
            unplanned.append(
                {
                    "topology": name,
                    "planner": planner,
                    "transfer": "",
                    "code": plan.refused[0].code,
                    "reason": reason,
                }
            )
            continue
        results.append(_result(name, planner, kept, plan.flows, outcome, least))
    order = {p: i for i, p in enumerate(planners)}
    return sorted(results, key=lambda r: order[r.planner]), unplanned


def _result(
    name: str,
    planner: str,
    transfers: Sequence[Transfer],
    flows: Sequence[Flow],
    outcome: Outcome,
    least: float,
) -> Result:
    """Return the row of one run."""
    times = [outcome.by_transfer[i] - t.release_s for i, t in enumerate(transfers)]
    kinds: dict[str, int] = {}
    for flow in flows:
        kinds[flow.kind] = kinds.get(flow.kind, 0) + 1
    p99 = float(np.percentile(times, 99))
    return Result(name, planner, len(transfers), outcome.makespan_s, p99, float(np.mean(times)), least, kinds)


def geomeans(results: Sequence[Result]) -> dict[str, float]:
    """Return the geometric mean of makespan over bound by planner."""
    logs: dict[str, list[float]] = {}
    for result in results:
        logs.setdefault(result.planner, []).append(math.log(result.of_bound))
    return {planner: math.exp(sum(values) / len(values)) for planner, values in logs.items()}
