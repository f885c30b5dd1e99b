"""A maximal layout at random for each GPU: the baseline that shows what any mixture is worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from divvy.fleet.mig.layout import maximal_layouts
from divvy.planners.slices.base import Choice, Judge, Request, SlicePlan
from divvy.planners.slices.packing import slices_of


@dataclass(frozen=True, slots=True)
class Randomly:
    """Draws each GPU's layout from all maximal ones; the request's seed decides."""

    name: str = "random"

    def plan(self, request: Request, judge: Judge, dispatcher: str) -> SlicePlan:  # noqa: ARG002
        """Return drawn layouts; `judge` is not asked."""
        generator = np.random.Generator(np.random.PCG64([0x5A, request.seed]))
        options = maximal_layouts(request.sku)
        layouts = tuple(options[int(i)] for i in generator.integers(0, len(options), request.gpus))
        notes = (f"{request.gpus} layouts drawn from the {len(options)} maximal ones, seed {request.seed}",)
        return SlicePlan(layouts, Choice(slices_of(request.sku, layouts), dispatcher), notes)
