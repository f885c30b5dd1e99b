"""A race of candidates by replay: one replay each unless a candidate beats the lead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from divvy.planners.slices.base import Choice, Judge, Request
from divvy.planners.slices.packing import Counts, shapes

#: Factors by which tuning moves a number up and down.
_TUNED: Final = ("near", "growth", "rescue")
_STEPS: Final = (1.5, 1 / 1.5, 1.2, 1 / 1.2)

Fleet = tuple[Counts, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A choice with its fleet and the rate that its race found."""

    rate: float
    fleet: Fleet
    choice: Choice
    origin: str


def total_of(fleet: Fleet) -> Counts:
    """Return the slices of a fleet, summed over its GPUs."""
    return tuple(map(sum, zip(*fleet, strict=True)))


class Race:
    """Holds the best so far; a candidate costs one replay unless it beats it."""

    def __init__(self, request: Request, judge: Judge, bound: float) -> None:
        self.request, self.judge, self.bound = request, judge, bound
        self.races = 0
        self._seeds = (request.seed,)
        self._entries: list[Entry] = []
        self._seen: set[tuple[Counts, str, tuple[tuple[int, float], ...]]] = set()

    @property
    def lead(self) -> float:
        """Return the best rate so far."""
        return max((entry.rate for entry in self._entries), default=0.0)

    def rate(self, choice: Choice, least: float) -> float:
        """Return the rate of a choice if it is above `least`, else 0."""
        self.races += 1
        return self.judge.rate(choice, self._seeds, least, self.bound)

    def enter(self, origin: str, fleet: Fleet, choices: Iterable[Choice]) -> bool:
        """Race the choices of a fleet; return whether one of them takes the lead."""
        won = False
        for choice in choices:
            key = (total_of(fleet), choice.dispatcher, choice.price)
            if key in self._seen:
                continue
            self._seen.add(key)
            rate = self.rate(choice, self.lead)
            if rate > 0:
                self._entries.append(Entry(rate, fleet, choice, origin))
                won = True
        return won

    def absorb(self, other: Race) -> None:
        """Take over the entries of another race of the same request."""
        self.races += other.races
        self._seen |= other._seen
        self._entries += other._entries

    def best(self, count: int) -> list[Entry]:
        """Return the best entries, best first."""
        return sorted(self._entries, key=lambda entry: -entry.rate)[:count]

    def climb(self, choices: Callable[[Fleet], Iterable[Choice]], limit: int) -> None:
        """Change one GPU's layout at a time while that helps and races are left."""
        limit += self.races
        moved = bool(self._entries)
        while moved and self.races < limit:
            moved = False
            fleet = self.best(1)[0].fleet
            for neighbour in _neighbours(self.request, fleet):
                if self.races >= limit:
                    break
                if self.enter("local search", neighbour, choices(neighbour)):
                    moved = True
                    break

    def tune(self, entry: Entry, limit: int) -> None:
        """Move the numbers of the house's rule one at a time, by a factor, while that helps.

        The numbers are those of the rule and the price of each slice size; prices matter by their ratios.
        """
        stop = self.races + limit
        numbers = _numbers(entry.choice)
        improved = True
        while improved and self.races < stop:
            improved = False
            for key in [k for k in numbers if k in _TUNED or k.startswith("price")]:
                for step in _STEPS:
                    while self.races < stop:
                        moved = {**numbers, key: numbers[key] * step}
                        if not self.enter(
                            f"{entry.origin}, tuned", entry.fleet, [_with(entry.choice, moved)]
                        ):
                            break
                        numbers, improved = moved, True


def _numbers(choice: Choice) -> dict[str, float]:
    """Return what can be tuned about a choice that uses the house's rule."""
    numbers = {"near": 1.05, "growth": 4.0, "rescue": 0.2}
    for part in filter(None, choice.dispatcher.partition(":")[2].split(",")):
        key, _, value = part.partition("=")
        numbers[key] = float(value)
    prices = dict(choice.price)
    sizes = sorted(set(choice.slices))
    return numbers | {f"price {size}": prices.get(size, float(size)) for size in sizes}


def _with(choice: Choice, numbers: dict[str, float]) -> Choice:
    """Return the choice with other numbers."""
    rule = ",".join(f"{key}={value:.4g}" for key, value in numbers.items() if not key.startswith("price"))
    price = tuple(
        (int(key.split()[1]), float(f"{value:.4g}"))
        for key, value in numbers.items()
        if key.startswith("price")
    )
    return Choice(choice.slices, f"divvy:{rule}", price)


def _neighbours(request: Request, fleet: Fleet) -> Iterator[Fleet]:
    """Yield the fleets that differ in one GPU, the most similar layouts first."""
    options = shapes(request.sku)
    moves = []
    for shape in sorted(set(fleet)):
        rest = list(fleet)
        rest.remove(shape)
        for option in options:
            if option != shape:
                apart = sum(abs(a - b) for a, b in zip(option, shape, strict=True))
                moves.append((apart, (*rest, option)))
    for _, neighbour in sorted(moves, key=lambda move: move[0]):
        yield tuple(sorted(neighbour, reverse=True))
