"""What the readers of comma-separated traces share: columns by name, numbers and times with their faults."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from divvy.errors import InputError
from divvy.sim.traces.trace import LARGEST_GANG, LONGEST_MS, Findings, lines_of
from divvy.units import SECOND

_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
STAMP_HELP: Final = "YYYY-MM-DD HH:MM:SS, with or without +HH:MM"

#: A row: column name to its text, blanks at both ends taken off.
Row = dict[str, str]


def rows_of(
    data: bytes,
    findings: Findings,
    needed: Sequence[str],
    headless: Sequence[str] = (),
) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a table with their lines; a row with too few or too many fields is a fault.

    Args:
        data: The file.
        findings: Receives the faults.
        needed: Columns that must be there, each once, in any order; others do no harm.
        headless: Names of the columns of a file whose first line is a row already; empty if there is
            always a header.

    Raises:
        InputError: If the header has not exactly one of every column needed.
    """
    lines = lines_of(data, findings)
    number, first = next(lines, (1, ""))
    names = [name.strip() for name in fields_of(first)]
    if headless and needed[0] not in names and len(names) == len(headless):
        yield from _row(number, first, headless, findings)
        names = list(headless)
    wrong = [name for name in needed if names.count(name) != 1]
    if wrong:
        raise InputError.one(
            "trace-header",
            f"the header has not exactly one column {', '.join(wrong)}; it reads {first[:120]!r}",
            path=f"{findings.source}:{number}",
            allowed=",".join(needed),
            fix="check --format",
        )
    for number, line in lines:
        yield from _row(number, line, names, findings)


def fields_of(line: str) -> list[str]:
    """Return the fields of a line, quotes taken off."""
    return line.split(",") if '"' not in line else next(csv.reader([line]))


def _row(number: int, line: str, names: Sequence[str], findings: Findings) -> Iterator[tuple[int, Row]]:
    fields = fields_of(line)
    if len(fields) == len(names):
        yield number, {name: field.strip() for name, field in zip(names, fields, strict=True)}
    else:
        findings.fault(
            number,
            "trace-fields",
            f"{len(fields)} fields; cut off or damaged: {line[:80]!r}",
            f"{len(names)}",
        )


class Cells:
    """The cells of one row, read with faults that name the row; `sound` tells whether there were any."""

    __slots__ = ("_before", "_findings", "_line", "_row")

    def __init__(self, line: int, row: Row, findings: Findings) -> None:
        self._line = line
        self._row = row
        self._findings = findings
        self._before = len(findings.faults)

    @property
    def sound(self) -> bool:
        """Return whether everything that was read so far makes sense."""
        return len(self._findings.faults) == self._before

    def fault(self, code: str, message: str, allowed: str = "") -> None:
        """Note that the row is malformed."""
        self._findings.fault(self._line, code, message, allowed)

    def number(self, name: str, *, least: float = 0.0, above: bool = False, times: int = 1) -> float:
        """Return a finite number of at least (or above) a bound; above so many centuries it is absurd."""
        text = self._row[name]
        help_text = f"a number {'above' if above else 'of at least'} {least:g}"
        try:
            value = float(text)
        except ValueError:
            self.fault("trace-number", f"{name} {text!r} is not a number", help_text)
            return 0.0
        low = value <= least if above else value < least
        if not math.isfinite(value) or low or value > times * LONGEST_MS / SECOND:
            self.fault("trace-number", f"{name} {text} is out of range", help_text)
            return 0.0
        return value

    def runtime(self, name: str) -> int:
        """Return a run's seconds, above 0, as ms."""
        return max(1, round(self.number(name, above=True) * SECOND))

    def instant(self, name: str) -> int:
        """Return seconds on the trace's own clock as ms."""
        return round(self.number(name) * SECOND)

    def gpus(self, name: str, least: int = 1) -> int:
        """Return a whole number of devices; ``8.0`` is one too."""
        text = self._row[name]
        allowed = f"{least} to {LARGEST_GANG}"
        try:
            value = float(text)
        except ValueError:
            self.fault("trace-gpus", f"{name} {text!r} is not a whole number", allowed)
            return least
        if not math.isfinite(value) or value != int(value):
            self.fault("trace-gpus", f"{name} {text!r} is not a whole number", allowed)
            return least
        if not least <= value <= LARGEST_GANG:
            self.fault("trace-gpus", f"{name} {text} is out of range", allowed)
            return least
        return int(value)

    def stamp(self, name: str) -> int:
        """Return a date and time as ms since 1970; one that names no zone is read as UTC."""
        text = self._row[name]
        if _STAMP.fullmatch(text):
            try:
                when = datetime.fromisoformat(text)
            except ValueError:  # a 30 February has the right form and is still no day
                pass
            else:
                zoned = when if when.tzinfo else when.replace(tzinfo=UTC)
                return round(zoned.timestamp() * SECOND)
        self.fault("trace-time", f"{name} {text!r} is not a time", STAMP_HELP)
        return 0

    def text(self, name: str) -> str:
        """Return a name."""
        text = self._row[name]
        if not text or not text.isprintable():
            self.fault("trace-account", f"{name} is empty or not printable", "a name")
        return text


class Ids:
    """Ids of a trace: each may be there once."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def once(self, cells: Cells, line: int, name: str) -> bool:
        """Return whether an id is new; note a fault where it is not."""
        known = self._seen.setdefault(name, line)
        if known != line:
            cells.fault("trace-duplicate", f"id {name!r} was used in line {known}", "once")
        return known == line


class Left:
    """Rows that are sound but hold nothing that could be replayed; counted, not faults."""

    def __init__(self) -> None:
        self._count: dict[str, tuple[int, int]] = {}

    def out(self, line: int, why: str) -> None:
        """Count a row that is left out."""
        count, first = self._count.get(why, (0, line))
        self._count[why] = count + 1, first

    def tell(self, findings: Findings) -> None:
        """Write the counts into the notes."""
        findings.notes += [
            f"{count} row{'s' if count > 1 else ''} left out: {why} (first: line {first})"
            for why, (count, first) in self._count.items()
        ]


def written(at: int) -> str:
    """Return a time of a dated trace as text."""
    return datetime.fromtimestamp(at / SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")


def seconds(at: int) -> str:
    """Return a time on a trace's own clock as text."""
    return f"{at / SECOND:g} s"
