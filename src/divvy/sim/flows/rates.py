"""What crosses each link when: the record by which anybody can check a plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from divvy.planners.transfers.plan import Flow, Transfer
from divvy.planners.transfers.roads import Roads
from divvy.sim.flows.fluid import Outcome


def rate_lines(
    ways: Roads, transfers: Sequence[Transfer], flows: Sequence[Flow], outcome: Outcome
) -> Iterator[dict[str, Any]]:
    """Yield one line for each constant-rate span, transfer and direction of a link.

    A link that a route crosses twice in one direction counts twice. Ends are in the direction of flow.
    """
    steps = [_steps(ways, flow) for flow in flows]
    for piece in outcome.pieces:
        total: dict[tuple[int, str, str], float] = defaultdict(float)
        for index, flow in enumerate(flows):
            rate = float(piece.rates[index])
            if rate <= 0:
                continue
            for (a, b), times in steps[index].items():
                total[flow.transfer, a, b] += rate * times
        for (transfer, a, b), rate in total.items():
            yield {
                "t0": piece.begin_s,
                "t1": piece.end_s,
                "transfer": transfers[transfer].id,
                "a": a,
                "b": b,
                "gb_per_s": rate,
            }


def _steps(ways: Roads, flow: Flow) -> dict[tuple[str, str], int]:
    """Return how often a flow crosses each link in each direction."""
    out: dict[tuple[str, str], int] = defaultdict(int)
    for index in flow.path.arcs:
        arc = ways.arcs[index]
        if arc.link >= 0:
            link = ways.topo.links[arc.link]
            out[(link.a, link.b) if arc.forward else (link.b, link.a)] += 1
    return out


def check_rates(
    ways: Roads,
    transfers: Sequence[Transfer],
    flows: Sequence[Flow],
    outcome: Outcome,
    tolerance: float = 1e-6,
) -> list[str]:
    """Return every violation: a resource over its capacity, a transfer with other than its own bytes."""
    faults: list[str] = []
    moved: dict[int, float] = defaultdict(float)
    for piece in outcome.pieces:
        load: dict[int, float] = defaultdict(float)
        for index, flow in enumerate(flows):
            rate = float(piece.rates[index])
            moved[flow.transfer] += rate * 1e9 * (piece.end_s - piece.begin_s)
            for resource, times in flow.path.uses:
                load[resource] += rate * times
        faults.extend(
            f"{ways.labels[r]}: {value:.6g} of {ways.capacity[r]:.6g} GB/s at {piece.begin_s:.6g} s"
            for r, value in load.items()
            if value > ways.capacity[r] * (1 + tolerance)
        )
    for index, transfer in enumerate(transfers):
        if index in moved and abs(moved[index] - transfer.size_bytes) > max(
            1.0, tolerance * transfer.size_bytes
        ):
            faults.append(f"{transfer.id}: {moved[index]:.0f} of {transfer.size_bytes} bytes arrived")
    return faults
