"""From the runs of leases to what serves when: GPUs that come and go, and how they are cut meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from divvy.fleet.mig.change import COSTS
from divvy.fleet.mig.profile import Layout
from divvy.planners.slices.capacity import Curve
from divvy.planners.slices.packing import slices_of
from divvy.planners.slices.tenancy import Rated, lay_out
from divvy.sim.replay import Replay
from divvy.sim.steps import Floats

#: From a granted GPU to a server that answers, ms: the upper end of what is reported for a restart.
START: Final = round(COSTS["server"][1] * 1000)


@dataclass(frozen=True, slots=True)
class Stay:
    """A GPU held by a service, ms: from begin to end, on a node."""

    lease: str
    begin: int
    end: int
    node: str
    allocated: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """A span in which the same slices serve at the same rate.

    Attributes:
        begin: ms.
        end: ms.
        rate_qps: Queries per second.
        slices: Compute slices of every slice that serves, ascending.
        dispatcher: How they are served.
    """

    begin: int
    end: int
    rate_qps: float
    slices: tuple[int, ...]
    dispatcher: str


def stays(run: Replay) -> dict[str, list[Stay]]:
    """Return, by the mark of its service, every GPU that was held, in order of its begin."""
    found: dict[str, list[Stay]] = {}
    record = run.record
    for row, begin, end, placement in zip(
        record.job, record.start, record.end, record.placement, strict=True
    ):
        spec = run.workload.spec[row]
        if spec.name:
            stay = Stay(spec.id, begin, end, placement[0][0], spec.allocated)
            found.setdefault(spec.name, []).append(stay)
    for some in found.values():
        some.sort(key=lambda stay: (stay.begin, stay.lease))
    return found


def pieces(
    held: Sequence[Stay],
    curve: Curve,
    rated: Rated,
    by_epoch: Floats,
    epoch: int,
    until: int,
    fixed: Mapping[str, Layout] | None = None,
    dispatcher: str = "",
) -> tuple[list[Piece], int]:
    """Return what serves when, and how often serving GPUs were cut anew.

    A granted GPU serves once its server has started; so does one that is cut anew, after its turn. Layouts
    are planned by the stage of the pipeline, at every change of what is held and at every epoch.

    Args:
        held: GPUs of the service.
        curve: What numbers of GPUs serve.
        rated: Rates of slices.
        by_epoch: Rates.
        epoch: Length of an epoch, ms.
        until: End, ms.
        fixed: Layout by lease where nothing is planned; then GPUs serve from the beginning.
        dispatcher: How the slices of fixed layouts are served.
    """
    if fixed is not None:
        slices = slices_of(curve.request.sku, tuple(fixed.values()))
        return [
            Piece(n * epoch, min((n + 1) * epoch, until), float(rate), slices, dispatcher)
            for n, rate in enumerate(by_epoch)
        ], 0
    return _Keeper(curve, rated).run(held, by_epoch, epoch, until)


class _Keeper:
    """Keeps the layouts of one service through time."""

    def __init__(self, curve: Curve, rated: Rated) -> None:
        self._curve, self._rated = curve, rated
        self._layout: dict[str, Layout] = {}
        self._ready: dict[str, int] = {}
        self._cut_at = -(1 << 50)
        self._cuts = 0
        self._rule = ""

    def run(self, held: Sequence[Stay], by_epoch: Floats, epoch: int, until: int) -> tuple[list[Piece], int]:
        """Return the pieces and the number of cuts of serving GPUs."""
        moments = sorted(
            {stay.begin for stay in held}
            | {min(stay.end, until) for stay in held}
            | {n * epoch for n in range(len(by_epoch) + 1)}
        )
        moments = [moment for moment in moments if moment <= until]
        order = sorted(held, key=lambda stay: stay.begin)
        current: dict[str, Stay] = {}
        place = 0
        out: list[Piece] = []
        for now, then in pairwise(moments):
            current = {name: stay for name, stay in current.items() if stay.end > now}
            while place < len(order) and order[place].begin <= now:
                current[order[place].lease] = order[place]
                place += 1
            rate = float(by_epoch[min(now // epoch, len(by_epoch) - 1)])
            # What is planned with is what was seen: the rate of the epoch before.
            seen = float(by_epoch[max(min(now // epoch, len(by_epoch)) - 1, 0)])
            self._plan(list(current), now, seen)
            out += self._split(now, then, rate)
        return out, self._cuts

    def _plan(self, leases: list[str], now: int, rate: float) -> None:
        self._layout = {name: layout for name, layout in self._layout.items() if name in leases}
        self._ready = {name: ready for name, ready in self._ready.items() if name in leases}
        laid = lay_out(self._curve, leases, self._layout, rate, self._rated, (now - self._cut_at) / 1000)
        turn = 0
        for name, layout in laid.layouts:
            if name not in self._layout:
                self._ready[name] = now + START
            elif self._layout[name] != layout:
                turn += 1
                self._ready[name] = now + turn * START
        if laid.recut:
            self._cut_at = now
            self._cuts += 1
        self._layout, self._rule = dict(laid.layouts), laid.dispatcher

    def _split(self, now: int, then: int, rate: float) -> list[Piece]:
        """Return the pieces between two moments: servers that start meanwhile divide it."""
        edges = sorted({now, then, *(ready for ready in self._ready.values() if now < ready < then)})
        sku = self._curve.request.sku
        return [
            Piece(
                begin,
                end,
                rate,
                slices_of(sku, tuple(self._layout[n] for n in self._layout if self._ready[n] <= begin)),
                self._rule,
            )
            for begin, end in pairwise(edges)
        ]
