"""Every trick under every policy, beside the honest twin: what it brings to the tricker."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

from divvy.cli.bench_budgets import OWN, POLICIES
from divvy.cli.bench_core_replay import TRACE
from divvy.cli.bench_kept import Figures
from divvy.cli.bench_row import Row, figure, find_data
from divvy.cli.bench_runs import Runs
from divvy.planners.jobs.registry import documented
from divvy.sim.gaming import WHO, Game, play
from divvy.sim.intervals import interval
from divvy.sim.tricks import HONEST, TRICKS
from divvy.units import DAY

Announce = Callable[[str], None]

NODES: Final = "29x8"
SEEDS: Final = 3
_DAYS: Final = (14.0, 35.0)
_QUICK: Final[dict[str, Any]] = {"days": (20.0, 21.0), "warmup": DAY // 4}
_TARGET: Final = 0.05


class Player(NamedTuple):
    """A contender: a policy, and what is set in it."""

    name: str
    policy: str
    settings: tuple[tuple[str, float], ...] = ()


#: Every policy as it comes, and ours with what a budget may add against those who hold on to devices.
PLAYERS: Final = (
    *(Player(name, name) for name in POLICIES),
    Player(f"{OWN}, protection_price 2", OWN, (("protection_price", 2.0),)),
    Player(f"{OWN}, protection_cap 1", OWN, (("protection_cap", 1.0),)),
)
_HOLDING: Final = ("all 8 h", "sleepers", "own-swap chains")

#: Parts by name: whose trick it is.
PARTS: Final = {f"{who}-{by}": (who, by == "author") for who in WHO for by in ("account", "author")}


def rows(
    *,
    quick: bool = False,
    announce: Announce = lambda _: None,
    parts: Sequence[str] = (),
    cache: Path | None = None,
    minutes: float = math.inf,
    seeds: int = SEEDS,
    days: tuple[float, float] = _DAYS,
) -> Iterator[Row]:
    """Yield the gain of every trick.

    Args:
        quick: Whether to stay within a minute: one seed, a day of the trace.
        announce: Told what is being run.
        parts: Names of parts; empty for all.
        cache: Where finished replays are kept.
        minutes: Time after which no further replay is begun.
        seeds: Seeds of every case.
        days: Part of the trace.
    """
    base = Game(OWN, 0, NODES, HONEST, "heavy", days=days)
    if quick:
        base, seeds = replace(base, **_QUICK), 1
    matches = [
        Match(trick, who, alone, player, tuple(_twins(base, trick, who, player, seeds, alone=alone)))
        for who, alone in (PARTS[name] for name in PARTS if not parts or name in parts)
        for trick in TRICKS
        for player in PLAYERS
        if not player.settings or trick in _HOLDING
    ]
    file = find_data(TRACE)
    read: Callable[[Game], Figures | None] = dict[Game, Figures]().get
    missing = f"skipped: no ../shared/data/{TRACE} beside the checkout"
    if file is not None:
        runs = Runs(file, cache=cache, minutes=minutes, quick=quick, announce=announce, perform=play)
        every = dict.fromkeys(game for match in matches for pair in match.games for game in pair)
        # The first seed of everything before the second of anything, our own policy first.
        runs.all(sorted(every, key=lambda game: (game.seed, game.policy != OWN, game.alone, game.settings)))
        read, missing = runs.one, "not run: the time was up"
    for match in matches:
        pairs = [
            (tricked, honest)
            for one, twin in match.games
            if (tricked := read(one)) is not None and (honest := read(twin)) is not None
        ]
        yield from _gains(match, pairs, "" if pairs else missing, quick=quick)


class Match(NamedTuple):
    """A trick of somebody under a policy, and per seed the game and its honest twin."""

    trick: str
    who: str
    alone: bool
    player: Player
    games: tuple[tuple[Game, Game], ...]


def _twins(
    base: Game, trick: str, who: str, player: Player, seeds: int, *, alone: bool
) -> Iterator[tuple[Game, Game]]:
    """Yield games and their twins; the twin of an author's trick is that of the account's."""
    for seed in range(seeds):
        honest = replace(base, policy=player.policy, settings=player.settings, seed=seed, who=who)
        yield replace(honest, trick=trick, alone=alone), honest


def _gains(
    match: Match, pairs: Sequence[tuple[Figures, Figures]], missing: str, *, quick: bool
) -> Iterator[Row]:
    """Yield what a trick brought: charged hours, free hours, all hours, slowdown."""
    player, label = match.player, "author" if match.alone else "account"
    case = f"{match.trick}, by {'the busiest author of ' if match.alone else ''}{WHO[match.who]}"
    days = "{:g} to {:g}".format(*match.games[0][0].days)
    notes = [
        documented(player.policy)["label"],
        "only a day of the file" if quick else f"days {days}",
        missing,
    ]
    gains: tuple[tuple[str, Callable[[Figures, Figures], float]], ...] = (
        ("useful charged GPU-hours, gain", partial(_hours, label, ("allocated",))),
        ("useful unallocated GPU-hours, gain", partial(_hours, label, ("unallocated",))),
        ("GPU-hours in all, gain", partial(_hours, label, ("allocated", "unallocated"))),
        ("slowdown, gain", partial(_slower, label)),
    )
    for measure, gain in gains:
        values = [gain(*pair) for pair in pairs]
        sound = [value for value in values if math.isfinite(value)]
        aimed = (
            player.policy == OWN and not quick and "unallocated" not in measure and "in all" not in measure
        )
        yield figure(
            case,
            measure,
            fmean(sound) if sound else None,
            "",
            contender=player.name,
            interval=interval(sound) if len(sound) > 1 else None,
            n=len(sound),
            target=_TARGET if aimed else None,
            note="; ".join(filter(None, notes)),
        )


def _hours(label: str, kinds: tuple[str, ...], one: Figures, twin: Figures) -> float:
    """Return the gain in hours over all hours of the honest twin."""
    whole = twin[f"{label}.allocated"] + twin[f"{label}.unallocated"]
    more = sum(one[f"{label}.{kind}"] - twin[f"{label}.{kind}"] for kind in kinds)
    return more / whole if whole else math.nan


def _slower(label: str, one: Figures, twin: Figures) -> float:
    """Return by how much of the honest slowdown the tricker's is less."""
    name = f"{label}.slowdown"
    return 1 - one[name] / twin[name] if name in one and name in twin else math.nan
