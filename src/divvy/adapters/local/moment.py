"""When something happened, in the state's time, from what the clocks of this machine said then."""

from __future__ import annotations

from typing import Any

from divvy.adapters.local.shim.clocks import steady_ms, wall_ms
from divvy.control.ports import Clock


class Timekeeper:
    """Turns the times in records into times of the state.

    The state's clock never jumps and the wall clock may. Both the record and this process can read a clock
    of the machine that nobody sets, so within one boot the answer is exact, however often it is asked and
    by however many engines in turn. Beyond a boot the wall clock is all there is.

    Args:
        clock: The state's clock.
        boot: Name of this boot.
    """

    def __init__(self, clock: Clock, boot: str) -> None:
        self.boot = boot
        self._clock = clock

    def of(self, record: dict[str, Any], what: str) -> int:
        """Return the time of ``what`` (``started``, ``ended``) in a record, ms; never in the future."""
        if record["boot_id"] == self.boot:
            return int(record[f"{what}_steady_ms"]) + self._offset()
        return min(int(record[f"{what}_ms"]), self._clock.now())

    def of_file(self, wall: int) -> int:
        """Return the time of a file's change, which only the wall clock knows, ms."""
        return min(self._clock.now() - wall_ms() + wall, self._clock.now())

    def _offset(self) -> int:
        """Return the state's clock minus the machine's, both read in the same millisecond."""
        while True:
            before = steady_ms()
            now = self._clock.now()
            if steady_ms() == before:
                return now - before
