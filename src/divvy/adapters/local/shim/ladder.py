"""The way out of a run: warn, SIGTERM, SIGKILL. A pure state machine over a monotonic clock."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

#: Causes that are announced by the warn signal first; every other cause begins with SIGTERM.
GENTLE: Final = frozenset({"PREEMPTED", "DRAINED"})
#: The cause that replaces an earlier one: what its owner cancels must not come back from the queue.
FINAL: Final = "CANCELLED"
TIME_LIMIT: Final = "TIME_LIMIT"

_KILL_AGAIN_MS: Final = 100


class Rung(IntEnum):
    """How far a run has been pushed."""

    RUN = 0
    WARN = 1
    TERM = 2
    KILL = 3


class Ladder:
    """Says which signal is due when. Times are ms of a monotonic clock.

    Args:
        warn_ms: Time between the warn signal and SIGTERM; 0 leaves the warning out.
        grace_ms: Time between SIGTERM and SIGKILL.
        limit_at: When the time limit of the run is reached; 0 means none.

    Attributes:
        limit_at: The same; may be set once the run has begun.
        rung: How far the run has been pushed.
        cause: Why, as the name of a `StopCause`; empty while nobody asked it to leave.
    """

    def __init__(self, warn_ms: int, grace_ms: int, limit_at: int = 0) -> None:
        self.rung = Rung.RUN
        self.cause = ""
        self._warn_ms = warn_ms
        self._grace_ms = grace_ms
        self.limit_at = limit_at
        self._due = 0

    def ask(self, cause: str, now: int) -> Rung | None:
        """Begin the way out, or hasten it; return the rung that is newly reached.

        Asking again changes nothing, except that a cause without warning ends a warning under way and
        that a cancellation replaces the cause of a preemption.
        """
        first = not self.cause
        if first or cause == FINAL:
            self.cause = cause
        if first and self.rung is Rung.RUN and cause in GENTLE and self._warn_ms > 0:
            return self._climb(Rung.WARN, now + self._warn_ms)
        if self.rung < Rung.TERM and (first or cause not in GENTLE):
            return self._climb(Rung.TERM, now + self._grace_ms)
        return None

    def unheard(self, now: int) -> Rung | None:
        """Leave the warning out, because the main process would not hear it; return the next rung."""
        return self._climb(Rung.TERM, now + self._grace_ms) if self.rung is Rung.WARN else None

    def main_exited(self, now: int) -> Rung | None:
        """The main process is gone: what it left behind has the grace to follow it."""
        return self._climb(Rung.TERM, now + self._grace_ms) if self.rung < Rung.TERM else None

    def tick(self, now: int) -> Rung | None:
        """Return the rung that is due now; SIGKILL stays due until everybody is gone."""
        if self.rung is Rung.RUN:
            if not self.limit_at or now < self.limit_at:
                return None
            self.cause = TIME_LIMIT
            return self._climb(Rung.TERM, now + self._grace_ms)
        if now < self._due:
            return None
        if self.rung is Rung.WARN:
            return self._climb(Rung.TERM, now + self._grace_ms)
        return self._climb(Rung.KILL, now + _KILL_AGAIN_MS)

    def wait(self, now: int) -> int | None:
        """Return the ms until `tick` has something to say; None where it never will by itself."""
        due = self.limit_at if self.rung is Rung.RUN else self._due
        return max(0, due - now) if due else None

    def _climb(self, rung: Rung, due: int) -> Rung:
        self.rung = rung
        self._due = due
        return rung
