"""Equal slices on every GPU, as many as fit: the layout that most people run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from divvy.errors import InputError
from divvy.planners.slices.base import Choice, Judge, Request, SlicePlan, shares_runs
from divvy.planners.slices.bound import layout_bound
from divvy.planners.slices.packing import as_counts, describe, lay_out, shapes, sizes_of, slices_of

#: A finite stream may hold less work than its distribution.
_SLACK: Final = 1.1


@dataclass(frozen=True, slots=True)
class Homogeneous:
    """As many slices of one size as fit.

    Attributes:
        size: Compute slices of each.
    """

    size: int

    @property
    def name(self) -> str:
        """Return the name in the registry, with the size."""
        return f"homogeneous:{self.size}"

    def plan(self, request: Request, judge: Judge, dispatcher: str) -> SlicePlan:  # noqa: ARG002
        """Return the same layout for every GPU; `judge` is not asked.

        Raises:
            InputError: If the SKU has no base profile of that size.
        """
        request.sku.by_gpcs(self.size)
        index = sizes_of(request.sku).index(self.size)
        most = max(shape[index] for shape in shapes(request.sku))
        shape = as_counts(request.sku, {self.size: most})
        layouts = (lay_out(request.sku, shape),) * request.gpus
        notes = (
            f"{most} equal slices of {self.size}g per GPU: {describe(request.sku, (shape,) * request.gpus)}",
        )
        return SlicePlan(layouts, Choice(slices_of(request.sku, layouts), dispatcher), notes)


@dataclass(frozen=True, slots=True)
class BestHomogeneous:
    """The best size of equal slices, by replay."""

    name: str = "homogeneous"

    def plan(self, request: Request, judge: Judge, dispatcher: str) -> SlicePlan:
        """Return the equal slices with the highest rate; the largest where none serves."""
        best: tuple[float, SlicePlan] | None = None
        notes: list[str] = []
        for size in reversed(request.sizes):
            plan = Homogeneous(size).plan(request, judge, dispatcher)
            least = 0.0 if best is None else best[0]
            rate = judge.rate(plan.choice, (request.seed,), least, _most(request, plan.choice))
            notes.append(f"{size}g: {f'{rate:.1f} queries/s' if rate else 'not better'}")
            if best is None or rate > best[0]:
                best = rate, plan
        if best is None:
            raise InputError.one("no-size", f"the profile has no slice size of {request.sku.name}")
        rate, plan = best
        return SlicePlan(plan.layouts, plan.choice, (*plan.explanation, *notes), rate)


def _most(request: Request, choice: Choice) -> float:
    """Return a rate that equal slices cannot exceed; 0 if a batch does not fit."""
    size, count = choice.slices[0], len(choice.slices)
    if shares_runs(choice.dispatcher):
        counts = as_counts(request.sku, {size: count})
        return layout_bound(request, counts, batching=True)[0] * _SLACK
    times = [request.time_us(size, batch) for batch in request.batches.batches]
    if min(times) < 0:
        return 0.0
    mean = sum(w * t for (_, w), t in zip(request.batches.weights, times, strict=True))
    return count * 1e6 / mean * _SLACK


def make_homogeneous(text: str) -> Homogeneous | BestHomogeneous:
    """Return the planner for one size (``3``), or the one that tries all sizes (empty).

    Raises:
        InputError: If the text is not a number of compute slices.
    """
    if not text:
        return BestHomogeneous()
    if re.fullmatch(r"\d{1,2}g?", text, re.ASCII) is None:
        raise InputError.one(
            "homogeneous-size",
            f"{text!r} is no number of compute slices",
            path="--planner",
            allowed="1, 2, 3, 4, 7",
        )
    return Homogeneous(int(text.removesuffix("g")))
