"""The house's own planner: layouts guided by the bound, raced by replay, never worse than the known ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from divvy.planners.slices.base import Choice, Judge, Request, SlicePlan, shares_runs
from divvy.planners.slices.bound import layout_bound, upper_bound
from divvy.planners.slices.homogeneous import Homogeneous
from divvy.planners.slices.packing import (
    Counts,
    describe,
    flatten,
    lay_out,
    shapes,
    sizes_of,
)
from divvy.planners.slices.paris import KNEES, ROUNDINGS, Paris
from divvy.planners.slices.race import Entry, Fleet, Race, total_of

#: Shares of the objective kept for waiting, at which the program is solved for a first layout.
_MARGINS: Final = (0.0, 0.15, 0.3, 0.45)
#: Settings of the house's rule that a search tries on its best layouts.
_SETTINGS: Final = ("", "growth=0.5", "growth=20", "near=2", "near=1000")
_PRICE_MARGIN: Final = 0.3
#: Races that each stage may spend: the work is bounded by a count, so that a plan is reproducible.
_START: Final = 28
_CLIMB: Final = 90
_TUNE: Final = 50
#: A found layout replaces a known one only if it is this much better: less may be luck of the seeds.
_CLEAR: Final = 1.04


def known_fleets(request: Request) -> Iterator[tuple[str, Fleet, tuple[str, ...]]]:
    """Yield the layouts that a plan must not be worse than, with the rules they are known to be run under."""
    empty = ((0,) * len(sizes_of(request.sku)),) * request.gpus
    for size in request.sizes:
        index = sizes_of(request.sku).index(size)
        most = max(shape[index] for shape in shapes(request.sku))
        shape = tuple(most if i == index else 0 for i in range(len(sizes_of(request.sku))))
        yield Homogeneous(size).name, (shape,) * request.gpus, ("fifs", "jsq")
    for planner in paris_variants(request):
        fleet = planner.fleet(request)
        if fleet != empty:
            yield f"paris:knee={planner.knee},rounding={planner.rounding}", fleet, ("elsa",)


def paris_variants(request: Request) -> Iterator[Paris]:
    """Yield PARIS in every reading that the profile allows."""
    for knee in KNEES:
        if knee == "utilisation" and not request.profile.has_utilisation:
            continue
        for rounding in ROUNDINGS:
            yield Paris(knee, rounding)


@dataclass(frozen=True, slots=True)
class Search:
    """Looks for the layout and the settings of the rule with the highest rate.

    The mixed integer program gives first layouts; changing one GPU's layout at a time is raced by replay at
    the best rate so far, so that most candidates cost one replay; the best few, and every known layout under
    its own rule, are judged again on more seeds, and the best of those is the plan.
    """

    name: str = "divvy"

    def plan(self, request: Request, judge: Judge, dispatcher: str) -> SlicePlan:
        """Return the best layouts found, or a known layout with its rule if that is better."""
        bound = upper_bound(request, batching=shares_runs(dispatcher)).rate_qps
        race = Race(request, judge, bound)
        for origin, fleet in self._first(request):
            start = Race(request, judge, bound)
            start.enter(origin, fleet, self._choices(request, fleet, dispatcher, quick=True))
            limit = _START if origin.startswith("program") else _START // 3
            start.climb(lambda f: self._choices(request, f, dispatcher, quick=True), limit)
            race.absorb(start)
        race.climb(lambda fleet: self._choices(request, fleet, dispatcher, quick=True), _CLIMB)
        if dispatcher.startswith("divvy"):
            self._refine(request, race, dispatcher)
        return self._final(request, judge, race.best(4), self._known(request, race), race)

    def _refine(self, request: Request, race: Race, dispatcher: str) -> None:
        """Tune the rule on the best layouts, then look around them again with the tuned rule."""
        for entry in race.best(3):
            race.enter(
                entry.origin, entry.fleet, self._choices(request, entry.fleet, dispatcher, quick=False)
            )
        for _ in range(2):
            for entry in race.best(1):
                race.tune(entry, _TUNE)
            for entry in race.best(1):
                tuned = entry.choice
                race.climb(
                    lambda fleet, tuned=tuned: [  # type: ignore[misc]
                        replace(tuned, slices=flatten(request.sku, total_of(fleet)))
                    ],
                    _CLIMB // 2,
                )

    @staticmethod
    def _first(request: Request) -> Iterator[tuple[str, Fleet]]:
        for margin in _MARGINS:
            result = upper_bound(request, margin=margin)
            if result.per_gpu:
                yield f"program with {margin:.0%} of the objective kept for waiting", result.per_gpu
        for origin, fleet, _ in known_fleets(request):
            yield origin, tuple(_filled(request, shape) for shape in fleet)

    @staticmethod
    def _choices(request: Request, fleet: Fleet, dispatcher: str, *, quick: bool) -> Iterator[Choice]:
        slices = flatten(request.sku, total_of(fleet))
        if not dispatcher.startswith("divvy"):
            yield Choice(slices, dispatcher)
            return
        if quick:
            yield Choice(slices, dispatcher)
            return
        _, prices = layout_bound(request, total_of(fleet), margin=_PRICE_MARGIN)
        for setting in _SETTINGS:
            rule = dispatcher + (":" if ":" not in dispatcher else ",") + setting if setting else dispatcher
            yield Choice(slices, rule)
            if prices:
                yield Choice(slices, rule, tuple(prices.items()))

    @staticmethod
    def _known(request: Request, race: Race) -> list[Entry]:
        """Return the best known layout under its own rule, from each family (homogeneous, PARIS)."""
        best: dict[str, Entry] = {}
        for origin, fleet, rules in known_fleets(request):
            slices = flatten(request.sku, total_of(fleet))
            for rule in rules:
                family = origin.partition(":")[0]
                least = best[family].rate if family in best else 0.0
                rate = race.rate(Choice(slices, rule), least)
                if rate > least:
                    best[family] = Entry(rate, fleet, Choice(slices, rule), f"{origin} with {rule}")
        return list(best.values())

    @staticmethod
    def _final(
        request: Request, judge: Judge, mine: list[Entry], known: list[Entry], race: Race
    ) -> SlicePlan:
        """Judge the best on more seeds; a found one must clearly beat the known ones to be taken."""
        seeds = tuple(request.seed + i for i in range(3))
        mine, known = (
            [
                replace(entry, rate=judge.rate(entry.choice, seeds, 0.0, min(race.bound, entry.rate * 1.15)))
                for entry in entries
            ]
            for entries in (mine, known)
        )
        judged = mine + known
        best = max(mine, key=lambda entry: entry.rate, default=None)
        safe = max(known, key=lambda entry: entry.rate, default=None)
        if safe is not None and (best is None or best.rate < safe.rate * _CLEAR):
            best = safe
        if best is None or best.rate <= 0:
            fleet = upper_bound(request).per_gpu or (shapes(request.sku)[0],) * request.gpus
            best = Entry(0.0, fleet, Choice(flatten(request.sku, total_of(fleet)), "divvy"), "nothing met it")
        notes = [
            f"{race.races} candidates raced by replay under a bound of {race.bound:.1f} queries/s",
            f"taken: {describe(request.sku, best.fleet)} ({best.origin}) with {best.choice.dispatcher}",
        ]
        notes += [
            f"{entry.rate:.1f} queries/s: {describe(request.sku, entry.fleet)} ({entry.origin}) "
            f"with {entry.choice.dispatcher}" + (" and prices from the program" if entry.choice.price else "")
            for entry in sorted(judged, key=lambda e: -e.rate)
        ]
        layouts = tuple(lay_out(request.sku, shape) for shape in best.fleet)
        return SlicePlan(layouts, best.choice, tuple(notes), best.rate)


def _filled(request: Request, shape: Counts) -> Counts:
    """Return a maximal layout that holds the given slices: what is idle costs nothing to cut."""
    return max(
        (s for s in shapes(request.sku) if all(a >= b for a, b in zip(s, shape, strict=True))),
        key=lambda s: sum(a * b for a, b in zip(s, sizes_of(request.sku), strict=True)),
    )
