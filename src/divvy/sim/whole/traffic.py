"""Rates over time, and the leases that follow from them: demand as a service sees it, one epoch late."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from divvy.errors import InputError
from divvy.sim.steps import Floats
from divvy.units import DAY

#: By day three times as much as by night, and noise: an assumption, in place of a trace of weeks.
SWING: Final = 0.5
NOISE: Final = 0.15
_LEAST: Final = 0.05


@dataclass(frozen=True, slots=True)
class Traffic:
    """How rates move.

    Attributes:
        epoch: Length of a piece of constant rate, ms.
        swing: Amplitude of the daily sine, as a part of the mean.
        noise: Sigma of the lognormal factor of each epoch.
        shape: Recorded counts that replace the sine, stretched over a day and repeated; none: the sine.
    """

    epoch: int
    swing: float = SWING
    noise: float = NOISE
    shape: tuple[float, ...] = ()


def rates(traffic: Traffic, mean_qps: float, until: int, seed: int, number: int) -> Floats:
    """Return queries per second by epoch; different services have different noise and the same hours.

    Args:
        traffic: How rates move.
        mean_qps: Mean of the service.
        until: End, ms.
        seed: Seed of the run.
        number: Number of the service.
    """
    count = -(-until // traffic.epoch)
    middle = (np.arange(count) + 0.5) * traffic.epoch / DAY
    if traffic.shape:
        bins = np.array(traffic.shape)
        place = np.floor(middle % 1.0 * len(bins)).astype(np.int64)
        base = bins[place] / bins.mean()
    else:
        base = 1 - traffic.swing * np.cos(2 * math.pi * middle)
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 7_001, number])))
    drawn = np.exp(traffic.noise * rng.standard_normal(count) - traffic.noise**2 / 2)
    found: Floats = np.maximum(mean_qps * base * drawn, mean_qps * _LEAST)
    return found


def shape_of(gaps: Floats, bins: int = 96) -> tuple[float, ...]:
    """Return the counts of a recorded trace in so many equal parts of its time.

    Raises:
        InputError: If the trace is shorter than that.
    """
    times = np.cumsum(gaps)
    if len(times) < 10 * bins:
        raise InputError.one(
            "arrivals-short", f"{len(times)} arrivals for {bins} parts", path="traffic.arrivals"
        )
    counts = np.histogram(times, bins, (0.0, float(times[-1])))[0].astype(np.float64)
    return tuple(np.maximum(counts, 1.0).tolist())


def seen_rates(by_epoch: Floats) -> Floats:
    """Return the rate that a service plans for in each epoch: the larger of the last two that are over."""
    last = np.concatenate([by_epoch[:1], by_epoch[:-1]])
    before = np.concatenate([by_epoch[:1], last[:-1]])
    planned: Floats = np.maximum(last, before)
    return planned


def spans(wanted: Sequence[int], epoch: int, until: int) -> list[tuple[int, int, int]]:
    """Return the leases of a demand by epoch as (level, begin, end): the youngest ends first."""
    open_at: list[int] = []
    found: list[tuple[int, int, int]] = []
    for place, count in enumerate(wanted):
        now = place * epoch
        while len(open_at) > count:
            found.append((len(open_at) - 1, open_at.pop(), now))
        while len(open_at) < count:
            open_at.append(now)
    found += [(level, begin, until) for level, begin in enumerate(open_at)]
    return sorted(found, key=lambda span: (span[1], span[0]))
