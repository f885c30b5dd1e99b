"""JSON read in pieces: the objects of one list of a large document, one after another, with their lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

_CHUNK: Final = 1 << 20
#: No record of Slurm is larger; a document that never closes one is broken.
_LARGEST: Final = 64 << 20
_SPACE: Final = re.compile(r"[\s,]*")
_LIST: Final = re.compile(r'"(jobs|nodes|sinfo)"\s*:\s*\[')


class Found(NamedTuple):
    """One record.

    Attributes:
        kind: Name of the list that it is in: ``jobs``, ``nodes``, ``sinfo``; empty in a bare list.
        value: The record.
        line: Where it begins.
    """

    kind: str
    value: Any
    line: int


class Broken(NamedTuple):
    """A place from which on a document cannot be read."""

    line: int
    text: str


def records(read: Callable[[int], str]) -> Iterator[Found | Broken]:
    """Yield the records of a document of Slurm (``{"jobs": [...]}``) or of a bare list.

    A document that ends too early gives what is whole of it, then `Broken`.

    Args:
        read: Gives so many characters of the document, fewer at its end.
    """
    buffer = _Buffer(read)
    buffer.fill()
    if not buffer.text.strip():
        yield Broken(1, "the document is empty")
        return
    if buffer.text.lstrip().startswith("["):
        buffer.skip(buffer.text.index("[") + 1)
        yield from _items(buffer, "")
        return
    some = False
    while True:
        found = _LIST.search(buffer.text)
        if found is None:
            if not buffer.more(keep=64):
                break
            continue
        some = True
        buffer.skip(found.end())
        yield from _items(buffer, found.group(1))
        if buffer.broken:
            return
    if not some:
        yield Broken(1, 'there is no list "jobs", "nodes" or "sinfo" in the document')


class _Buffer:
    """The part of a document that is being looked at."""

    def __init__(self, read: Callable[[int], str]) -> None:
        self._read = read
        self.text = ""
        self.line = 1
        self.broken = False

    def fill(self) -> bool:
        """Add a chunk; return whether there was any."""
        chunk = self._read(_CHUNK)
        self.text += chunk
        return bool(chunk)

    def skip(self, count: int) -> None:
        """Drop what has been read."""
        self.line += self.text.count("\n", 0, count)
        self.text = self.text[count:]

    def more(self, keep: int) -> bool:
        """Drop all but the last characters and add a chunk; return whether there was any."""
        self.skip(max(len(self.text) - keep, 0))
        return self.fill()


def _items(buffer: _Buffer, kind: str) -> Iterator[Found | Broken]:
    decode = json.JSONDecoder().raw_decode
    place = 0
    while True:
        blank = _SPACE.match(buffer.text, place)
        place = blank.end() if blank is not None else place
        if place < len(buffer.text) and buffer.text[place] == "]":
            buffer.skip(place + 1)
            return
        try:
            value, end = decode(buffer.text, place)
        except (ValueError, RecursionError) as error:
            buffer.skip(place)
            place = 0
            if isinstance(error, ValueError) and len(buffer.text) < _LARGEST and buffer.fill():
                continue
            buffer.broken = True
            yield Broken(buffer.line, f"the document cannot be read from here on: {error}")
            return
        line = buffer.line + buffer.text.count("\n", 0, place)
        yield Found(kind, value, line)
        if end > _CHUNK // 4:
            buffer.skip(end)
            end = 0
        place = end
