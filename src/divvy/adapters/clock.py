"""The clock: wall time at the start, monotonic from there; setting the wall clock moves nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final, NamedTuple

_TOLERANCE_MS: Final = 2_000


class Instant(NamedTuple):
    """A moment as three clocks tell it.

    Attributes:
        wall: ms since the Unix epoch by the wall clock.
        boot: Which boot of the machine `uptime` counts in.
        uptime: ms since that boot, sleep included; never set by anybody.
    """

    wall: int
    boot: str
    uptime: int


def read_instant() -> Instant:
    """Return this moment."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return Instant(time.time_ns() // 1_000_000, boot, _uptime())


def _uptime() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def resume_at(last: int, boot: str, uptime: int, here: Instant) -> int:
    """Return the time at which a clock goes on that stood at ``last`` when ``boot`` was ``uptime`` old.

    In the same boot the machine itself knows how long ago that was, whatever has been done to the wall
    clock since. After a reboot the wall clock is all there is, but time never goes backwards.
    """
    if boot and boot == here.boot and here.uptime >= uptime:
        return last + here.uptime - uptime
    return max(last, here.wall)


class SteadyClock:
    """Time in ms since the Unix epoch that never goes backwards and never jumps.

    Args:
        start: Time to begin with.
        here: When that was.
    """

    def __init__(self, start: int, here: Instant) -> None:
        self._boot = here.boot
        self._offset = start - here.uptime
        self._reported = start - here.wall

    def now(self) -> int:
        """Return the time."""
        return self._offset + _uptime()

    def stamp(self) -> tuple[int, str, int]:
        """Return the time, the boot and its age at one instant: what `resume_at` goes on from, to the ms."""
        uptime = _uptime()
        return self._offset + uptime, self._boot, uptime

    def offset(self) -> int:
        """Return the wall clock minus this clock, ms."""
        return time.time_ns() // 1_000_000 - self.now()

    def jumped(self) -> int:
        """Return by how much the wall clock was set since the last call that returned other than 0."""
        offset = self.offset()
        step = offset + self._reported
        if abs(step) < _TOLERANCE_MS:
            return 0
        self._reported = -offset
        return step
