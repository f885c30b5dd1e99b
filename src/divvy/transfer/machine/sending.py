"""The sending side of a transfer, as a pure state machine: time comes in as microseconds.

A chunk is pending, on the way (one or more attempts), or done. It is done by the first good answer, whatever
rail or attempt brings it; every other answer is counted and changes nothing. Attempts are numbered per
chunk, and the receiver lets only the newest one write, so an old one can neither corrupt nor be counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from divvy.transfer.machine.rails import Rail, worth

MOST_CORRUPT: Final = 16
#: Bytes on the way on a rail are at most what it moves in this time (or two chunks).
_QUEUE_US: Final = 40_000
#: With no rail for this long the peer is dead.
DEAD_US: Final = 3_000_000


class Verdict(StrEnum):
    """How a transfer ended."""

    DONE = "done"
    FAILED = "failed"


class Answer(StrEnum):
    """What the receiver says of one attempt."""

    GOOD = "good"
    CORRUPT = "corrupt"
    OLD = "old"
    STALE = "stale"


class Attempt(NamedTuple):
    """One chunk on one rail.

    Attributes:
        chunk: Number of the chunk.
        number: Attempt of that chunk, from 1.
        rail: Name of the rail.
        size: Bytes.
    """

    chunk: int
    number: int
    rail: str
    size: int


@dataclass(slots=True)
class Counts:
    """What happened on the way.

    Attributes:
        retries: Attempts beyond the first of their chunk.
        corrupt: Attempts whose checksum was wrong.
        late: Answers for chunks that were done already, or for attempts that had been given up.
        rerouted: Chunks that were given to another rail than the one they had been on.
        reroute_us: Longest time from the last sign of a rail to its chunks being free for others.
    """

    retries: int = 0
    corrupt: int = 0
    late: int = 0
    rerouted: int = 0
    reroute_us: int = 0


@dataclass(slots=True)
class Sending:
    """A transfer as its sender sees it.

    Attributes:
        sizes: Bytes of each chunk.
        rails: The rails to the peer, shared by all transfers to it, by name.
        started_us: When it began.
        limit_us: When it fails, whatever happens.
        allowed: Rails that the planner chose; the others are taken only when none of these lives.
        released: Chunks that may be sent: those below this number.
        window: Most bytes on the way on one rail.
    """

    sizes: Sequence[int]
    rails: dict[str, Rail]
    started_us: int
    limit_us: int
    allowed: frozenset[str] = frozenset()
    released: int = -1
    window: int = 8 << 20
    counts: Counts = field(default_factory=Counts)
    moved: dict[str, int] = field(default_factory=dict)
    verdict: Verdict | None = None
    reason: str = ""
    ended_us: int = 0
    _pending: list[int] = field(default_factory=list)
    _waiting: int = 0
    _ways: dict[int, dict[int, str]] = field(default_factory=dict)
    _tries: list[int] = field(default_factory=list)
    _done: bytearray = field(default_factory=bytearray)
    _left: int = 0
    _avoid: dict[int, str] = field(default_factory=dict)
    _dark_us: int = -1
    _given_up: dict[tuple[int, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Put every chunk among the pending ones."""
        count = len(self.sizes)
        self.released = count if self.released < 0 else self.released
        self._pending = list(range(count))
        heapify(self._pending)
        self._waiting = sum(self.sizes)
        self._tries = [0] * count
        self._done = bytearray(count)
        self._left = count

    @property
    def left(self) -> int:
        """Return how many chunks are not done."""
        return self._left

    @property
    def accounted(self) -> int:
        """Return the bytes of chunks that are done, each counted once."""
        return sum(self.moved.values())

    def release(self, count: int) -> None:
        """Let the chunks below a number be sent."""
        self.released = max(self.released, min(count, len(self.sizes)))

    def take(self, name: str, now_us: int) -> Attempt | None:
        """Return the attempt that a free rail shall make now, None where it shall wait."""
        rail = self.rails[name]
        if self.verdict is not None or not rail.usable:
            return None
        self._settle()
        if not self._pending or self._pending[0] >= self.released:
            return None
        chunk = self._pending[0]
        size = self.sizes[chunk]
        if not self._may(rail, chunk, size):
            return None
        heappop(self._pending)
        self._waiting -= size
        self._tries[chunk] += 1
        self.counts.retries += self._tries[chunk] > 1
        if self._avoid.pop(chunk, name) != name:
            self.counts.rerouted += 1
        self._ways.setdefault(chunk, {})[self._tries[chunk]] = name
        rail.took(size, now_us)
        return Attempt(chunk, self._tries[chunk], name, size)

    def _may(self, rail: Rail, chunk: int, size: int) -> bool:
        """Return whether a rail with room shall take a chunk, or leave it to others."""
        if rail.inflight and rail.inflight + size > min(
            self.window, max(2 * size, int(rail.rate * _QUEUE_US))
        ):
            return False
        others, avoided = self._others(rail.name), self._avoid.get(chunk)
        is_spare = bool(self.allowed) and rail.name not in self.allowed
        if others and (avoided == rail.name or (is_spare and others[0].name in self.allowed)):
            return False
        # It failed on another rail: this one takes it, even if that one stands again and would be faster.
        if avoided is not None:
            return True
        ready = self._waiting if self.released >= len(self.sizes) else self._ready()
        return worth(rail, others, size, ready)

    def _others(self, name: str) -> list[Rail]:
        others = [r for r in self.rails.values() if r.name != name and r.usable]
        chosen = [r for r in others if r.name in self.allowed]
        return chosen if name in self.allowed or chosen else others

    def _ready(self) -> int:
        return sum(self.sizes[c] for c in self._pending if c < self.released)

    def _settle(self) -> None:
        while self._pending and self._done[self._pending[0]]:
            heappop(self._pending)

    def answered(self, chunk: int, number: int, answer: Answer, now_us: int) -> None:
        """Take what the receiver said of an attempt; unknown and second answers are only counted."""
        if not 0 <= chunk < len(self.sizes):
            self.counts.late += 1
            return
        size = self.sizes[chunk]
        name = self._ways.get(chunk, {}).pop(number, None)
        if name is None:
            self.counts.late += 1
        else:
            rail = self.rails[name]
            rail.answered(size, now_us)
            rail.suspect = False
        if self.verdict is not None or self._done[chunk] or not 1 <= number <= self._tries[chunk]:
            return
        if answer is Answer.GOOD:
            self._finish(chunk, name or self._given_up.get((chunk, number), "unknown"), now_us)
        elif answer is Answer.STALE:
            self.fail("the target buffer has moved on to another use", now_us)
        elif name is not None:
            self.counts.corrupt += answer is Answer.CORRUPT
            if self.counts.corrupt > MOST_CORRUPT + len(self.sizes) // 8:
                self.fail("too many chunks arrived with a wrong checksum", now_us)
            elif not self._ways[chunk]:
                self._again(chunk)

    def _finish(self, chunk: int, name: str, now_us: int) -> None:
        self._done[chunk] = 1
        if chunk in self._pending:
            self._pending.remove(chunk)
            heapify(self._pending)
            self._waiting -= self.sizes[chunk]
        self._left -= 1
        self.moved[name] = self.moved.get(name, 0) + self.sizes[chunk]
        if not self._left:
            self.verdict, self.ended_us = Verdict.DONE, now_us

    def _again(self, chunk: int) -> None:
        if not self._done[chunk] and chunk not in self._pending:
            heappush(self._pending, chunk)
            self._waiting += self.sizes[chunk]

    def dropped(self, name: str, now_us: int) -> int:
        """Give what is on the way on a rail to the others; return how many chunks.

        To be called when the rail broke or became suspect, and late writes by it are fenced.
        """
        rail, count = self.rails[name], 0
        for chunk, ways in self._ways.items():
            for number in [n for n, r in ways.items() if r == name]:
                del ways[number]
                self._given_up[chunk, number] = name
                rail.forgot(self.sizes[chunk])
                if not self._done[chunk] and not ways and self.verdict is None:
                    self._avoid[chunk] = name
                    self._again(chunk)
                    count += 1
        if count:
            self.counts.reroute_us = max(self.counts.reroute_us, now_us - rail.heard_us)
        return count

    def uses(self, name: str) -> bool:
        """Return whether something of this transfer is on the way on a rail."""
        return any(name in ways.values() for ways in self._ways.values())

    def tick(self, now_us: int) -> None:
        """Let time pass: a transfer beyond its limit, or without any rail for too long, fails."""
        if self.verdict is not None:
            return
        if any(rail.up and not rail.suspect for rail in self.rails.values()):
            self._dark_us = -1
        elif self._dark_us < 0:
            self._dark_us = now_us
        if now_us >= self.limit_us:
            self.fail("its time limit has passed", now_us)
        elif 0 <= self._dark_us <= now_us - DEAD_US:
            self.fail("the peer answers on no rail", now_us)

    def fail(self, reason: str, now_us: int) -> None:
        """End it without success."""
        if self.verdict is None:
            self.verdict, self.reason, self.ended_us = Verdict.FAILED, reason, now_us
