"""The figures of the core: every target of replay, pass, API and live system as rows of ``divvy.bench/1``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from divvy.cli.bench_core_api import measure
from divvy.cli.bench_core_live import live_rows
from divvy.cli.bench_core_pass import pass_rows
from divvy.cli.bench_core_replay import reclaim_rows, replay_rows
from divvy.cli.bench_row import Row
from divvy.units import DAY

Announce = Callable[[str], None]


def _replay(quick: bool, announce: Announce) -> Iterator[Row]:
    if quick:
        yield from replay_rows(seeds=(0,), days=_QUICK_DAYS, warmup=DAY, announce=announce)
    else:
        yield from replay_rows(seeds=(0, 1, 2), announce=announce)


def _reclaim(quick: bool, announce: Announce) -> Iterator[Row]:
    yield from reclaim_rows(seeds=(0,) if quick else (0, 1, 2), announce=announce)


def _pass(quick: bool, announce: Announce) -> Iterator[Row]:
    yield from pass_rows(limit_seconds=15 if quick else 300, announce=announce)


def _api(quick: bool, announce: Announce) -> Iterator[Row]:
    announce("API: jobs are stored")
    yield from measure(quick=quick, jobs=2_000 if quick else 10_000)


def _live(quick: bool, announce: Announce) -> Iterator[Row]:
    if quick:
        yield from live_rows(launches=5, jobs=20, limit_seconds=8, announce=announce)
    else:
        yield from live_rows(launches=50, jobs=800, limit_seconds=600, announce=announce)


#: A part of the trace in which demand exceeds both fleets.
_QUICK_DAYS: Final = (20, 24)

#: Parts by name, in the order in which they run.
PARTS: Final[dict[str, Callable[[bool, Announce], Iterator[Row]]]] = {
    "replay": _replay,
    "reclaim": _reclaim,
    "pass": _pass,
    "api": _api,
    "live": _live,
}


def rows(
    *, quick: bool = False, announce: Announce = lambda _: None, parts: Sequence[str] = ()
) -> Iterator[Row]:
    """Yield every figure of the core.

    Args:
        quick: Whether to stay within a minute.
        announce: Told what is being measured.
        parts: Names of parts; empty for all.
    """
    for name, run in PARTS.items():
        if not parts or name in parts:
            yield from run(quick, announce)
