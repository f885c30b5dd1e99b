"""How answers look: tables that know their width, colours that can be switched off, ages, JSON.

Rules, kept by every verb: an id is never cut; a pipe has no width; a column is hidden only on a terminal
that is too narrow for it, and the table then says so; what a user typed (a job's name) cannot send
control sequences to somebody else's terminal; a missing figure is ``-`` or ``n/a``, never a 0.

Rich is imported for spinners only: a table of its own kind starts 90 ms faster (ADR 0041).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TextIO

from divvy.units import SECOND, format_duration

NONE: Final = "-"
STALE_SECONDS: Final = 30.0
_ELLIPSIS: Final = "…"
_GAP: Final = 2

_CODES: Final = {
    "": "",
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_STATE_STYLES: Final = {
    "protected": "blue",
    "interruptible": "cyan",
    "unallocated": "magenta",
    "queued": "yellow",
    "accepted": "yellow",
    "stopping": "yellow",
    "draining": "yellow",
    "finished": "green",
    "up": "green",
    "failed": "red",
    "down": "red",
    "preempted": "red",
    "cancelled": "dim",
    "free": "dim",
}


class Span(NamedTuple):
    """A piece of text in one style."""

    text: str
    style: str = ""


Cell = str | Span | tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        title: Heading.
        right: Whether figures line up on the right.
        shrink: Fewest cells that the column may be cut to, 0: it is never cut.
        drop: Order of hiding on a terminal that is too narrow (1 goes first), 0: it is never hidden.
    """

    title: str
    right: bool = False
    shrink: int = 0
    drop: int = 0


class Screen:
    """Where a verb writes.

    Args:
        stream: Standard output or error.
        no_truncate: Whether the terminal's width is ignored.
    """

    def __init__(self, stream: TextIO, *, no_truncate: bool = False) -> None:
        self.stream = stream
        self.terminal = stream.isatty()
        self.colour = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.width: int | None = None
        if self.terminal and not no_truncate:
            self.width = shutil.get_terminal_size().columns

    def paint(self, cell: Cell) -> str:
        """Return text with its colours, where colours are wanted."""
        return "".join(self._paint(span) for span in spans(cell))

    def _paint(self, span: Span) -> str:
        if not self.colour or not span.style or not span.text:
            return span.text
        codes = ";".join(_CODES[word] for word in span.style.split())
        return f"\x1b[{codes}m{span.text}\x1b[0m"

    def line(self, *cells: Cell) -> None:
        """Write one line; it wraps where the terminal wraps it."""
        print("".join(self.paint(cell) for cell in cells), file=self.stream)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
        """Write a table; columns are cut, then hidden, only as far as a narrow terminal demands."""
        body = [[spans(cell) for cell in row] for row in rows]
        natural = [
            max([cells(column.title), *(_width(row[index]) for row in body)])
            for index, column in enumerate(columns)
        ]
        widths, hidden = _fit(columns, natural, self.width)
        shown = [index for index in range(len(columns)) if index not in hidden]
        self._row(columns, widths, shown, [(Span(column.title, "dim"),) for column in columns])
        for row in body:
            self._row(columns, widths, shown, row)
        if hidden:
            names = ", ".join(columns[index].title.lower() for index in sorted(hidden))
            self.line(Span(f"too narrow for: {names} (--no-truncate shows all)", "dim"))

    def _row(
        self,
        columns: Sequence[Column],
        widths: Sequence[int],
        shown: Sequence[int],
        row: Sequence[tuple[Span, ...]],
    ) -> None:
        parts: list[str] = []
        for index in shown:
            text = _cut(row[index], widths[index])
            pad = " " * (widths[index] - _width(text))
            painted = self.paint(text)
            parts.append(pad + painted if columns[index].right else painted + pad)
        print((" " * _GAP).join(parts).rstrip(), file=self.stream)


class Output:
    """What a verb does with an answer: JSON, ids only, or text for people.

    Args:
        as_json: Print the document.
        quiet: Print ids only.
        no_truncate: Ignore the terminal's width.
    """

    def __init__(self, *, as_json: bool, quiet: bool, no_truncate: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.screen = Screen(sys.stdout, no_truncate=no_truncate)

    @property
    def plain(self) -> bool:
        """Return whether people read the output."""
        return not (self.as_json or self.quiet)

    def machine(self, document: dict[str, Any], ids: Iterable[object]) -> bool:
        """Print the document or the ids if one of them was asked for, and return whether it was."""
        if self.as_json:
            print_json(document, self.screen)
        elif self.quiet:
            for name in ids:
                print(name, file=self.screen.stream)
        return not self.plain


def print_json(document: dict[str, Any], screen: Screen) -> None:
    """Print a document: indented on a terminal, on one line in a pipe."""
    print(json.dumps(document, indent=2 if screen.terminal else None), file=screen.stream)


# -- text ---------------------------------------------------------------------------------------------


def spans(cell: Cell) -> tuple[Span, ...]:
    """Return a cell as pieces that hold no control characters."""
    if isinstance(cell, str):
        return (Span(clean(cell)),)
    if isinstance(cell, Span):
        return (Span(clean(cell.text), cell.style),)
    return tuple(Span(clean(span.text), span.style) for span in cell)


def clean(text: str) -> str:
    """Return text in which control characters and the like are replaced, so that they do nothing."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") else "�" for c in text)


def cells(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def _width(parts: Sequence[Span]) -> int:
    return sum(cells(span.text) for span in parts)


def _cut(parts: tuple[Span, ...], width: int) -> tuple[Span, ...]:
    """Return the pieces cut to a width, with an ellipsis where something is missing."""
    if _width(parts) <= width:
        return parts
    kept: list[Span] = []
    room = width - 1
    for span in parts:
        text = ""
        for character in span.text:
            room -= cells(character)
            if room < 0:
                return (*kept, Span(text + _ELLIPSIS, span.style))
            text += character
        kept.append(Span(text, span.style))
    return tuple(kept)


def _fit(
    columns: Sequence[Column], natural: Sequence[int], width: int | None
) -> tuple[list[int], frozenset[int]]:
    """Return the width of every column and which of them are hidden."""
    widths = list(natural)
    hidden: set[int] = set()

    def excess() -> int:
        shown = [w for index, w in enumerate(widths) if index not in hidden]
        return sum(shown) + _GAP * (len(shown) - 1) - (width or 0)

    if width is None or excess() <= 0:
        return widths, frozenset()
    _shrink(columns, widths, hidden, excess())
    for index in sorted((i for i, c in enumerate(columns) if c.drop), key=lambda i: columns[i].drop):
        if excess() <= 0:
            break
        hidden.add(index)
        widths = list(natural)
        _shrink(columns, widths, hidden, excess())
    return widths, frozenset(hidden)


def _shrink(columns: Sequence[Column], widths: list[int], hidden: set[int], excess: int) -> None:
    """Cut the columns that may be cut, the widest first, until the table fits or nothing is left to cut."""
    while excess > 0:
        able = [i for i, c in enumerate(columns) if i not in hidden and c.shrink and widths[i] > c.shrink]
        if not able:
            return
        widest = max(able, key=lambda i: widths[i])
        widths[widest] -= 1
        excess -= 1


# -- values -------------------------------------------------------------------------------------------


def state(name: str) -> Span:
    """Return a state in its colour; the word itself always says it."""
    return Span(name, _STATE_STYLES.get(name.partition("(")[0], ""))


def path(dotted: str) -> tuple[Span, ...]:
    """Return an account's path, its last part in the foreground."""
    above, dot, name = dotted.rpartition(".")
    return (Span(above + dot, "dim"), Span(name)) if dot else (Span(name),)


def seconds(value: float | None) -> str:
    """Return a duration, ``-`` where there is none."""
    if value is None:
        return NONE
    return f"{value:.1f}s" if 0 < value < 10 else format_duration(int(value) * SECOND)


def many(count: float, noun: str) -> str:
    """Return a count and its noun, in the plural where there is not exactly one."""
    return f"{count:g} {noun}{'' if count == 1 else 's'}"


def whole(value: float | None) -> str:
    """Return a count that may have a fraction, ``-`` where there is none."""
    return NONE if value is None else f"{value:.4g}"


def number(value: float | None, digits: int = 1) -> str:
    """Return a figure with fixed digits, more for a small one, ``-`` where there is none."""
    if value is None:
        return NONE
    return f"{value:.2g}" if digits == 1 and 0 < abs(value) < 0.95 else f"{value:,.{digits}f}"


def percent(part: float | None, digits: int = 0) -> str:
    """Return a fraction as a percentage, ``-`` where there is none."""
    return NONE if part is None else f"{part * 100:.{digits}f}%"


def clock(at: float | None) -> str:
    """Return a time of day, with its date unless that is today; ``-`` where there is none."""
    if at is None:
        return NONE
    then, now = time.localtime(at), time.localtime()
    same_day = (then.tm_year, then.tm_yday) == (now.tm_year, now.tm_yday)
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S", then)


def stamp(at: float) -> str:
    """Return a date and time of day."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def age(document: dict[str, Any]) -> tuple[Span, ...]:
    """Return when the data of an answer is from and how old it was when it was given."""
    old = float(document["age_seconds"])
    text = f"as of {clock(document['as_of'])}, {seconds(max(old, 0))} old"
    if old <= STALE_SECONDS:
        return (Span(text, "dim"),)
    return (Span(f"{text}: the scheduler is silent; is `divvy up` running?", "yellow"),)


def gauge(parts: Sequence[tuple[float, str, str]], width: int) -> tuple[Span, ...]:
    """Return a bar of ``(amount, letter, style)`` parts; a part that is not 0 gets at least one cell."""
    total = sum(amount for amount, _, _ in parts)
    if total <= 0 or width <= 0:
        return ()
    counts = [max(round(amount / total * width), 1) if amount else 0 for amount, _, _ in parts]
    while sum(counts) > width and max(counts) > 1:
        counts[counts.index(max(counts))] -= 1
    while sum(counts) < width:
        counts[counts.index(max(counts))] += 1
    return tuple(Span(letter * n, style) for n, (_, letter, style) in zip(counts, parts, strict=True) if n)
