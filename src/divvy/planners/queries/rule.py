"""The contract of a dispatch rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from divvy.units import parse_float

#: What a rule answers when no slice can run the query at all.
NOWHERE: Final = -1
_MOST: Final = 1e9

#: choose(now, deadline, batch, free_at, queued, service, price, params, draw) -> slice or NOWHERE
#:
#: now, deadline: microseconds; batch: items of the query; free_at[s]: when slice s has worked off what it was
#: given; queued[s]: queries given to s and not finished; service[s, batch]: microseconds, negative where it
#: does not fit; price[s]: what a microsecond of s costs (its compute slices by default); params: numbers of
#: the rule; draw: a number that is new for each query, for rules that sample. Slices are in ascending size.
Choose = Callable[..., int]


@dataclass(frozen=True, slots=True)
class Rule:
    """A dispatch rule as the registry knows it.

    Attributes:
        name: Name on the command line.
        summary: One line for lists of rules.
        choose: Binds a query to a slice on arrival; None for a rule that binds late.
        late: True if queries wait in a common queue and a slice that falls idle claims one.
        counts: True if `choose` reads `queued` (it costs a little to keep).
        params: The rule's numbers and their defaults, in the order of `params`.
    """

    name: str
    summary: str
    choose: Choose | None = None
    late: bool = False
    counts: bool = False
    params: tuple[tuple[str, float], ...] = ()

    def read(self, text: str) -> tuple[float, ...]:
        """Return the parameters that a text such as ``alpha=1.5,beta=1`` means, in the rule's order.

        Raises:
            ValueError: If a parameter is unknown or there twice, or a value is no number from 0 on.
        """
        known, given = dict(self.params), dict[str, float]()
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            if name not in known:
                raise ValueError(f"{self.name} has no parameter {name!r}")
            if name in given:
                raise ValueError(f"{name} is there twice")
            given[name] = parse_float(value)
            if not 0 <= given[name] <= _MOST:
                raise ValueError(f"{part} is not from 0 to {_MOST:g}")
        return self.values(given)

    def values(self, given: Mapping[str, float]) -> tuple[float, ...]:
        """Return the parameters in the rule's order, defaults where not given."""
        return tuple(given.get(name, default) for name, default in self.params)
