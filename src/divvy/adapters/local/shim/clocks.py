"""The clocks of the machine: one that people set, one that nobody sets, and the boot in which it counts."""

from __future__ import annotations

import time


def wall_ms() -> int:
    """Return the wall clock, ms since the Unix epoch."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Return ms since the boot by a clock that nobody sets and that also runs while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def boot_id() -> str:
    """Return the name of this boot of the machine, in which `steady_ms` counts."""
    with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
        return file.read().strip()
