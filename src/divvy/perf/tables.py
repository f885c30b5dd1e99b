"""Rows of a CSV text with their line numbers, read strictly: what every table here is read with."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from divvy.errors import Fault


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: its number in the text, and its cells without outer blanks."""

    line: int
    cells: tuple[str, ...]


def read_rows(text: str, path: str, code: str) -> tuple[list[Row], list[Fault]]:
    """Return the rows of a CSV text, and a fault for every line that is none.

    Empty lines and lines that begin with ``#`` are skipped, and a byte order mark. A quoted cell ends on its
    line: a quote that is left open is a fault, not a reason to swallow the lines below it.

    Args:
        text: The text.
        path: Where it comes from, for the faults.
        code: Code of the faults.
    """
    rows: list[Row] = []
    faults: list[Fault] = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            cells = next(csv.reader([line], strict=True))
        except csv.Error as error:
            faults.append(Fault(code, f"{path}:{number}", f"not a line of a CSV table: {error}"))
            continue
        rows.append(Row(number, tuple(cell.strip() for cell in cells)))
    return rows, faults


def as_records(
    rows: Sequence[Row], header: Sequence[str], path: str, code: str, faults: list[Fault]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield every row below a header as (where it is, cells by name); one of another length is a fault."""
    for row in rows:
        where = f"{path}:{row.line}"
        if len(row.cells) != len(header):
            faults.append(Fault(code, where, f"{len(row.cells)} columns", f"{len(header)} as in the header"))
        else:
            yield where, dict(zip(header, row.cells, strict=True))
