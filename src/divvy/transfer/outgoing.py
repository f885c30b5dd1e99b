"""One transfer that goes out: its machine, its source bytes, and when those may be given back."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from divvy.perf.transfer import Prediction
from divvy.transfer.incoming import now_us
from divvy.transfer.interfaces import Passed
from divvy.transfer.machine.cut import Chunk
from divvy.transfer.machine.sending import Attempt, Sending
from divvy.transfer.places import Region


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of a transfer besides its bytes.

    Attributes:
        priority: Higher goes first.
        deadline_us: When it should be there; among equals the earliest goes first. None means no deadline.
        account: Who pays.
        limit_s: When it fails, whatever happens; None lets the prediction decide.
        layered: Whether descriptors are released one after the other.
        backend: ``tcp``, ``nixl`` or ``local``; empty lets the agent choose.
    """

    priority: int = 0
    deadline_us: int | None = None
    account: str = ""
    limit_s: float | None = None
    layered: bool = False
    backend: str = ""


@dataclass(slots=True)
class Outgoing:
    """A transfer that goes out.

    Attributes:
        number: Number of the transfer, the same on both sides.
        region: Source buffer.
        chunks: How it is cut.
        machine: Its state.
        wish: What is wanted of it.
        epoch: Use of the target buffer that it was opened for.
        descriptors: How many there were before coalescing.
        prediction: How long it should take.
        routes: Rails that the planner chose.
        began_us: When it was asked for.
        pieces: Fragments on the wire, after coalescing.
        alone: Whether no other transfer of this agent ran meanwhile.
        readers: Threads that read the source bytes now.
        before: Counters of the interfaces at the start.
        own_before: Bytes that this agent had given to each rail at the start.
        facts: Further words for the report.
    """

    number: int
    region: Region
    chunks: Sequence[Chunk]
    machine: Sending
    wish: Wish
    epoch: int
    descriptors: int
    prediction: Prediction
    routes: tuple[str, ...]
    began_us: int
    pieces: int = 1
    alone: bool = True
    readers: int = 0
    before: dict[str, Passed] = field(default_factory=dict)
    own_before: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def key(self) -> tuple[int, int, int]:
        """Return the order in which transfers are served."""
        wish = self.wish
        return (-wish.priority, wish.deadline_us if wish.deadline_us is not None else 1 << 62, self.began_us)

    def views(self, attempt: Attempt) -> list[memoryview]:
        """Return the source bytes of an attempt."""
        return self.region.slices(self.chunks[attempt.chunk].fragments, source=True)

    def addresses(self, chunk: int) -> list[tuple[int, int]]:
        """Return (address, bytes) of the fragments of a chunk on the other side."""
        base = int(self.facts["address"])
        return [(base + f.target, f.size) for f in self.chunks[chunk].fragments]

    def release_to(self, descriptors: int) -> None:
        """Let the chunks of the first `descriptors` descriptors be sent."""
        count = 0
        while count < len(self.chunks) and self.chunks[count].last < descriptors:
            count += 1
        self.machine.release(count)

    def tick(self) -> None:
        """Let time pass."""
        self.machine.tick(now_us())
