"""Sets of line numbers that grow while a file is read, kept as ranges."""

from __future__ import annotations

from collections.abc import Iterable


class Lines:
    """Lines of one file, in ascending order, as ranges."""

    __slots__ = ("_firsts", "_lasts", "count")

    def __init__(self, lines: Iterable[int] = ()) -> None:
        self.count = 0
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for line in lines:
            self.add(line)

    def add(self, line: int) -> None:
        """Add a line that is not before the last one added."""
        self.count += 1
        if self._lasts and self._lasts[-1] in (line, line - 1):
            self._lasts[-1] = line
        else:
            self._firsts.append(line)
            self._lasts.append(line)

    @property
    def first(self) -> int:
        """Return the first line, 0 where there is none."""
        return self._firsts[0] if self._firsts else 0

    def ranges(self, most: int) -> list[str]:
        """Return the first ranges as text, such as ``["3-7", "12"]``."""
        pairs = zip(self._firsts[:most], self._lasts[:most], strict=True)
        return [str(first) if first == last else f"{first}-{last}" for first, last in pairs]

    def text(self, most: int) -> str:
        """Return the first ranges in one text, with an ellipsis where there are more."""
        shown = ", ".join(self.ranges(most))
        return f"{shown}, …" if len(self._firsts) > most else shown
