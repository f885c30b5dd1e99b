"""Slurm's lists of nodes: ``gpu[001-003,7],login`` and the like."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Final

#: What Slurm writes where there is no node, and no value at all.
NOBODY: Final = frozenset({"", "(null)", "None", "N/A", "None assigned", "NONE", "null", "Unknown"})
MOST_NODES: Final = 100_000

_BRACKET: Final = re.compile(r"\[([^\[\]]*)\]")
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


@lru_cache(maxsize=16_384)
def expand(text: str) -> tuple[str, ...]:
    """Return the nodes of a list in its order, with the leading zeros that it has.

    Args:
        text: Such as ``r[1-2]n[01-04],login1``; no node where Slurm says ``None assigned`` or ``(null)``.

    Raises:
        ValueError: If it is no list of nodes, or of more than 100,000.
    """
    if text.strip() in NOBODY:
        return ()
    names: list[str] = []
    for part in _parts(text):
        fixed = _BRACKET.split(part)
        choices = [_numbers(piece) if odd % 2 else [piece] for odd, piece in enumerate(fixed)]
        size = 1
        for choice in choices:
            size *= len(choice)
        if len(names) + size > MOST_NODES:
            raise ValueError(f"more than {MOST_NODES} nodes in one list")
        names.extend("".join(pieces) for pieces in product(*choices))
    return tuple(names)


def count(text: str) -> int:
    """Return the number of nodes of a list.

    Raises:
        ValueError: As `expand` does.
    """
    return len(expand(text))


def _parts(text: str) -> Iterator[str]:
    """Yield what lies between the commas that are in no brackets."""
    depth = start = 0
    for place, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif letter == "," and not depth:
            yield _named(text[start:place], text)
            start = place + 1
        if depth not in (0, 1):
            raise ValueError(f"{text!r} is not a list of nodes: its brackets do not match")
    if depth:
        raise ValueError(f"{text!r} is not a list of nodes: its brackets do not match")
    yield _named(text[start:], text)


def _named(part: str, text: str) -> str:
    stripped = part.strip()
    if not stripped or any(letter.isspace() for letter in stripped):
        raise ValueError(f"{text!r} is not a list of nodes")
    return stripped


def _numbers(ranges: str) -> list[str]:
    """Return the numbers of ``01-03,7`` as text."""
    found: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"[{ranges}] is not a list of numbers")
        first, last = match.group(1), match.group(2) or match.group(1)
        if int(last) < int(first):
            raise ValueError(f"{part!r} runs backwards")
        if int(last) - int(first) >= MOST_NODES:
            raise ValueError(f"more than {MOST_NODES} nodes in one list")
        width = len(first)
        found.extend(str(number).zfill(width) for number in range(int(first), int(last) + 1))
    return found
