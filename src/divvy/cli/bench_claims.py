"""Every published claim beside what was measured here: rows of recorded benchmarks, none typed in twice.

Nothing is measured now; each row says in its note which claim it belongs to and which command repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from divvy.service.claims import claims

Row = dict[str, Any]


def rows(*, quick: bool, announce: Callable[[str], None]) -> Iterator[Row]:
    """Yield the rows of every claim: what is published, then ours.

    Args:
        quick: Changes nothing: the figures are recorded ones.
        announce: Told which claim is read.
    """
    del quick
    for told in claims():
        announce(told["claim"])
        for row in (*told["published"], *told["measured"]):
            where = "" if row in told["published"] else f"measured on: {told['machine']}"
            about = f"claim: {told['claim']} ({told['source']}); conditions: {told['conditions']}"
            parts = (row["note"], about, told["correction"], where, f"again: {told['command']}")
            yield {**row, "note": "; ".join(part for part in parts if part)}
