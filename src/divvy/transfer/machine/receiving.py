"""The receiving side of a transfer, as a pure state machine: who may write which chunk, and what has come.

Of the attempts of a chunk only the newest may write. An attempt asks before each write (`may_write`), so a
rail that comes late, or a transfer that is over, cannot touch the buffer: that is the fence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from divvy.transfer.machine.sending import Answer, Verdict

#: Without any sign of the sender for this long a transfer ends here too.
LEASE_US: Final = 10_000_000


@dataclass(slots=True)
class Receiving:
    """A transfer as its receiver sees it.

    Attributes:
        sizes: Bytes of each chunk.
        epoch: Use of the target buffer that it was opened for.
        limit_us: When it fails, whatever happens.
        lease_us: How long the sender may be silent.
        heard_us: Last sign of the sender.
        accounted: Bytes of chunks that are done, each counted once.
        doubled: Attempts that came for chunks that were done; their bytes were thrown away.
        corrupt: Attempts with a wrong checksum.
        moved: Accounted bytes by rail.
    """

    sizes: Sequence[int]
    epoch: int
    limit_us: int
    heard_us: int
    lease_us: int = LEASE_US
    verdict: Verdict | None = None
    reason: str = ""
    accounted: int = 0
    doubled: int = 0
    corrupt: int = 0
    moved: dict[str, int] = field(default_factory=dict)
    _newest: list[int] = field(default_factory=list)
    _done: bytearray = field(default_factory=bytearray)
    _left: int = 0
    _prefix: int = 0

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self._newest = [0] * len(self.sizes)
        self._done = bytearray(len(self.sizes))
        self._left = len(self.sizes)

    @property
    def prefix(self) -> int:
        """Return how many chunks from the first on are there without a gap."""
        return self._prefix

    @property
    def was_retried(self) -> bool:
        """Return whether some chunk was sent more than once, so that an older attempt may be on the way."""
        return any(number > 1 for number in self._newest)

    def claim(self, chunk: int, number: int, epoch: int, now_us: int) -> Answer | None:
        """Let an attempt begin to write; return None if it may, else what to answer."""
        self.heard_us = max(self.heard_us, now_us)
        if epoch != self.epoch or not 0 <= chunk < len(self.sizes):
            return Answer.STALE
        if self._done[chunk]:
            self.doubled += 1
            return Answer.GOOD
        if self.verdict is not None:
            return Answer.STALE
        if number <= self._newest[chunk]:
            return Answer.OLD
        self._newest[chunk] = number
        return None

    def may_write(self, chunk: int, number: int) -> bool:
        """Return whether an attempt that began may still write."""
        return self.verdict is None and self._newest[chunk] == number and not self._done[chunk]

    def arrived(self, chunk: int, number: int, rail: str, now_us: int, *, intact: bool) -> Answer:
        """Take the end of an attempt; return what to answer."""
        self.heard_us = max(self.heard_us, now_us)
        if self._done[chunk]:
            self.doubled += 1
            return Answer.GOOD
        if self.verdict is not None:
            return Answer.STALE
        if self._newest[chunk] != number:
            return Answer.OLD
        if not intact:
            self.corrupt += 1
            return Answer.CORRUPT
        self._done[chunk] = 1
        self._left -= 1
        self.accounted += self.sizes[chunk]
        self.moved[rail] = self.moved.get(rail, 0) + self.sizes[chunk]
        while self._prefix < len(self.sizes) and self._done[self._prefix]:
            self._prefix += 1
        if not self._left:
            self.verdict = Verdict.DONE
        return Answer.GOOD

    def heartbeat(self, now_us: int) -> None:
        """Note a sign of the sender."""
        self.heard_us = max(self.heard_us, now_us)

    def tick(self, now_us: int) -> None:
        """Let time pass: beyond its limit, or without a sign of the sender for a lease, it fails."""
        if self.verdict is None and now_us >= self.limit_us:
            self.fail("its time limit has passed")
        elif self.verdict is None and now_us - self.heard_us >= self.lease_us:
            self.fail("the sender has fallen silent")

    def fail(self, reason: str) -> None:
        """End it without success; nothing of it may write any more."""
        if self.verdict is None:
            self.verdict, self.reason = Verdict.FAILED, reason
