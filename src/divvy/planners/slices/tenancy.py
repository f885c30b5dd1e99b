"""Lays out what a service was granted: what is cut stays unless a change pays for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from divvy.fleet.mig.change import Change, plan_change
from divvy.fleet.mig.profile import Layout
from divvy.planners.slices.capacity import Curve
from divvy.planners.slices.drift import Decision, worth_it
from divvy.planners.slices.packing import slices_of

#: Rate that slices serve within the objective, by their compute slices.
Rated = Callable[[tuple[int, ...]], float]

#: How long a layout is expected to stay, where nobody says.
HORIZON_SECONDS: Final = 3_600.0
PAUSE_SECONDS: Final = 900.0


@dataclass(frozen=True, slots=True)
class Laid:
    """How a service's GPUs are to be cut, and why.

    Attributes:
        layouts: By lease, all that it holds.
        change: Steps from what was there, with the price; over the leases in order.
        dispatcher: How the slices are to be served.
        rate_qps: What they serve within the objective.
        recut: Whether GPUs that were serving are cut anew.
        text: Why, one line.
    """

    layouts: tuple[tuple[str, Layout], ...]
    change: Change
    dispatcher: str
    rate_qps: float
    recut: bool
    text: str


def lay_out(
    curve: Curve,
    leases: Sequence[str],
    present: Mapping[str, Layout],
    demand_qps: float,
    rated: Rated,
    seconds_since_last: float = float("inf"),
) -> Laid:
    """Return the layouts of a service's leases.

    Two ways are weighed: to leave what is cut and cut only the new GPUs, or to cut all as planned for this
    number. The second has to win more queries than its change loses, by the rules of `drift.worth_it`.

    Args:
        curve: What numbers of GPUs serve, and how they are cut for it.
        leases: Ids of the leases held, in order.
        present: How their GPUs are cut now; those that are not there are uncut.
        demand_qps: The rate to be served.
        rated: Rates of slices.
        seconds_since_last: Since the service was last cut anew.
    """
    sku = curve.request.sku
    now = tuple(present.get(lease, ()) for lease in leases)
    fresh = [place for place, layout in enumerate(now) if not layout]
    kept = list(now)
    for place, layout in zip(fresh, curve.layouts(len(fresh)), strict=True):
        kept[place] = layout
    dispatcher = curve.dispatcher(len(leases))
    wanted = curve.layouts(len(leases))
    if len(fresh) == len(leases):
        return _laid(
            curve, leases, now, tuple(kept), dispatcher, curve.rate(len(leases)), "cut for the first time"
        )
    serves = rated(slices_of(sku, tuple(kept)))
    better = max(curve.rate(len(leases)), rated(slices_of(sku, wanted)))
    gpcs = sku.compute_slices * len(leases)
    verdict = _verdict(serves, better, demand_qps, 0.0, gpcs, seconds_since_last)
    if verdict.change:
        only_fresh, _ = plan_change(sku, now, kept)
        whole, aligned = plan_change(sku, now, wanted)
        lost = max(whole.lost_gpc_seconds - only_fresh.lost_gpc_seconds, 0.0)
        verdict = _verdict(serves, better, demand_qps, lost, gpcs, seconds_since_last)
        if verdict.change and lost > 0:
            return _laid(curve, leases, now, aligned, dispatcher, better, verdict.text)
    text = f"kept: {verdict.text}" if not fresh else f"only the new GPUs are cut: {verdict.text}"
    return _laid(curve, leases, now, tuple(kept), dispatcher, serves, text)


def _verdict(
    serves: float, better: float, demand: float, lost: float, gpcs: int, since_last: float
) -> Decision:
    """Return whether cutting all anew wins more than it loses, within the horizon of a tenant."""
    return worth_it(
        serves,
        better,
        demand,
        lost,
        gpcs,
        horizon_seconds=HORIZON_SECONDS,
        seconds_since_last=since_last,
        pause_seconds=PAUSE_SECONDS,
    )


def _laid(
    curve: Curve,
    leases: Sequence[str],
    now: tuple[Layout, ...],
    then: tuple[Layout, ...],
    dispatcher: str,
    rate: float,
    text: str,
) -> Laid:
    change, targets = plan_change(curve.request.sku, now, then)
    recut = any(old and old != new for old, new in zip(now, targets, strict=True))
    return Laid(tuple(zip(leases, targets, strict=True)), change, dispatcher, rate, recut, text)
