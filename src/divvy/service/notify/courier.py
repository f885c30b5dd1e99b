"""The courier of one receiver: reads what happened, hands it over in order, remembers how far it came.

The history of jobs in the store is the queue: nothing is kept twice, nothing is lost over a restart, and a
receiver that is away costs no memory. What was handed over is noted after it was, so a notice may come twice,
with the same id, and never not at all, unless its receiver refuses it for a whole day.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog

from divvy.control.view import AccountSight
from divvy.service.notify.notices import body, of_budgets, of_job
from divvy.service.notify.receivers import Receiver
from divvy.service.notify.source import Occurrence
from divvy.units import DAY, MINUTE, SECOND

BATCH: Final = 100
_FIRST_PAUSE: Final = SECOND
_LONGEST_PAUSE: Final = 5 * MINUTE
_GIVE_UP: Final = DAY

_log = structlog.get_logger("notify")


@dataclass(slots=True)
class Courier:
    """Serves one receiver.

    Args:
        receiver: Who.
        place: Where it remembers how far it came.
        happened: Returns the next events of jobs after a number; at most so many.
        newest: Returns the number of the newest event; where a new receiver begins.
        budgets: Returns the time of the last pass and the accounts as it saw them; None before.
        deliver: Hands a notice over; returns what went wrong.
    """

    receiver: Receiver
    place: Path
    happened: Callable[[int, int], list[Occurrence]]
    newest: Callable[[], int]
    budgets: Callable[[], tuple[int, list[AccountSight]] | None]
    deliver: Callable[[Receiver, str, bytes], str]
    _cursor: int = -1
    _levels: dict[str, int] = field(default_factory=dict)
    _open: list[dict[str, Any]] = field(default_factory=list)
    """Notices of budgets that were not handed over yet."""
    _failures: int = 0
    _since: int = 0
    _not_before: int = 0

    def __post_init__(self) -> None:
        try:
            kept = json.loads(self.place.read_text(encoding="utf-8"))
            self._cursor = int(kept["cursor"])
            self._levels = {str(path): int(level) for path, level in kept["levels"].items()}
            self._open = list(kept["open"])
        except FileNotFoundError:
            self._cursor = self.newest()
            self._save()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning("begins anew", receiver=self.receiver.name, why=str(error))
            self._cursor = self.newest()

    def work(self, now: int) -> bool:
        """Hand over what there is at a time (ms, never going back); return whether more may wait."""
        if now < self._not_before:
            return False
        self._look_at_budgets()
        while self._open:
            if not self._hand_over(self._open[0], now):
                return False
            self._open.pop(0)
            self._save()
        rows = self.happened(self._cursor, BATCH)
        for row in rows:
            notice = of_job(row, self.receiver)
            if notice is not None and not self._hand_over(notice, now):
                self._save()
                return False
            self._cursor = row.id
            if notice is not None:
                self._save()
        if rows:
            self._save()
        return len(rows) == BATCH

    def _look_at_budgets(self) -> None:
        seen = self.budgets()
        if seen is None:
            return
        before = dict(self._levels)
        at, accounts = seen
        self._open += of_budgets(accounts, self.receiver, self._levels, at)
        if self._levels != before:
            self._save()

    def _hand_over(self, notice: dict[str, Any], now: int) -> bool:
        """Return whether a notice is done with: taken, or refused for too long."""
        wrong = self.deliver(self.receiver, notice["id"], body(notice))
        if not wrong:
            self._failures = 0
            return True
        self._since = self._since if self._failures else now
        self._failures += 1
        if now - self._since > _GIVE_UP:
            _log.error("given up", receiver=self.receiver.name, notice=notice["id"], why=wrong)
            self._failures = 0
            return True
        pause = min(_FIRST_PAUSE * 2 ** min(self._failures - 1, 20), _LONGEST_PAUSE)
        self._not_before = now + pause
        told = {"receiver": self.receiver.name, "notice": notice["id"], "why": wrong}
        _log.warning("not delivered", **told, again_in_seconds=pause / SECOND)
        return False

    def _save(self) -> None:
        """Remember how far it came; where that cannot be written now, notices may come once more later."""
        text = json.dumps({"cursor": self._cursor, "levels": self._levels, "open": self._open})
        part = self.place.with_suffix(".part")
        try:
            self.place.parent.mkdir(mode=0o700, exist_ok=True)
            part.write_text(text, encoding="utf-8")
            part.replace(self.place)
        except OSError as error:
            _log.warning("cannot remember", receiver=self.receiver.name, why=str(error))
