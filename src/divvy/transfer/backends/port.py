"""The port: what a transfer needs of a back end. A back end knows nothing of transfers, rails or retries."""

from __future__ import annotations

from typing import Any, Protocol

from divvy.transfer.places import Region
from divvy.transfer.wire import Head, Line


class Mover(Protocol):
    """Moves the bytes of chunks over one rail to one peer."""

    def send(self, line: Line, head: Head, region: Region, views: list[memoryview], spots: Spots) -> None:
        """Bring the bytes of a chunk to the other side, header with them.

        Args:
            line: The connection of the rail.
            head: Header of the chunk.
            region: Source buffer.
            views: Its bytes.
            spots: Where they go, for back ends that write into the other side's memory.

        Raises:
            OSError: If the rail fails; nothing of this call may be written later than the rail's fence.
        """

    def finish(self, line: Line, most: int) -> int:
        """Wait until at most `most` chunks are on the way, and return how many have ended meanwhile."""

    def close(self) -> None:
        """Give up what the rail holds."""


class Spots(Protocol):
    """Where the bytes of a chunk go on the other side."""

    def addresses(self, chunk: int) -> list[tuple[int, int]]:
        """Return (address, bytes) of each fragment."""

    @property
    def facts(self) -> dict[str, Any]:
        """Return what the other side said of its buffer."""
