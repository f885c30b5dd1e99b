"""Live rates of every contender on its own best layout and on equal slices, side by side."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from divvy.adapters.lab.lab import Lab
from divvy.cli.bench_row import Row, figure
from divvy.cli.bench_serving_contenders import DEFAULT, OURS, TUNED, Contender, Place
from divvy.cli.bench_serving_search import Effort, Fire, Trials
from divvy.cli.bench_serving_stage import FIRST_SEED, Deployed, Stage
from divvy.cli.lab_slices import make_specs
from divvy.errors import DivvyError
from divvy.sim.intervals import interval

#: Where a search begins, as a share of the rate that the replay expects: live servers have a little less.
_BEGIN: Final = 0.94
_FLOOR_QPS: Final = 2.0
BEST, EQUAL = "own best layout", "equal slices"
_TARGETS: Final[Mapping[tuple[str, str], float]] = {
    (BEST, DEFAULT): 1.5,
    (BEST, TUNED): 1.15,
    (EQUAL, DEFAULT): 1.0,
    (EQUAL, TUNED): 1.0,
}


@dataclass(frozen=True, slots=True)
class Rates:
    """What a contender served, by seed; None where the time was up.

    Attributes:
        contender: Who.
        slices: Its slices as text.
        expected_qps: What the replay expects.
        by_seed: Largest rate by seed.
        missing: Why it could not be measured; empty where it was.
    """

    contender: Contender
    slices: str
    expected_qps: float
    by_seed: tuple[float | None, ...]
    missing: str = ""

    @property
    def known(self) -> list[float]:
        """Return the rates that were measured."""
        return [rate for rate in self.by_seed if rate is not None]


def measure(
    stage: Stage,
    contenders: Sequence[Contender],
    trials: Trials,
    *,
    equal: bool,
    announce: Callable[[str], None],
) -> list[Rates]:
    """Return the rates of the contenders on a case; seeds are interleaved, a few trials run at a time."""
    found: dict[str, Rates] = {}
    ready: list[tuple[Contender, Deployed, Fire]] = []
    with ExitStack() as stack, tempfile.TemporaryDirectory() as home:
        for number, contender in enumerate(contenders):
            deployed = stage.deploy(contender.rule, equal=equal)
            announce(f"{stage.case.name}: {contender.name} on {deployed.text}")
            if deployed.expected_qps < _FLOOR_QPS:
                rates = (0.0,) * trials.effort.seeds
                found[contender.name] = Rates(contender, deployed.text, 0.0, rates)
                continue
            lab = stack.enter_context(Lab())
            sku, profile = stage.request.sku, stage.profile
            largest = stage.request.batches.largest
            running = lab.start(make_specs(sku, deployed.layouts, profile, largest=largest))
            place = Place(stage, deployed, running, Path(home) / str(number))
            try:
                fire = stack.enter_context(contender.serving(place))
            except DivvyError as error:
                lab.close()
                nothing = (None,) * trials.effort.seeds
                found[contender.name] = Rates(contender, deployed.text, 0.0, nothing, str(error))
                continue
            ready.append((contender, deployed, fire))
        found |= _searched(stage, ready, trials, announce)
    return [found[contender.name] for contender in contenders]


def _searched(
    stage: Stage,
    ready: Sequence[tuple[Contender, Deployed, Fire]],
    trials: Trials,
    announce: Callable[[str], None],
) -> dict[str, Rates]:
    """Search for every contender and seed, seed after seed so that all meet the same machine."""
    by_seed: dict[str, list[float | None]] = {contender.name: [] for contender, _, _ in ready}
    with ThreadPoolExecutor(trials.effort.lanes) as pool:
        for seed in range(FIRST_SEED, FIRST_SEED + trials.effort.seeds):
            announce(f"{stage.case.name}: seed {seed - FIRST_SEED + 1} of {trials.effort.seeds}")
            asked = [
                pool.submit(
                    trials.largest,
                    stage,
                    contender.name,
                    deployed.choice.slices,
                    deployed.expected_qps * _BEGIN,
                    seed,
                    fire,
                )
                for contender, deployed, fire in ready
            ]
            for (contender, _, _), answer in zip(ready, asked, strict=True):
                by_seed[contender.name].append(answer.result())
    return {
        contender.name: Rates(contender, deployed.text, deployed.expected_qps, tuple(by_seed[contender.name]))
        for contender, deployed, _ in ready
    }


def leave_out(contender: Contender, effort: Effort, why: str) -> list[Rates]:
    """Return the row of a contender that there is no time for."""
    nothing = (None,) * effort.seeds
    return [Rates(contender, "-", 0.0, nothing, why)]


def rate_rows(case: str, layout: str, found: Sequence[Rates], how: str) -> Iterator[Row]:
    """Yield a row per contender, and how Divvy compares with the best default and the best tuned one.

    Args:
        case: Name of the case.
        layout: `BEST` or `EQUAL`.
        found: The rates.
        how: How they were measured.
    """
    for one in found:
        known = one.known
        note = (
            one.missing or f"{one.slices}; {one.contender.note}; replay expects {one.expected_qps:.1f}; {how}"
        )
        yield figure(
            case,
            f"largest rate, {layout}",
            sum(known) / len(known) if known else None,
            "queries/s",
            contender=one.contender.name,
            interval=interval(known) if len(known) > 1 else None,
            n=len(known),
            note=note if known or one.missing else f"not measured in the time given; {note}",
        )
    ours = _best(found, OURS)
    for kind in (DEFAULT, TUNED):
        yield _ratio_row(case, layout, kind, ours, _best(found, kind))


def _best(found: Sequence[Rates], kind: str) -> Rates | None:
    """Return the best of a kind by its mean rate."""
    mine = [one for one in found if one.contender.kind == kind and one.known]
    return max(mine, key=lambda one: sum(one.known) / len(one.known), default=None)


def _ratio_row(case: str, layout: str, kind: str, ours: Rates | None, other: Rates | None) -> Row:
    """Return how many times the rate of the best of a kind Divvy serves, seed by seed."""
    pairs = (
        []
        if ours is None or other is None
        else [
            (a, b)
            for a, b in zip(ours.by_seed, other.by_seed, strict=True)
            if a is not None and b is not None and b > 0
        ]
    )
    ratios = [a / b for a, b in pairs]
    names = f"{ours.contender.name if ours else '-'} / {other.contender.name if other else '-'}"
    zero = other is not None and bool(other.known) and not any(other.known)
    note = f"{names}, seed by seed; geometric mean, 95% interval of the mean ratio"
    return figure(
        case,
        f"times the rate of the best {kind}, {layout}",
        math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios and min(ratios) > 0 else None,
        "",
        interval=interval(ratios) if len(ratios) > 1 else None,
        n=len(ratios),
        target=_TARGETS[layout, kind],
        at_least=True,
        note=f"{names}: the {kind} one is at zero, listed apart" if zero else note,
    )


def zero_row(found: Mapping[tuple[str, str], Sequence[Rates]]) -> Row:
    """Return how many contenders serve nothing within the objective on a case, and which."""
    names = [
        f"{one.contender.name} ({case}, {layout})"
        for (case, layout), rates in found.items()
        for one in rates
        if one.known and not any(one.known)
    ]
    return figure("all cases", "contenders at zero", len(names), "", note=", ".join(names) or "none")
