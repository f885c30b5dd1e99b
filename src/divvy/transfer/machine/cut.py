"""How the descriptors of a transfer are coalesced and cut into chunks; the same on both sides.

Neighbours on both sides are joined first, then fragments are packed into chunks of at most `chunk_bytes`
and at most `budget` fragments: a chunk is what is sent, checksummed, accounted and sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from divvy.errors import Fault, InputError

MOST_DESCRIPTORS: Final = 1_048_576
LEAST_CHUNK: Final = 64 << 10
MOST_CHUNK: Final = 4 << 20
#: Fragments of one chunk: more are gathered by one call no longer (the kernel's limit is 1024).
BUDGET: Final = 512
_PARTS: Final = 64


class Descriptor(NamedTuple):
    """A run of bytes to be moved.

    Attributes:
        source: Offset in the source region.
        target: Offset in the target region.
        size: Bytes.
    """

    source: int
    target: int
    size: int


class Chunk(NamedTuple):
    """What travels as one.

    Attributes:
        number: From 0 on.
        size: Bytes of all fragments.
        fragments: Runs of bytes; consecutive in the order of the descriptors.
        last: Index of the last descriptor that has bytes in it.
    """

    number: int
    size: int
    fragments: tuple[Descriptor, ...]
    last: int


def chunk_bytes(total: int) -> int:
    """Return the size of a chunk for a transfer of `total` bytes: about 64 of them, 64 KiB to 4 MiB."""
    size = LEAST_CHUNK
    while size < MOST_CHUNK and size * _PARTS < total:
        size *= 2
    return size


def check(descriptors: Sequence[Descriptor], source_size: int, target_size: int) -> None:
    """Check that descriptors lie inside their regions and do not overlap in the target.

    Raises:
        InputError: With every fault, at most ten.
    """
    if not descriptors or len(descriptors) > MOST_DESCRIPTORS:
        raise InputError.one(
            "descriptors",
            f"{len(descriptors)} descriptors",
            path="descriptors",
            allowed=f"1 to {MOST_DESCRIPTORS}",
        )
    faults: list[Fault] = []
    for i, (source, target, size) in enumerate(descriptors):
        if size <= 0 or source < 0 or target < 0:
            faults.append(Fault("descriptor", f"descriptors[{i}]", f"{size} bytes at {source} -> {target}"))
        elif source + size > source_size or target + size > target_size:
            text = f"bytes {source}+{size} -> {target}+{size} do not fit {source_size} -> {target_size}"
            faults.append(Fault("descriptor-outside", f"descriptors[{i}]", text))
    end = 0
    for target, size, i in sorted((d.target, d.size, i) for i, d in enumerate(descriptors)):
        if target < end and not faults:
            text = f"bytes at {target} are written twice"
            faults.append(
                Fault("descriptor-overlap", f"descriptors[{i}]", text, "targets that do not overlap")
            )
        end = max(end, target + size)
    if faults:
        raise InputError(f"{len(faults)} descriptors cannot be moved", faults[:10])


def cut(
    descriptors: Sequence[Descriptor], size_bytes: int, budget: int = BUDGET, *, layered: bool = False
) -> list[Chunk]:
    """Return the chunks of a transfer.

    Args:
        descriptors: What is moved, in the order in which it is released.
        size_bytes: Most bytes of a chunk.
        budget: Most fragments of a chunk.
        layered: Whether descriptors are released one after the other; then no chunk holds bytes of two.
    """
    chunks: list[Chunk] = []
    fragments: list[Descriptor] = []
    filled, last = 0, 0

    def close() -> None:
        nonlocal fragments, filled
        if fragments:
            chunks.append(Chunk(len(chunks), filled, tuple(fragments), last))
        fragments, filled = [], 0

    for index, (start, goal, length) in enumerate(descriptors):
        source, target, size = start, goal, length
        if layered:
            close()
        while size:
            if filled == size_bytes:
                close()
            take = min(size, size_bytes - filled)
            before = fragments[-1] if fragments else None
            if before and before.source + before.size == source and before.target + before.size == target:
                fragments[-1] = Descriptor(before.source, before.target, before.size + take)
            else:
                if len(fragments) == budget:
                    close()
                    take = min(size, size_bytes)
                fragments.append(Descriptor(source, target, take))
            filled, last = filled + take, index
            source, target, size = source + take, target + take, size - take
    close()
    return chunks
