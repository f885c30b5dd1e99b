"""How much of past charge counts: all of the window alike, or less the older it is.

Without a half-life everything in the lookback counts whole, but for the taper over its last part. With one,
the weight of a moment halves with every half-life of age besides. It is a line between quarters of the
half-life, so the figure is exact for that weight (within 0.4% of the true power of two), from a few look-ups.
"""

from __future__ import annotations

from typing import Final

from divvy.fleet.budget import Policy
from divvy.fleet.usage import ChargeHistory
from divvy.units import DAY

_STEPS_PER_HALF_LIFE: Final = 4
#: Beyond so many half-lives nothing is left that anybody could notice; the window ends there at the latest.
_MOST_HALF_LIVES: Final = 16


class UsageWindow:
    """The window of a policy."""

    __slots__ = ("_knots", "_lookback", "_taper", "horizon")

    def __init__(self, policy: Policy) -> None:
        self._lookback, self._taper = policy.lookback, policy.taper
        self.horizon = policy.forgiveness
        """Age beyond which over-use is forgiven, ms; 0: never."""
        self._knots = _knots(policy.lookback, policy.taper, policy.usage_half_life)

    def of(self, history: ChargeHistory, now: int) -> float:
        """Return the charge that counts now."""
        if not self._knots:
            return history.windowed(now, self._lookback, self._taper)
        return history.weighted(now, self._knots, now - self._lookback, now)

    def part(self, history: ChargeHistory, now: int, since: int, until: int) -> float:
        """Return what the part [since, until] of the past contributes to it."""
        if not self._knots:
            return history.windowed_part(now, self._lookback, self._taper, since, until)
        return history.weighted(now, self._knots, since, until)

    def before_horizon(self, history: ChargeHistory, now: int) -> float:
        """Return what is older than the horizon of forgiveness."""
        return self.part(history, now, now - self._lookback, now - self.horizon)

    def first_day(self) -> float:
        """Return how much a rate of 1 over the last day (the lookback, if shorter) counts, ms."""
        day = min(DAY, self._lookback)
        if not self._knots:
            return day
        steady = ChargeHistory()
        steady.add(0, 1)
        return steady.weighted(day, self._knots, 0, day)


def _knots(lookback: int, taper: int, half_life: int) -> tuple[tuple[int, float], ...]:
    """Return (age, weight), youngest first, lines in between; nothing without a half-life."""
    if not half_life:
        return ()
    step = max(half_life // _STEPS_PER_HALF_LIFE, 1)
    last = min(lookback, _MOST_HALF_LIVES * half_life)
    ages = sorted({*range(0, last, step), max(last - taper, 0), last})
    return tuple(
        (age, 2.0 ** (-age / half_life) * (min((last - age) / taper, 1.0) if taper else 1.0)) for age in ages
    )
