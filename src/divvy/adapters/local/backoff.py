"""Patience with a machine that cannot start runs: wait, try one, wait longer."""

from __future__ import annotations

from typing import Final

from divvy.units import MINUTE, SECOND

_FIRST_MS: Final = SECOND
_LONGEST_MS: Final = MINUTE
_TRIAL_MS: Final = 10 * SECOND


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
        return not self.wait_ms or now >= self._until

    def trying(self, key: str, now: int) -> None:
        """Note that a run is being started; after a failure it is the trial on which the others wait.

        They do not wait for ever: a trial may itself hang, say in a directory of a dead file server.
        """
        if self.wait_ms:
            self._trial = key
            self._until = now + max(self.wait_ms, _TRIAL_MS)

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
            self._until = 0

    def pause(self, now: int) -> int | None:
        """Return the ms until the next trial; None where nothing is held back."""
        return max(0, self._until - now) if self.wait_ms else None
