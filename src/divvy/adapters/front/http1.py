"""The little of HTTP/1.1 that the front needs, on buffers: heads, lengths, chunks; strict about limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

HEAD_END: Final = b"\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
MOST_HEAD: Final = 32 << 10
#: Of a length that only the end of the chunks will tell.
CHUNKED: Final = -1
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
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
        return self.fields.get(b"connection", b"").lower() != b"close"


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
        if key == b"content-length" and fields.get(key, value.strip()) != value.strip():
            raise ValueError("two lengths")
        fields[key] = value.strip()
    if b"transfer-encoding" in fields:
        if b"content-length" in fields:
            raise ValueError("a length and chunks")
        return Head((one, two, three), fields, CHUNKED)
    text = fields.get(b"content-length", b"0")
    if not text.isdigit():
        raise ValueError("a length that is no number")
    return Head((one, two, three), fields, int(text))


def whole_body(buffer: bytes, length: int) -> bytes | None:
    """Return the body once it is all there (chunks joined), else None.

    Raises:
        ValueError: If the chunks are damaged.
    """
    if length != CHUNKED:
        return buffer[:length] if len(buffer) >= length else None
    if not buffer.endswith(_LAST_CHUNK):
        return None
    parts: list[bytes] = []
    rest = buffer
    while True:
        size, _, rest = rest.partition(b"\r\n")
        count = int(size.partition(b";")[0], 16)
        if count == 0:
            return b"".join(parts)
        parts.append(rest[:count])
        rest = rest[count + 2 :]


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
        document: Any = json.loads(body if binary is None else body[: int(binary)])
        batch = document["inputs"][0]["shape"][0]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"not an inference request: {error}") from error
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ValueError(f"the batch is {batch!r}")
    return batch
