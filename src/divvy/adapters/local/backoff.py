"""Patience with a machine that cannot start runs: wait, try one, wait longer."""

from __future__ import annotations

from typing import Final

from divvy.units import MINUTE, SECOND

_FIRST_MS: Final = SECOND
_LONGEST_MS: Final = MINUTE


class Backoff:
    """Holds all starts back after one failed for a reason that lies in the machine.

    When the wait is over a single run is tried; its success opens the door for all, its failure doubles
    the wait. So a full disk costs one failed start a minute, not a storm of them, and no job is lost.
    Times are ms of a monotonic clock.
    """

    def __init__(self) -> None:
        self.wait_ms = 0
        self._until = 0
        self._trial = ""

    def open(self, now: int) -> bool:
        """Return whether a run may be started now."""
        return not self.wait_ms or (now >= self._until and not self._trial)

    def trying(self, key: str) -> None:
        """Note that a run is being started; after a failure it is the trial on which all others wait."""
        if self.wait_ms:
            self._trial = key

    def failed(self, now: int) -> None:
        """Note that a start failed, and wait longer than the last time."""
        self.wait_ms = min(max(2 * self.wait_ms, _FIRST_MS), _LONGEST_MS)
        self._until = now + self.wait_ms
        self._trial = ""

    def worked(self) -> None:
        """Note that a run started."""
        self.wait_ms = 0
        self._trial = ""

    def dropped(self, key: str) -> None:
        """Note that a run left before it showed whether starting works."""
        if self._trial == key:
            self._trial = ""

    def pause(self, now: int) -> int | None:
        """Return the ms until the next trial; None where none is due by itself."""
        return max(0, self._until - now) if self.wait_ms and not self._trial else None
