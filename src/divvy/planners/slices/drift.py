"""When to cut anew: has the traffic drifted, and does a better layout pay for its change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from divvy.perf.traffic import BatchDistribution

#: Chi-square quantile factor: drift is called when the statistic per degree of freedom exceeds this.
_SIGNIFICANT: Final = 3.0
#: And when the shape really differs: largest gap of the cumulated shares.
_SHAPE: Final = 0.05
_RATE: Final = 0.15


@dataclass(frozen=True, slots=True)
class Drift:
    """How far the traffic is from what the layout was planned for.

    Attributes:
        batches: Largest gap of the cumulated batch shares, 0 to 1 (Kolmogorov and Smirnov's distance).
        rate: Relative change of the rate, signed.
        significant: Whether the sample is large enough to say so, and the change large enough to matter.
        text: One line for people.
    """

    batches: float
    rate: float
    significant: bool
    text: str


def detect(planned: BatchDistribution, planned_qps: float, seen: Mapping[int, int], seen_qps: float) -> Drift:
    """Return the drift of a sample of batch sizes (size to count) and a rate from the plan."""
    total = sum(seen.values())
    shares = dict(planned.weights)
    sizes = sorted({*shares, *seen})
    gap, mine, theirs = 0.0, 0.0, 0.0
    for size in sizes:
        mine += shares.get(size, 0.0)
        theirs += seen.get(size, 0) / total if total else 0.0
        gap = max(gap, abs(mine - theirs)) if total else 0.0
    chi = sum(
        (seen.get(size, 0) - total * shares.get(size, 0.0)) ** 2 / max(total * shares.get(size, 0.0), 1.0)
        for size in sizes
    ) / max(len(sizes) - 1, 1)
    rate = seen_qps / planned_qps - 1 if planned_qps > 0 else 0.0
    shape = gap >= _SHAPE and chi >= _SIGNIFICANT
    text = f"batch sizes are {gap:.1%} apart at most, the rate moved by {rate:+.1%} ({total} queries seen)"
    return Drift(gap, rate, shape or abs(rate) >= _RATE, text)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to change, and why."""

    change: bool
    text: str


def worth_it(
    now_qps: float,
    then_qps: float,
    demand_qps: float,
    lost_gpc_seconds: float,
    fleet_gpcs: int,
    *,
    horizon_seconds: float = 86_400.0,
    hysteresis: float = 0.1,
    seconds_since_last: float = float("inf"),
    pause_seconds: float = 1_800.0,
) -> Decision:
    """Return whether a change pays: more queries won over the horizon than lost, not too soon.

    Args:
        now_qps: What the present layout serves of the traffic seen now.
        then_qps: What the new layout serves of it.
        demand_qps: The traffic.
        lost_gpc_seconds: Compute-slice seconds out of service during the change.
        fleet_gpcs: Compute slices of the fleet.
        horizon_seconds: How long the traffic is expected to stay.
        hysteresis: Share by which the new layout must be better, so that noise does not move slices.
        seconds_since_last: Since the last change.
        pause_seconds: No two changes closer than this.
    """
    if seconds_since_last < pause_seconds:
        return Decision(change=False, text=f"the last change is only {seconds_since_last:.0f} s ago")
    served, better = min(now_qps, demand_qps), min(then_qps, demand_qps)
    if then_qps < now_qps * (1 + hysteresis):
        gain = then_qps / now_qps - 1 if now_qps > 0 else 0.0
        return Decision(change=False, text=f"{gain:+.1%} is within the hysteresis of {hysteresis:.0%}")
    lost = now_qps * lost_gpc_seconds / fleet_gpcs
    won = (better - served) * horizon_seconds
    if won <= lost * (1 + hysteresis):
        return Decision(change=False, text=f"{won:.0f} queries to win, {lost:.0f} to lose in the change")
    return Decision(
        change=True, text=f"{won:.0f} queries to win over {horizon_seconds:.0f} s, {lost:.0f} to lose"
    )
