"""Fitted latency models: a few coefficients per slice size, with their error and source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import numpy as np
from scipy.optimize import nnls

from divvy.errors import NotFoundError
from divvy.perf.latency import INFEASIBLE, Cell, LatencyProfile

_FILE: Final = "fitted.json"


@dataclass(frozen=True, slots=True)
class SliceFit:
    """latency = max(floor, base + per_item x batch), microseconds, up to the largest batch that fits.

    Attributes:
        gpcs: Slice size.
        floor_us: What a run takes however small it is (launch overhead).
        base_us: Intercept of the linear part.
        per_item_us: Slope of the linear part.
        largest: Largest batch that fits in memory.
        error: Mean absolute relative error on the cells it was fitted to.
    """

    gpcs: int
    floor_us: float
    base_us: float
    per_item_us: float
    largest: int
    error: float

    def latency_us(self, batch: int) -> int:
        """Return the fitted latency; `INFEASIBLE` beyond the largest batch."""
        if batch > self.largest:
            return INFEASIBLE
        return max(1, round(max(self.floor_us, self.base_us + self.per_item_us * batch)))


def fit(profile: LatencyProfile) -> tuple[SliceFit, ...]:
    """Return the fit of every slice size at one process, by relative least squares over all break points."""
    fits = []
    for gpcs in profile.sizes:
        batches = profile.batches(gpcs)
        if not batches:
            continue
        times = np.array([profile.latency_us(gpcs, batch) for batch in batches], float)
        sizes = np.array(batches, float)
        best: SliceFit | None = None
        for cut in range(len(batches)):  # batches before the cut lie on the floor
            floor = float(np.mean(times[:cut])) if cut else 0.0
            rest = np.column_stack([np.ones(sizes.size - cut), sizes[cut:]]) / times[cut:, None]
            (base, slope), _ = nnls(rest, np.ones(sizes.size - cut))
            guess = np.maximum(floor, base + slope * sizes)
            error = float(np.mean(np.abs(guess / times - 1)))
            if best is None or error < best.error:
                best = SliceFit(gpcs, floor, float(base), float(slope), batches[-1], error)
        if best is not None:
            fits.append(best)
    return tuple(fits)


def expand(model: str, fits: tuple[SliceFit, ...], source: str) -> LatencyProfile:
    """Return the profile that fits describe, at powers of two and one past the largest batch."""
    cells = []
    for one in fits:
        batches = [2**i for i in range(16) if 2**i <= one.largest]
        cells += [Cell(one.gpcs, batch, 1, one.latency_us(batch)) for batch in batches]
        cells.append(Cell(one.gpcs, one.largest * 2, 1, INFEASIBLE))
    return LatencyProfile(model, tuple(cells), source)


@lru_cache(maxsize=1)
def _document() -> Mapping[str, Any]:
    text = files("divvy.perf").joinpath(_FILE).read_text(encoding="utf-8")
    document: Mapping[str, Any] = json.loads(text)
    return document


def fitted_models() -> tuple[str, ...]:
    """Return the names of the fitted models."""
    return tuple(sorted(_document()["models"]))


def fitted_profile(model: str) -> LatencyProfile:
    """Return the profile of a fitted model.

    Raises:
        NotFoundError: If there are no coefficients of that model; the fault lists the models.
    """
    document = _document()
    rows = document["models"].get(model)
    if rows is None:
        raise NotFoundError.one(
            "fitted-model",
            f"no fitted model {model!r}",
            path="--profile",
            allowed=", ".join(sorted(document["models"])),
        )
    return expand(model, tuple(SliceFit(*row) for row in rows), document["source"])
