"""What a slice does for a query: sleep until the table's time is over, or keep a processor busy."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

_BLOCK: Final = b"\0" * 65_536
_CALIBRATION_SECONDS: Final = 0.2


class Line:
    """One model instance: queries one after the other, in order of arrival.

    Slept times are counted from when the one before should have ended, so that late timers do not add up:
    a slice that always has a next query serves exactly as many as its table says.

    Args:
        burn: Runs the processor's work of so many microseconds; None to sleep.
    """

    def __init__(self, burn: Callable[[int], None] | None = None) -> None:
        self._burn = burn
        self._pool = ThreadPoolExecutor(1) if burn is not None else None
        self._turn = asyncio.Lock()
        self._until = 0.0
        self.waiting = 0
        self.served = 0
        self.items = 0
        self.busy_seconds = 0.0
        self.late_seconds = 0.0
        """How much later than due the slept queries ended, all together."""

    async def serve(self, batch: int, time_us: int) -> tuple[float, float]:
        """Serve one query; return seconds waited and seconds run."""
        arrived = time.monotonic()
        self.waiting += 1
        try:
            async with self._turn:
                start = max(arrived, self._until)
                if self._burn is None:
                    self._until = start + time_us / 1e6
                    await asyncio.sleep(self._until - time.monotonic())
                    self.late_seconds += time.monotonic() - self._until
                else:
                    start = time.monotonic()
                    await asyncio.get_running_loop().run_in_executor(self._pool, self._burn, time_us)
                    self._until = time.monotonic()
                self.served += 1
                self.items += batch
                self.busy_seconds += self._until - start
                return start - arrived, self._until - start
        finally:
            self.waiting -= 1


def make_burner() -> Callable[[int], None]:
    """Return what keeps one processor busy for so many microseconds of its time: hashing, calibrated here.

    The same number of blocks is hashed whatever the quota, so that a throttled slice takes longer in
    proportion. Call this before the quota holds.
    """
    blocks, begun = 0, time.thread_time()
    while time.thread_time() - begun < _CALIBRATION_SECONDS:
        hashlib.sha256(_BLOCK)
        blocks += 1
    per_us = blocks / ((time.thread_time() - begun) * 1e6)

    def burn(time_us: int) -> None:
        for _ in range(max(1, round(per_us * time_us))):
            hashlib.sha256(_BLOCK)

    return burn
