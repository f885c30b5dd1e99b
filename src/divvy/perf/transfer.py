"""How long a transfer takes: start-up, descriptors, bytes; and what is learned from transfers that ran.

Time = start-up + descriptors * cost of each + bytes / rate. The constants below are defaults by kind of
route, with their sources; `Learned` replaces them route by route once transfers have been timed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

GB: Final = 1e9


@dataclass(frozen=True, slots=True)
class KindCost:
    """What a kind of route costs besides its bytes.

    Attributes:
        startup_s: From the call to the first byte.
        descriptor_s: Added by each further descriptor (address, length).
        efficiency: Rate reached over the link's rate, lowest and highest that is reported.
        source: Where these numbers came from.
    """

    startup_s: float
    descriptor_s: float
    efficiency: tuple[float, float]
    source: str = "default"


#: Copy engines take about 2 us for each cudaMemcpyAsync; a NIC takes a work request in about 0.25 us. With
#: 112,000 descriptors posting was 57% of an NVLink transfer and 15% over InfiniBand (vLLM issue 55434).
#: Efficiencies: NVLink 4 371 to 396 of 450, PCIe 5 55 of 63, NIC 23 of 25 GB/s (design notes).
KINDS: Final[dict[str, KindCost]] = {
    "nvlink": KindCost(10e-6, 2.0e-6, (0.82, 0.88)),
    "nvlink-relay": KindCost(22e-6, 4.0e-6, (0.75, 0.88)),
    "pcie-p2p": KindCost(12e-6, 2.0e-6, (0.80, 0.88)),
    "host-staged": KindCost(35e-6, 4.0e-6, (0.70, 0.88)),
    "rdma-affine": KindCost(15e-6, 0.25e-6, (0.88, 0.96)),
    "rdma-other": KindCost(18e-6, 0.25e-6, (0.70, 0.92)),
    "rdma-relay": KindCost(30e-6, 2.0e-6, (0.70, 0.92)),
    "rdma-staged": KindCost(45e-6, 2.25e-6, (0.60, 0.90)),
    "relay": KindCost(30e-6, 4.0e-6, (0.70, 0.88)),
    "tcp": KindCost(120e-6, 5.0e-6, (0.50, 0.90)),
}

COALESCE_STARTUP_S: Final = 25e-6
"""Two kernels: gather at the source, scatter at the destination."""
COALESCE_GB_PER_S: Final = 1000.0
"""Rate of each kernel (HBM read and write)."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """What passes before and besides the bytes.

    Attributes:
        seconds: Start-up with descriptors or gathering.
        coalesce: Whether gathering into one buffer is faster than sending each descriptor.
    """

    seconds: float
    coalesce: bool


def overhead(
    kind: str, size_bytes: float, descriptors: int = 1, costs: Mapping[str, KindCost] = KINDS
) -> Overhead:
    """Return the overhead of one transfer by one kind of route, gathered where that is faster."""
    cost = costs[kind]
    each = max(0, descriptors - 1) * cost.descriptor_s
    gather = COALESCE_STARTUP_S + 2 * size_bytes / (COALESCE_GB_PER_S * GB)
    if each > gather:
        return Overhead(cost.startup_s + gather, coalesce=True)
    return Overhead(cost.startup_s + each, coalesce=False)


@dataclass(frozen=True, slots=True)
class Prediction:
    """How long, and within which bounds."""

    seconds: float
    low: float
    high: float


def predict(
    kind: str,
    size_bytes: float,
    gb_per_s: float,
    descriptors: int = 1,
    costs: Mapping[str, KindCost] = KINDS,
) -> Prediction:
    """Return the time of a transfer that has the route to itself.

    Args:
        kind: Kind of route.
        size_bytes: Bytes.
        gb_per_s: Rate of the route at the links' full rate.
        descriptors: Pieces that the bytes lie in.
        costs: What each kind of route costs.
    """
    fixed = overhead(kind, size_bytes, descriptors, costs).seconds
    stream = size_bytes / (gb_per_s * GB)
    low, high = costs[kind].efficiency
    return Prediction(fixed + stream, fixed + stream / high, fixed + stream / low)


@dataclass(slots=True)
class Learned:
    """The cost of one route, learned from timed transfers by weighted least squares.

    Errors of transfers are relative, so each one is weighted by 1/time. Forgetting makes old transfers
    count less. The prior is the default of the kind, worth `_PRIOR` transfers.

    Attributes:
        kind: Kind of route, for the prior.
        gb_per_s: Rate of the route at the links' full rate, for the prior.
        forget: Weight that a past transfer keeps when a new one comes.
    """

    kind: str
    gb_per_s: float
    forget: float = 0.98
    count: int = 0
    _normal: NDArray[np.float64] = field(default_factory=lambda: np.zeros((3, 3)))
    _right: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    _log_error: list[float] = field(default_factory=list)

    _PRIOR = 0.05

    def _prior(self) -> NDArray[np.float64]:
        cost = KINDS[self.kind]
        return np.array([cost.startup_s, cost.descriptor_s, 1.0 / (self.gb_per_s * GB)])

    def observe(self, size_bytes: float, descriptors: int, seconds: float) -> None:
        """Learn from one transfer.

        Raises:
            ValueError: If the time is not positive.
        """
        if seconds <= 0 or not math.isfinite(seconds):
            raise ValueError(f"a transfer takes a positive time, not {seconds!r}")
        self._log_error.append(abs(math.log(self.predict(size_bytes, descriptors).seconds / seconds)))
        del self._log_error[:-64]
        row = np.array([1.0, float(descriptors - 1), float(size_bytes)]) / seconds
        scaled = row * self._prior()
        self._normal = self.forget * self._normal + np.outer(scaled, scaled)
        self._right = self.forget * self._right + scaled
        self.count += 1

    def coefficients(self) -> NDArray[np.float64]:
        """Return start-up, seconds per descriptor, seconds per byte; never negative."""
        prior = self._prior()
        factor = np.linalg.solve(
            self._normal + self._PRIOR * np.eye(3), self._right + self._PRIOR * np.ones(3)
        )
        return np.asarray(np.maximum(factor, 1e-3) * prior)

    @property
    def span(self) -> float:
        """Return the factor of the error bars: twice the mean log error of late; 1 before there is any."""
        return math.exp(2 * float(np.mean(self._log_error[-16:]))) if self._log_error else 1.0

    def predict(self, size_bytes: float, descriptors: int = 1) -> Prediction:
        """Return the time with error bars: twice the mean log error of late, the kind's span before any."""
        startup, each, byte = self.coefficients()
        seconds = float(startup + max(0, descriptors - 1) * each + size_bytes * byte)
        if len(self._log_error) < 4:
            low, high = KINDS[self.kind].efficiency
            return Prediction(seconds, seconds * low, seconds / low * high)
        return Prediction(seconds, seconds / self.span, seconds * self.span)
