"""What is found while reading that a person must know, each with its line."""

from __future__ import annotations

from typing import Final

from divvy.control.audit.jobs import Warned
from divvy.control.audit.lines import Lines

#: Rows of one code that have a warning each; what comes after is one warning with the ranges of lines.
EACH: Final = 10_000
_RANGES: Final = 20


class RowError(ValueError):
    """A row that cannot be understood.

    Attributes:
        code: Stable word.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Notes:
    """Collects warnings: one for each row that is skipped, one per code for what is doubtful."""

    def __init__(self) -> None:
        self._each: list[Warned] = []
        self._remarks: dict[tuple[int, str, str], Lines] = {}
        self._skips: dict[tuple[int, str], int] = {}
        self._rest: dict[tuple[int, str], Lines] = {}

    def skip(self, line: int, file: int, code: str, text: str) -> None:
        """Tell that a row was not understood."""
        number = self._skips[file, code] = self._skips.get((file, code), 0) + 1
        if number <= EACH:
            self._each.append(Warned(line, file, code, text))
        else:
            self._rest.setdefault((file, code), Lines()).add(line)

    def remark(self, line: int, file: int, code: str, text: str) -> None:
        """Tell something about a row that was understood; rows with the same words share a warning."""
        lines = self._remarks.get((file, code, text))
        if lines is None:
            lines = self._remarks[file, code, text] = Lines()
        lines.add(line)

    def warnings(self) -> tuple[Warned, ...]:
        """Return all warnings in the order of files and lines."""
        found = list(self._each)
        for (file, code), lines in self._rest.items():
            text = f"{lines.count} more rows like this: lines {lines.text(1_000_000)}"
            found.append(Warned(lines.first, file, code, text))
        for (file, code, words), lines in self._remarks.items():
            where = f" ({lines.count} rows: lines {lines.text(_RANGES)})" if lines.count > 1 else ""
            found.append(Warned(lines.first, file, code, words + where))
        return tuple(sorted(found, key=lambda warned: (warned.file, warned.line)))
