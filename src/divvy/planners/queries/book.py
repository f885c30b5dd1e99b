"""What a dispatcher that binds on arrival knows of live slices: what each was given, and when it falls idle.

The arithmetic is the replay's: a slice falls idle when its running query ends and those behind it have run.
Live, the running query has run since the one before it ended, and no slice is free before now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from divvy.perf.latency import INFEASIBLE, LatencyProfile
from divvy.planners.queries.rule import NOWHERE, Rule

#: Weight of a new observation in the correction of a slice size, and how far it may go.
_LEARN: Final = 0.05
_LEAST, _MOST = 0.25, 8.0


@dataclass(slots=True)
class _Held:
    """Queries given to a slice and not finished, as (id, microseconds), and since when it runs or idles."""

    gpcs: int
    queue: deque[tuple[Hashable, int]] = field(default_factory=deque)
    since: int = 0


class Book:
    """Keeps what slices were given.

    Args:
        profile: Latencies of the model.
        largest: Largest batch that is estimated; larger ones count as this one.
    """

    def __init__(self, profile: LatencyProfile, largest: int) -> None:
        self._profile = profile
        self._largest = largest
        self._slices: dict[Hashable, _Held] = {}
        self._where: dict[Hashable, Hashable] = {}
        self._factor: dict[int, float] = {}

    @property
    def drift(self) -> Mapping[int, float]:
        """Return by slice size how many times the profile's time queries really take."""
        return self._factor

    def keep(self, slices: Mapping[Hashable, int]) -> None:
        """Know exactly these slices from now on, by name their compute slices."""
        for gone in [name for name in self._slices if name not in slices]:
            for query, _ in self._slices.pop(gone).queue:
                self._where.pop(query, None)
        for name, gpcs in slices.items():
            if name not in self._slices or self._slices[name].gpcs != gpcs:
                self._slices[name] = _Held(gpcs)

    def estimate_us(self, gpcs: int, batch: int) -> int:
        """Return how long a batch takes on a slice size, corrected by what was seen; or `INFEASIBLE`."""
        time = self._profile.latency_us(gpcs, max(1, min(batch, self._largest)))
        return time if time == INFEASIBLE else round(time * self._factor.get(gpcs, 1.0))

    @staticmethod
    def _free_at(held: _Held, now: int) -> int:
        """Return when a slice falls idle; of an idle one, since when it is."""
        if not held.queue:
            return held.since
        running = max(held.since + held.queue[0][1], now)
        return running + sum(time for _, time in list(held.queue)[1:])

    def rank(
        self, rule: Rule, params: Sequence[float], batch: int, now: int, slo_us: int, draw: int
    ) -> list[Hashable]:
        """Return the slices that can run a query, the rule's choice first, then by when it would be done.

        Args:
            rule: A rule that binds on arrival.
            params: Its parameters.
            batch: Items of the query.
            now: Microseconds.
            slo_us: Objective from now.
            draw: A number for rules that sample.

        Raises:
            ValueError: If the rule binds late.
        """
        if rule.choose is None:
            raise ValueError(f"{rule.name} binds late")
        names = sorted(self._slices, key=lambda name: (self._slices[name].gpcs, str(name)))
        held = [self._slices[name] for name in names]
        times = [self.estimate_us(one.gpcs, batch) for one in held]
        free = [self._free_at(one, now) for one in held]
        service = np.array([[time] for time in times], np.int64).reshape(len(held), 1)
        chosen = rule.choose(
            now,
            now + slo_us,
            0,
            _array(free),
            _array(len(one.queue) for one in held),
            service,
            np.array([float(one.gpcs) for one in held]),
            np.array(tuple(params) or (0.0,)),
            draw,
        )
        able = [s for s, time in enumerate(times) if time != INFEASIBLE]
        able.sort(key=lambda s: (s != chosen, max(free[s], now) + times[s]))
        return [] if chosen == NOWHERE else [names[s] for s in able]

    def where(self, query: Hashable) -> Hashable:
        """Return the slice that was given a query; None where none was."""
        return self._where.get(query)

    def give(self, query: Hashable, name: Hashable, batch: int, now: int) -> None:
        """Note that a slice was given a query (at another one before: moved)."""
        self.take(query, now, done=False)
        held = self._slices.get(name)
        if held is None:
            return
        if not held.queue:
            held.since = now
        held.queue.append((query, max(self.estimate_us(held.gpcs, batch), 1)))
        self._where[query] = name

    def take(self, query: Hashable, now: int, *, done: bool = True) -> None:
        """Note that a query has ended; one that was `done` corrects the estimates of its slice size."""
        held = self._slices.get(self._where.pop(query, None))
        if held is None:
            return
        for position, (known, time) in enumerate(held.queue):
            if known == query:
                del held.queue[position]
                if position == 0:
                    if done:
                        self.learn(held.gpcs, (now - held.since) / time)
                    held.since = now
                return

    def learn(self, gpcs: int, ratio: float) -> None:
        """Correct the estimates of a slice size: a run took so many times its estimate."""
        factor = self._factor.get(gpcs, 1.0)
        moved = factor * (1 + _LEARN * (min(max(ratio, 0.0), 2.0) - 1))
        self._factor[gpcs] = min(max(moved, _LEAST), _MOST)


def _array(values: object) -> NDArray[np.int64]:
    return np.array(list(values), np.int64)  # type: ignore[call-overload]  # any iterable of numbers
