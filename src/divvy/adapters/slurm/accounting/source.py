"""Files as lines and characters: gzip, UTF-16, bytes that are no UTF-8, line ends of Windows."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

HEAD_BYTES: Final = 1 << 18
_GZIP: Final = b"\x1f\x8b"
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_UTF8: Final = b"\xef\xbb\xbf"
_STRAY: Final = re.compile("[\udc80-\udcff]")
_OFFSET: Final = 0xDC00


class Source:
    """One file, of which the beginning can be seen before it is read.

    Args:
        name: What people call it.
        stream: Its bytes; it is not closed here.
        stray: Told the lines that hold bytes which are no UTF-8; they are read as Latin-1.
    """

    def __init__(self, name: str, stream: BinaryIO, stray: Callable[[int], None]) -> None:
        self.name = name
        self._stray = stray
        first = stream.read(2)
        whole: BinaryIO = io.BufferedReader(_Again(first, stream))
        if first == _GZIP:
            whole = io.BufferedReader(gzip.GzipFile(fileobj=whole))
        head = whole.read(HEAD_BYTES)
        self._encoding = "utf-16" if head[:2] in _UTF16 else "utf-8-sig" if head[:3] == _UTF8 else "utf-8"
        self._bytes: BinaryIO = io.BufferedReader(_Again(head, whole))
        self.head = head.decode(self._encoding, errors="replace")
        self.whole_head = len(head) < HEAD_BYTES
        self._old_ends = "\n" not in self.head and "\r" in self.head

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield every line without its end, with its number from 1."""
        if self._encoding == "utf-16" or self._old_ends:
            for number, line in enumerate(self._text(), 1):
                yield number, line.rstrip("\r\n")
            return
        for number, raw in enumerate(self._bytes, 1):
            try:
                line = raw.decode()
            except UnicodeDecodeError:
                self._stray(number)
                line = _latin(raw.decode(errors="surrogateescape"))
            if number == 1:
                line = line.removeprefix("\ufeff")
            yield number, line.rstrip("\r\n")

    def characters(self) -> Callable[[int], str]:
        """Return a function that gives so many characters at a time."""
        text = self._text()
        line = 1

        def read(count: int) -> str:
            nonlocal line
            chunk = text.read(count)
            found = _STRAY.search(chunk)
            if found is not None:
                self._stray(line + chunk.count("\n", 0, found.start()))
                chunk = _latin(chunk)
            line += chunk.count("\n")
            return chunk

        return read

    def _text(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(self._bytes, self._encoding, errors="surrogateescape", newline=None)


class _Again(io.RawIOBase):
    """Gives what was read already, then the rest of a stream."""

    def __init__(self, first: bytes, rest: BinaryIO) -> None:
        self._first, self._rest = first, rest

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the buffer that BufferedReader gives
        """Read into a buffer."""
        data = self._first[: len(buffer)] if self._first else self._rest.read(len(buffer))
        self._first = self._first[len(data) :]
        buffer[: len(data)] = data
        return len(data)


def _latin(text: str) -> str:
    """Return text in which every byte that was no UTF-8 is the letter that it is in Latin-1."""
    return _STRAY.sub(lambda found: chr(ord(found.group()) - _OFFSET), text)
