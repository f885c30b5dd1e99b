"""Equal slices on every GPU, as many as fit: the layout that most people run."""

from __future__ import annotations

from dataclasses import dataclass

from divvy.errors import InputError
from divvy.planners.slices.base import Choice, Judge, Request, SlicePlan
from divvy.planners.slices.packing import as_counts, describe, lay_out, shapes, sizes_of, slices_of


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
            rate = judge.rate(plan.choice, (request.seed,), least, _most(request, plan.choice.slices))
            notes.append(f"{size}g: {f'{rate:.1f} queries/s' if rate else 'not better'}")
            if best is None or rate > best[0]:
                best = rate, plan
        if best is None:
            raise InputError.one("no-size", f"the profile has no slice size of {request.sku.name}")
        rate, plan = best
        return SlicePlan(plan.layouts, plan.choice, (*plan.explanation, *notes), rate)


def _most(request: Request, slices: tuple[int, ...]) -> float:
    """Return a rate that equal slices cannot exceed; 0 if a batch does not fit."""
    times = [request.time_us(slices[0], batch) for batch in request.batches.batches]
    if not slices or min(times) < 0:
        return 0.0
    mean = sum(w * t for (_, w), t in zip(request.batches.weights, times, strict=True))
    return len(slices) * 1e6 / mean * 1.1


def make_homogeneous(text: str) -> Homogeneous | BestHomogeneous:
    """Return the planner for one size (``3``), or the one that tries all sizes (empty).

    Raises:
        InputError: If the text is not a number of compute slices.
    """
    if not text:
        return BestHomogeneous()
    if not text.removesuffix("g").isdigit():
        raise InputError.one(
            "homogeneous-size",
            f"{text!r} is no number of compute slices",
            path="--planner",
            allowed="1, 2, 3, 4, 7",
        )
    return Homogeneous(int(text.removesuffix("g")))
