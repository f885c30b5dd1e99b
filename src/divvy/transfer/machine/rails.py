"""What is known of each rail to a peer: its rate as it was achieved, what is on the way, whether it lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Nothing heard of bytes on the way for this long (or four times what was to be expected): suspect.
PATIENCE_US: Final = 250_000
MOST_PATIENCE_US: Final = 600_000
_WINDOW_US: Final = 8_000
#: A busy time that ends earlier is measured if it lasted this long.
_SHORT_US: Final = 2_000
_NEW: Final = 0.3
DEFAULT_RATE: Final = 125.0


@dataclass(slots=True)
class Rail:
    """One rail to a peer.

    Attributes:
        name: Route, such as ``e0>e0``.
        rate: Achieved bytes per microsecond, smoothed.
        startup_us: From the choice to the first byte.
        up: Whether its connection stands.
        suspect: Whether bytes on it are overdue.
        inflight: Bytes taken and not answered.
        heard_us: When it last answered, or began to be busy.
        measured: Whether the rate has been measured since the start.
        lost: Times it became suspect or broke.
    """

    name: str
    rate: float = DEFAULT_RATE
    startup_us: float = 200.0
    up: bool = False
    suspect: bool = False
    inflight: int = 0
    heard_us: int = 0
    measured: bool = False
    lost: int = 0
    _since_us: int = 0
    _bytes: int = 0
    _windows: int = 0

    @property
    def usable(self) -> bool:
        """Return whether new chunks may be given to it."""
        return self.up and not self.suspect

    def took(self, size: int, now_us: int) -> None:
        """Count bytes that were given to it."""
        if not self.inflight:
            self.heard_us = self._since_us = now_us
            self._bytes = self._windows = 0
        self.inflight += size

    def answered(self, size: int, now_us: int) -> None:
        """Count bytes that were answered; learn the rate while it was busy."""
        self.inflight = max(0, self.inflight - size)
        self.heard_us = now_us
        self._bytes += size
        span = now_us - self._since_us
        if span >= _WINDOW_US or (not self.inflight and not self._windows and span >= _SHORT_US):
            seen = self._bytes / span
            self.rate = (1 - _NEW) * self.rate + _NEW * seen if self.measured else seen
            self.measured, self._since_us, self._bytes = True, now_us, 0
            self._windows += 1

    def forgot(self, size: int) -> None:
        """Take back bytes that will not be answered."""
        self.inflight = max(0, self.inflight - size)

    def patience_us(self) -> int:
        """Return how long it may be silent with bytes on the way."""
        expected = 4 * self.inflight / max(self.rate, 1e-3)
        return int(min(MOST_PATIENCE_US, max(PATIENCE_US, expected)))

    def overdue(self, now_us: int) -> bool:
        """Return whether bytes on it have not been answered for too long."""
        return self.inflight > 0 and now_us - self.heard_us > self.patience_us()

    def slowed(self, now_us: int) -> None:
        """Lower the rate to what silence allows: bytes on the way over the time that they have taken."""
        waited = max(1, now_us - self.heard_us)
        self.rate = max(1e-3, min(self.rate, self.inflight / waited))


def worth(rail: Rail, others: list[Rail], size: int, pending: int) -> bool:
    """Return whether a chunk ends no later on this rail than the whole rest on the others.

    Args:
        rail: The rail that is free.
        others: The other usable rails.
        size: Bytes of the chunk.
        pending: Bytes, this chunk with them, that no rail has taken.
    """
    rate = sum(other.rate for other in others)
    if not rate:
        return True
    here = (rail.inflight + size) / max(rail.rate, 1e-3)
    there = (pending + sum(other.inflight for other in others)) / rate
    return here <= there * 1.02
