"""Exact charge over a sliding window, from a piecewise-constant charge rate.

A history keeps, at every change of rate, the cumulative charge C and twice its time integral A, both
integers. With lookback W and taper d the charge that counts at time t is

    U(t) = C(t) - (A(t - W + d) - A(t - W)) / (2 d)

that is: full weight for the last W - d, then fading linearly to nothing at age W. No sampling, no decay
constant: the figure is exact to the charge-millisecond, and two machines agree on it to the bit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any


class ChargeHistory:
    """Charge of one subject over time: a rate that changes at instants, plus explicit jumps.

    Rates are charge per millisecond (devices x weight); times are milliseconds and never go backwards.
    """

    __slots__ = ("_area", "_charge", "_high", "_low", "_rates", "_times", "corrections", "rate")

    def __init__(self) -> None:
        self._times: list[int] = []
        self._charge: list[int] = []
        self._area: list[int] = []
        self._rates: list[int] = []
        self.rate = 0
        self.corrections = 0
        """How often a charge was set by other means than a rate that goes on from where the last ended."""
        self._low = 0
        self._high = 0

    @property
    def changes(self) -> int:
        """Return the number of changes kept."""
        return len(self._times)

    def add(self, at: int, rate: int = 0, charge: int = 0) -> None:
        """Change the rate by ``rate`` at an instant and add ``charge`` at once (an adjustment)."""
        self.rate += rate
        times = self._times
        if charge or (times and at <= times[-1]):
            self.corrections += 1
        if times and at <= times[-1]:
            # A late report: the rate changes at the last change instead, and the charge is corrected by
            # exactly what the rate would have made in between, so that totals stay exact.
            self._charge[-1] += charge + rate * (times[-1] - at)
            self._rates[-1] = self.rate
            return
        if times:
            span = at - times[-1]
            before, rate_before = self._charge[-1], self._rates[-1]
            self._area.append(self._area[-1] + 2 * before * span + rate_before * span * span)
            self._charge.append(before + rate_before * span + charge)
        else:
            self._area.append(0)
            self._charge.append(charge)
        times.append(at)
        self._rates.append(self.rate)

    def mark(self, at: int) -> tuple[int, int]:
        """Return what is another value after every change of what lies before an instant.

        A report that comes late may append a change that is older than an instant already looked at.
        """
        times = self._times
        return self.corrections, len(times) if times and times[-1] < at else -1

    def total(self, at: int) -> int:
        """Return the charge from the beginning up to an instant not before the last change."""
        if not self._times or at <= self._times[0]:
            return self._charge[0] if self._times and at == self._times[0] else 0
        return self._at(bisect_right(self._times, at) - 1, at)[0]

    def windowed(self, at: int, lookback: int, taper: int) -> float:
        """Return the tapered charge in [at - lookback, at]."""
        times = self._times
        if not times:
            return 0.0
        last = len(times) - 1
        if at >= times[last]:
            now = self._charge[last] + self._rates[last] * (at - times[last])
        else:
            now = self._value(at)[0]
        early = at - lookback
        late = early + taper
        if late < times[0]:
            return float(now)
        charges, rates, areas = self._charge, self._rates, self._area
        low = self._low
        if low < 0 or times[low] > early or (low < last and times[low + 1] <= early):
            low = self._low = self._seek(low, early)
        if not taper:
            return float(now - (self._at(low, early)[0] if low >= 0 else 0))
        high = self._high
        if high < 0 or times[high] > late or (high < last and times[high + 1] <= late):
            high = self._high = self._seek(max(high, low), late)
        # Written out: this is the innermost line of every pass (once per account).
        span = late - times[high]
        area = areas[high] + (2 * charges[high] + rates[high] * span) * span
        if low >= 0:
            span = early - times[low]
            area -= areas[low] + (2 * charges[low] + rates[low] * span) * span
        return now - area / (2 * taper)

    def windowed_part(self, at: int, lookback: int, taper: int, since: int, until: int) -> float:
        """Return what the part [since, until] of the past contributes to `windowed`."""
        early = at - lookback
        late = early + taper
        whole = self._value(until)[0] - self._value(max(since, late))[0] if until > late else 0
        p, q = max(since, early), min(until, late)
        if taper <= 0 or q <= p:
            return float(whole)
        (charge_p, area_p), (charge_q, area_q) = self._value(p), self._value(q)
        faded = (q - early) * charge_q - (p - early) * charge_p
        return whole + (2 * faded - (area_q - area_p)) / (2 * taper)

    def weighted(self, at: int, knots: Sequence[tuple[int, float]], since: int, until: int) -> float:
        """Return the charge in [since, until], each moment times the weight of its age at ``at``.

        Args:
            at: Now.
            knots: (age, weight), youngest first; the weight is a line in between and 0 beyond the last.
            since: Begin of the part, ms.
            until: End of the part, ms; not after ``at``.
        """
        total = 0.0
        for (young, near), (old, far) in pairwise(knots):
            p, q = max(at - old, since), min(at - young, until)
            if q <= p:
                continue
            slope = (near - far) / (old - young)
            (charge_p, area_p), (charge_q, area_q) = self._value(p), self._value(q)
            weight_p, weight_q = far + slope * (p - at + old), far + slope * (q - at + old)
            total += weight_q * charge_q - weight_p * charge_p - slope * (area_q - area_p) / 2
        return total

    def forget(self, before: int) -> None:
        """Drop the changes that no window reaching back to ``before`` can see."""
        cut = bisect_right(self._times, before) - 1
        if cut > 0:
            for column in (self._times, self._charge, self._area, self._rates):
                del column[:cut]
            self._low = self._high = 0

    def to_document(self) -> list[Any]:
        """Return the history as plain values, without what follows from the rest.

        Six members: time, charge and area of the first change; milliseconds between the changes; rates
        after them; and (change, amount) of the charges that no rate made. Empty: no change.
        """
        times, charges, rates = self._times, self._charge, self._rates
        if not times:
            return []
        steps = [later - earlier for earlier, later in pairwise(times)]
        jumps = [
            [place, jump]
            for place, (before, charge, rate, step) in enumerate(
                zip(charges, charges[1:], rates, steps, strict=False), start=1
            )
            if (jump := charge - before - rate * step)
        ]
        return [times[0], charges[0], self._area[0], steps, list(rates), jumps]

    @classmethod
    def from_document(cls, document: list[Any]) -> ChargeHistory:
        """Return the history that `to_document` wrote.

        Raises:
            ValueError: If it is damaged.
        """
        history = cls()
        if not document:
            return history
        time, charge, area, steps, rates, jumps = document
        if len(rates) != len(steps) + 1 or any(step <= 0 for step in steps):
            raise ValueError("the times of a charge history do not rise")
        extra = dict(jumps)
        history._rates = list(rates)  # a document may be restored more than once
        for place, (step, rate) in enumerate(zip((0, *steps), (0, *rates), strict=False)):
            if step:
                area += 2 * charge * step + rate * step * step
                charge += rate * step + extra.get(place, 0)
                time += step
            history._times.append(time)
            history._charge.append(charge)
            history._area.append(area)
        history.rate = rates[-1]
        return history

    def _seek(self, index: int, at: int) -> int:
        """Return the last change at or before an instant, -1 if none; walks from a remembered place."""
        times = self._times
        if index < 0 or index >= len(times) or times[index] > at:
            return bisect_right(times, at) - 1
        while index + 1 < len(times) and times[index + 1] <= at:
            index += 1
        return index

    def _at(self, index: int, at: int) -> tuple[int, int]:
        span = at - self._times[index]
        charge, rate = self._charge[index], self._rates[index]
        return charge + rate * span, self._area[index] + 2 * charge * span + rate * span * span

    def _value(self, at: int) -> tuple[int, int]:
        index = bisect_right(self._times, at) - 1
        return self._at(index, at) if index >= 0 else (0, 0)
