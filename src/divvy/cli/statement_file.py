"""Statements as files: CSV for a spreadsheet, JSON, or the page for a budget owner, by the file's ending."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from divvy.cli.statement_page import FIGURES, page
from divvy.errors import InputError

COLUMNS: Final = (
    "account",
    "leaf",
    "at",
    "at_seconds",
    *FIGURES,
    "ledger_count",
    "ledger_first",
    "ledger_last",
    "ledger_ids",
)

#: Formats by the ending of a file.
ENDINGS: Final = (".csv", ".json", ".html")


def csv_text(statement: dict[str, Any], *, unix: bool = True) -> str:
    """Return one line per account and hour.

    Args:
        statement: With its hours.
        unix: Whether times are Unix seconds; otherwise they count from the first submission of a replay.
    """
    return _csv(
        COLUMNS,
        (
            [
                row["account"],
                int(row["leaf"]),
                _instant(hour["at"]) if unix else "",
                repr(hour["at"]),
                *(repr(hour[name]) for name in FIGURES),
                *(hour["ledger"][name] for name in ("count", "first", "last", "ids")),
            ]
            for row in statement["rows"]
            for hour in row["hours"] or ()
        ),
    )


def ledger_text(runs: Iterable[dict[str, Any]]) -> str:
    """Return the ledger lines behind a statement as CSV."""
    listed = list(runs)
    return _csv(list(listed[0]) if listed else ["id"], (list(run.values()) for run in listed))


def _csv(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_harmless(cell) for cell in row] for row in rows)
    return out.getvalue()


def _harmless(cell: Any) -> Any:
    """Return a cell that a spreadsheet does not take for a formula; figures are left alone."""
    if isinstance(cell, str) and cell[:1] in ("=", "+", "@", "\t") and cell != "":
        return f"'{cell}"
    return cell


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def check_ending(path: Path, option: str) -> None:
    """Refuse a file whose ending names no format.

    Raises:
        InputError: Naming those that do.
    """
    if path.suffix.lower() not in ENDINGS:
        raise InputError.one(
            "statement-format",
            f"the ending of {path.name!r} names no format",
            path=option,
            allowed=", ".join(ENDINGS),
            fix="write for example statement.html",
        )


def render(statement: dict[str, Any], ending: str, *, unix: bool) -> str:
    """Return a statement in the format of an ending."""
    formats: dict[str, Callable[[], str]] = {
        ".csv": lambda: csv_text(statement, unix=unix),
        ".json": lambda: json.dumps(statement, separators=(",", ":"), allow_nan=False) + "\n",
        ".html": lambda: page(statement, unix=unix),
    }
    return formats[ending.lower()]()


def write(path: Path, text: str, option: str) -> None:
    """Write a file, all of it or none; a device, a pipe or a link is written to, never replaced.

    Raises:
        InputError: If it cannot be written.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
            return
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError.one(
            "statement-file", error.strerror or str(error), path=str(path), fix=f"choose another for {option}"
        ) from error
