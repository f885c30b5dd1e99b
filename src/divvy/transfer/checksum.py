"""The checksum of a chunk: XXH3, 64 bits, over its fragments in order (the interpreter is free meanwhile)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import xxhash

NAME: Final = "xxh3-64"


def checksum(fragments: Iterable[memoryview | bytes]) -> int:
    """Return the checksum of fragments laid end to end."""
    parts = list(fragments)
    if len(parts) == 1:
        return xxhash.xxh3_64_intdigest(parts[0])
    total = xxhash.xxh3_64()
    for part in parts:
        total.update(part)
    return total.intdigest()
