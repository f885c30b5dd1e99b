"""Lines of a printed table or transcript: what is frame, what is content, and what cannot be understood."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from divvy.errors import Fault, InputError

_FRAME = re.compile(r"^\s*(?:[+|][-=+|\s]*[+|])?\s*$")
_CHATTER = re.compile(r"^\s*(?:#.*|\.\.\s*code-block::.*|\$\s.*|```.*|(?:\S+@\S+)?[:~/\w.-]*[#$]\s.*)$")


def content(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) for lines that are neither frame, comment, prompt nor empty."""
    for number, line in enumerate(text.splitlines(), start=1):
        if not _FRAME.match(line) and not _CHATTER.match(line):
            yield number, line.rstrip()


def is_cut_off(text: str) -> bool:
    """Return whether a table that opens with a frame (``+-----+``) has no frame at its end."""
    bars = [line.strip() for line in text.splitlines() if line.lstrip().startswith(("+", "|"))]
    return (
        bool(bars) and bars[0].startswith("+") and not (bars[-1].startswith("+") and bars[-1].endswith("+"))
    )


def cells(line: str) -> str:
    """Return a table's line without its outer bars."""
    return line.strip().strip("|").strip()


@dataclass(slots=True)
class Faults:
    """Collects what is wrong with a text, so that all of it is reported at once."""

    path: str
    kind: str
    found: list[Fault] = field(default_factory=list)

    def add(self, line: int, message: str, allowed: str = "") -> None:
        """Note one fault at a line."""
        self.found.append(Fault("mig-unreadable", f"{self.path or self.kind}:{line}", message, allowed))

    def unread(self, line: int, text: str) -> None:
        """Note a line that means nothing here."""
        self.add(line, f"{text.strip()[:80]!r} is not a line of {self.kind}")

    def close(self, text: str) -> None:
        """Note a table that was cut off before its closing frame."""
        if is_cut_off(text):
            self.add(text.count("\n") + 1, "the table is cut off: its closing frame is missing")

    def finish(self, *, empty: bool) -> None:
        """Raise if anything was found, or if there was nothing to read.

        Raises:
            InputError: With every fault.
        """
        if empty and not self.found:
            self.found.append(
                Fault("mig-empty", self.path or self.kind, f"there is nothing of {self.kind} in this text")
            )
        if self.found:
            raise InputError(f"{self.path or 'the text'} is not readable as {self.kind}", self.found)
