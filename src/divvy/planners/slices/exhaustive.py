"""Every multiset of slices on one or two GPUs, each replayed: the oracle for the other planners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement

from divvy.errors import InputError
from divvy.planners.slices.base import Choice, Judge, Request, SlicePlan, shares_runs
from divvy.planners.slices.bound import layout_bound
from divvy.planners.slices.packing import Counts, describe, flatten, lay_out, shapes

MOST_GPUS = 2


def fleets(request: Request) -> Iterator[tuple[tuple[Counts, ...], Counts]]:
    """Yield every way to give each GPU a maximal layout, with the sum of slices; each sum once."""
    seen: set[Counts] = set()
    for per_gpu in combinations_with_replacement(shapes(request.sku), request.gpus):
        total = tuple(map(sum, zip(*per_gpu, strict=True)))
        if total not in seen:
            seen.add(total)
            yield per_gpu, total


@dataclass(frozen=True, slots=True)
class Exhaustive:
    """Replays every fleet of maximal layouts and keeps the best.

    Partial layouts are left out: a further slice never hurts a rule that may leave it idle.
    """

    name: str = "exhaustive"

    def plan(self, request: Request, judge: Judge, dispatcher: str) -> SlicePlan:
        """Return the layouts with the highest rate under the dispatcher.

        Raises:
            InputError: For more than two GPUs.
        """
        if request.gpus > MOST_GPUS:
            raise InputError.one(
                "exhaustive-gpus",
                f"{request.gpus} GPUs are too many to try everything",
                path="--gpus",
                allowed=f"1 to {MOST_GPUS} with --planner exhaustive",
                fix="use --planner divvy",
            )
        tried, best, best_rate, price = 0, ((0,) * len(shapes(request.sku)[0]),) * request.gpus, 0.0, {}
        for per_gpu, total in fleets(request):
            limit, prices = layout_bound(request, total, batching=shares_runs(dispatcher))
            tried += 1
            if limit <= best_rate:
                continue
            choice = Choice(flatten(request.sku, total), dispatcher)
            rate = judge.rate(choice, (request.seed,), best_rate, limit)
            if rate > best_rate:
                best, best_rate, price = per_gpu, rate, prices
        total = tuple(map(sum, zip(*best, strict=True)))
        notes = (
            f"{tried} fleets of maximal layouts, all of them replayed or below the best by their bound",
            f"best: {describe(request.sku, best)} at {best_rate:.1f} queries/s"
            + (f"; worth of a slice by size: {price}" if price else ""),
        )
        layouts = tuple(lay_out(request.sku, shape) for shape in best)
        return SlicePlan(layouts, Choice(flatten(request.sku, total), dispatcher), notes, best_rate)
