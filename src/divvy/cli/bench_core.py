"""The figures of the core: every target of replay, pass, API and live system as rows of ``divvy.bench/1``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from divvy.cli.bench_core_pass import pass_rows
from divvy.cli.bench_row import Row

Announce = Callable[[str], None]


def _pass(quick: bool, announce: Announce) -> Iterator[Row]:
    yield from pass_rows(limit_seconds=18 if quick else 300, announce=announce)


#: Parts by name, in the order in which they run.
PARTS: Final[dict[str, Callable[[bool, Announce], Iterator[Row]]]] = {
    "pass": _pass,
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
