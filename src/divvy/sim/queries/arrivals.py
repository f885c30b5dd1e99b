"""Query streams: Poisson, bursts, or the gaps of a recorded trace; rates share random numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from divvy.errors import InputError
from divvy.perf.traffic import BatchDistribution
from divvy.sim.queries.kernel import Load

#: Poisson in two states: this share of the time the rate is this many times the mean.
_BURST_SHARE: Final = 0.1
_BURST_FACTOR: Final = 3.0
_BURST_QUERIES: Final = 200.0

KINDS: Final = ("poisson", "bursts")
HELP: Final = "poisson | bursts | a trace's file"


@dataclass(frozen=True, slots=True)
class Stream:
    """Queries at unit rate: scaled by a rate they become a load (common random numbers for all rates).

    Attributes:
        times: Arrival times at one query per second, seconds.
        batches: Items of each query.
        draws: A number per query for rules that sample.
    """

    times: NDArray[np.float64]
    batches: NDArray[np.int64]
    draws: NDArray[np.int64]

    def at(self, rate_qps: float) -> Load:
        """Return the load at a rate in queries per second."""
        return Load(np.rint(self.times * (1e6 / rate_qps)).astype(np.int64), self.batches, self.draws)


def make_stream(
    batches: BatchDistribution,
    queries: int,
    seed: int,
    arrivals: str = "poisson",
    gaps: NDArray[np.float64] | None = None,
) -> Stream:
    """Return a stream of queries; the same arguments give the same stream.

    Args:
        batches: Distribution of batch sizes.
        queries: How many.
        seed: Of the generator.
        arrivals: ``poisson`` or ``bursts``; ignored where `gaps` are given.
        gaps: Gaps of a recorded trace, any unit: scaled to mean 1 and begun at a place that the seed draws.
    """
    generator = np.random.Generator(np.random.PCG64([0xD1, seed]))
    sizes = np.array(batches.batches, np.int64)
    weights = np.array([weight for _, weight in batches.weights])
    drawn = sizes[np.searchsorted(np.cumsum(weights)[:-1], generator.random(queries), side="right")]
    draws = generator.integers(0, 1 << 40, queries)
    if gaps is not None:
        first = int(generator.integers(0, gaps.shape[0]))
        steps = np.resize(np.roll(gaps, -first), queries) / gaps.mean()
    elif arrivals == "bursts":
        steps = _bursts(queries, generator)
    elif arrivals == "poisson":
        steps = generator.exponential(1.0, queries)
    else:
        raise InputError.one("arrivals", f"{arrivals!r} is not a kind of arrivals", allowed=HELP)
    return Stream(np.cumsum(steps), drawn, draws)


def _bursts(queries: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Return gaps with mean 1: calm, and bursts of three times the rate for a tenth of the time."""
    calm = (1 - _BURST_SHARE * _BURST_FACTOR) / (1 - _BURST_SHARE)
    per_burst, per_calm = (
        _BURST_QUERIES,
        _BURST_QUERIES * calm * (1 - _BURST_SHARE) / (_BURST_FACTOR * _BURST_SHARE),
    )
    lengths: list[tuple[int, float]] = []
    total, bursting = 0, False
    while total < queries:
        count = int(generator.geometric(1 / (per_burst if bursting else max(per_calm, 1.0))))
        lengths.append((count, _BURST_FACTOR if bursting else calm))
        total += count
        bursting = not bursting
    rates = np.repeat([rate for _, rate in lengths], [count for count, _ in lengths])[:queries]
    gaps: NDArray[np.float64] = generator.exponential(1.0, queries) / rates
    return gaps
