"""The little of HTTP/1.1 that the front needs, on buffers: heads, lengths, chunks; strict about limits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

HEAD_END: Final = b"\r\n\r\n"
MOST_HEAD: Final = 32 << 10
_MOST_SIZE_LINE: Final = 1 << 10
#: Fields that decide where a message ends: two different values are an attack on whoever reads the other.
_ONCE: Final = frozenset((b"content-length", b"transfer-encoding", b"host"))
_SIZE: Final = re.compile(rb"[0-9a-fA-F]{1,8}")
#: Of a length that only the end of the chunks will tell.
CHUNKED: Final = -1
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a message: its first line in three parts, its fields by lower-case name, its length."""

    line: tuple[bytes, bytes, bytes]
    fields: Mapping[bytes, bytes]
    length: int

    @property
    def keeps(self) -> bool:
        """Return whether the connection can be used again."""
        wish = self.fields.get(b"connection", b"").lower()
        return wish == b"keep-alive" if b"HTTP/1.0" in self.line else wish != b"close"


def read_head(data: bytes) -> Head:
    """Return the head in the bytes before the empty line.

    Raises:
        ValueError: If it is none.
    """
    first, *lines = data.split(b"\r\n")
    one, two, three = [*first.split(b" ", 2), b""][:3] if first.count(b" ") == 1 else first.split(b" ", 2)
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise ValueError("a header line without a name")
        key = name.lower()
        if key in _ONCE and fields.get(key, value.strip()) != value.strip():
            raise ValueError(f"two values of {key.decode()}")
        fields[key] = value.strip()
    if b"transfer-encoding" in fields:
        if b"content-length" in fields:
            raise ValueError("a length and chunks")
        if fields[b"transfer-encoding"].lower() != b"chunked":
            raise ValueError("an encoding other than chunked")
        return Head((one, two, three), fields, CHUNKED)
    text = fields.get(b"content-length", b"0")
    if not text.isdigit():
        raise ValueError("a length that is no number")
    return Head((one, two, three), fields, int(text))


@dataclass(slots=True)
class Chunks:
    """How far the chunks of a body were read: each is looked at once, however small the parts it comes in."""

    place: int = 0
    parts: list[bytes] = field(default_factory=list)


def split_body(
    buffer: bytes | bytearray, length: int, seen: Chunks | None = None
) -> tuple[bytes, bytes] | None:
    """Return the body once it is all there (chunks joined) and what comes behind it, else None.

    Args:
        buffer: What has come, from the body's first byte on.
        length: Of the body, or `CHUNKED`.
        seen: How far chunks were read when less had come; None reads from the beginning.

    Raises:
        ValueError: If the chunks are damaged.
    """
    if length != CHUNKED:
        return (bytes(buffer[:length]), bytes(buffer[length:])) if len(buffer) >= length else None
    seen = seen or Chunks()
    while True:
        place = seen.place
        end = buffer.find(b"\r\n", place)
        if end < 0:
            if len(buffer) - place > _MOST_SIZE_LINE:
                raise ValueError("a chunk without its size")
            return None
        size = _SIZE.fullmatch(bytes(buffer[place:end]).partition(b";")[0].strip())
        if size is None:
            raise ValueError("a chunk whose size is no number")
        count, place = int(size[0], 16), end + 2
        if count == 0:
            return _past_trailer(b"".join(seen.parts), buffer, place)
        if len(buffer) < place + count + 2:
            return None
        if buffer[place + count : place + count + 2] != b"\r\n":
            raise ValueError("a chunk longer than its size")
        seen.parts.append(bytes(buffer[place : place + count]))
        seen.place = place + count + 2


def _past_trailer(body: bytes, buffer: bytes | bytearray, place: int) -> tuple[bytes, bytes] | None:
    """Return a body and what comes behind the fields at its end, which nobody reads."""
    if buffer[place : place + 2] == b"\r\n":
        return body, bytes(buffer[place + 2 :])
    end = buffer.find(HEAD_END, place)
    if end < 0 and len(buffer) - place > MOST_HEAD:
        raise ValueError("fields without an end behind the chunks")
    return None if end < 0 else (body, bytes(buffer[end + 4 :]))


def whole_body(buffer: bytes | bytearray, length: int, seen: Chunks | None = None) -> bytes | None:
    """Return the body once it is all there (chunks joined), else None.

    Raises:
        ValueError: If the chunks are damaged.
    """
    split = split_body(buffer, length, seen)
    return None if split is None else split[0]


def answer(status: int, body: bytes, kind: str = "application/json", more: str = "") -> bytes:
    """Return a whole answer; `more` are further header lines, each ended."""
    reason = _REASONS.get(status, "Answer")
    return (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    ).encode() + body


def refuse(status: int, text: str, more: str = "") -> bytes:
    """Return an answer with an error, as the protocol words it."""
    return answer(status, json.dumps({"error": text}).encode(), more=more)


def batch_of(head: Head, body: bytes) -> int:
    """Return the batch dimension of an inference request.

    Raises:
        ValueError: If it is no such request.
    """
    binary = head.fields.get(b"inference-header-content-length")
    try:
        if binary is not None and not (binary.isdigit() and int(binary) <= len(body)):
            raise ValueError("inference-header-content-length is beyond the body")  # noqa: TRY301 - one answer
        document: Any = json.loads(body if binary is None else body[: int(binary)])
        batch = document["inputs"][0]["shape"][0]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise ValueError(f"not an inference request: {error}") from error
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ValueError(f"the batch is {batch!r}")
    return batch
