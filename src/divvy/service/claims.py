"""Published claims beside what was measured here: read from recorded benchmarks, no figure is written twice.

A recorded benchmark is what ``divvy bench NAME --json`` printed, in ``benchmarks/``; a claim (`claims.toml`)
says which of its rows are the claim and which are ours.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

_HERE: Final = Path(__file__).parent
#: In a checkout beside the sources, in an installation inside the package.
_PLACES: Final = (_HERE.parents[2] / "benchmarks", _HERE / "recorded")


class Pick(NamedTuple):
    """Some rows of a recorded benchmark.

    Attributes:
        case: How the case begins.
        contender: How the contender begins.
        measures: Which measures, by their beginning; none: all.
    """

    case: str
    contender: str
    measures: tuple[str, ...] = ()

    def of(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield the rows."""
        for row in rows:
            fits = not self.measures or str(row["measure"]).startswith(self.measures)
            if fits and row["case"].startswith(self.case) and row["contender"].startswith(self.contender):
                yield row


class Claim(NamedTuple):
    """One published claim.

    Attributes:
        part: budgets, slices or transfers.
        title: What is claimed, in a line.
        source: Who claims it and where.
        record: Recorded benchmark that holds the rows.
        command: Measures them again.
        published: The rows that repeat the claim.
        measured: The rows that are ours.
        conditions: Under which conditions ours were measured.
        correction: What has to be said about the claim; empty where nothing.
    """

    part: str
    title: str
    source: str
    record: str
    command: str
    published: tuple[Pick, ...]
    measured: tuple[Pick, ...]
    conditions: str
    correction: str = ""


def _claim(entry: Mapping[str, Any]) -> Claim:
    return Claim(
        entry["part"],
        entry["title"],
        entry["source"],
        entry["record"],
        entry["command"],
        _picks(entry.get("published", ())),
        _picks(entry["measured"]),
        entry["conditions"],
        entry.get("correction", ""),
    )


def _picks(entries: Sequence[Mapping[str, Any]]) -> tuple[Pick, ...]:
    return tuple(
        Pick(one.get("case", ""), one.get("contender", ""), tuple(one.get("measures", ()))) for one in entries
    )


#: Every claim, from the file beside this one.
CLAIMS: Final = tuple(
    _claim(entry) for entry in tomllib.loads((_HERE / "claims.toml").read_text(encoding="utf-8"))["claim"]
)


def recorded(name: str) -> dict[str, Any] | None:
    """Return a recorded benchmark, None where there is none."""
    for place in _PLACES:
        path = place / f"{name}.json"
        if path.is_file():
            document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return document
    return None


def claims() -> list[dict[str, Any]]:
    """Return every claim with its rows, ours, the machine of ours and the command that repeats them."""
    told = []
    for claim in CLAIMS:
        found = recorded(claim.record)
        rows = found["rows"] if found is not None else []
        published = [dict(row) for pick in claim.published for row in pick.of(rows)]
        measured = [dict(row) for pick in claim.measured for row in pick.of(rows)]
        told.append(
            {
                "part": claim.part,
                "claim": claim.title,
                "source": claim.source,
                "published": published,
                "measured": [row for row in measured if row not in published],
                "conditions": claim.conditions,
                "correction": claim.correction,
                "machine": found["machine"] if found is not None else None,
                "command": claim.command,
            }
        )
    return told
