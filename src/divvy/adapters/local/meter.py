"""How busy devices are: GPUs by NVML, CPU slots by the CPU time of the runs that hold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from divvy.adapters.local.cgroup import Containment
from divvy.adapters.local.nvml import Gauge
from divvy.adapters.local.order import run_key
from divvy.adapters.local.shim.clocks import steady_ms

#: Shortest time between two readings; more often, the last answer is given again.
INTERVAL_MS: Final = 1_000

#: Share of the time in which a device was busy, 0 to 1; or None and why it is not known.
Busy = tuple[float | None, str]

_FREE: Final = "free: a CPU slot is measured by the run that holds it"
_FIRST: Final = "the first reading is still to come"


class Holding(NamedTuple):
    """A device, by its node and its place there, and the run that holds it; `job` is empty if none does."""

    node: str
    place: int
    ordinal: int
    uuid: str
    job: str
    attempt: int


class Meter:
    """Measures devices.

    Args:
        containment: Where runs have their cgroups.
        now: A clock that nobody sets, ms.
        gauge: Makes the reader of GPUs; called when the first GPU is measured.
    """

    def __init__(
        self,
        containment: Containment,
        now: Callable[[], int] = steady_ms,
        gauge: Callable[[], Gauge] = Gauge,
    ) -> None:
        self._containment = containment
        self._now = now
        self._make_gauge = gauge
        self._gauge: Gauge | None = None
        self._read_at = -INTERVAL_MS
        self._used: dict[str, int] = {}
        self._busy: dict[str, Busy] = {}

    def read(self, holdings: Sequence[Holding]) -> list[Busy]:
        """Return how busy each device is, over the time since the last reading."""
        now = self._now()
        passed = now - self._read_at
        if passed >= INTERVAL_MS:
            self._measure(holdings, passed)
            self._read_at = now
        subjects = [_subject(held) for held in holdings]
        return [self._busy.get(subject, (None, _FIRST if subject else _FREE)) for subject in subjects]

    def _measure(self, holdings: Sequence[Holding], passed: int) -> None:
        slots = Counter(_subject(held) for held in holdings if not held.uuid and held.job)
        used = {key: self._cpu_us(key) for key in slots}
        self._busy = {
            key: self._share(self._used.get(key), used[key], count * passed) for key, count in slots.items()
        }
        self._used = {key: total for key, total in used.items() if total is not None}
        for held in holdings:
            if held.uuid:
                self._busy[held.uuid] = self._gpu(held.ordinal)

    def _share(self, before: int | None, total: int | None, slot_ms: int) -> Busy:
        if total is None:
            reason = self._containment.reasons.get("track", "no cgroup")
            return None, f"CPU time is not counted here: {reason}"
        if before is None:
            return None, _FIRST
        return min(1.0, max(0, total - before) / 1000 / slot_ms), ""

    def _cpu_us(self, key: str) -> int | None:
        """Return the CPU time of a run so far, microseconds; None where the kernel does not count it."""
        for what in ("track", "cpu"):
            base = self._containment.base.get(what)
            if base is None:
                continue
            try:
                return _read_cpu_us(base / key)
            except OSError:
                continue  # no such file in this version, or the run is just over
        return None

    def _gpu(self, ordinal: int) -> Busy:
        if self._gauge is None:
            self._gauge = self._make_gauge()
        return self._gauge.read(ordinal)


def _subject(held: Holding) -> str:
    """Return what is measured for a device: the GPU itself, or the run on a CPU slot."""
    if held.uuid:
        return held.uuid
    return run_key(held.job, held.attempt) if held.job else ""


def _read_cpu_us(group: Path) -> int:
    """Return the CPU time of a cgroup: v2 counts in every cgroup, v1 beside its cpu controller."""
    stat = group / "cpu.stat"
    words = dict(line.split(None, 1) for line in stat.read_text(encoding="ascii").splitlines())
    if "usage_usec" in words:
        return int(words["usage_usec"])
    return int((group / "cpuacct.usage").read_text(encoding="ascii")) // 1000
