"""The publisher: puts the newest view where readers find it, a few times a second, never in a pass's way.

The view is taken in the loop's thread, because the columns are the loop's; a thread of its own writes it.
The row need not survive a loss of power (the next pass makes it anew), so its commit waits for no disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from divvy.adapters.store.database import Database
from divvy.adapters.store.rows import dump
from divvy.adapters.store.tables import published
from divvy.control.view import describe
from divvy.errors import UnavailableError
from divvy.fleet.decision import Plan
from divvy.fleet.snapshot import Snapshot

PERIOD_SECONDS: Final = 0.2

#: Per node: [index, job or None, utilisation or None, why it is not known] of each device.
Devices = Mapping[str, Sequence[Sequence[Any]]]

_log = structlog.get_logger("publisher")


class StorePublisher:
    """Writes the `published` row.

    Args:
        database: The store.
        planner: Name of the planner, shown to readers.
        devices: Asks the engine which device is whose; None where it cannot tell.
        period_seconds: Shortest time between two rows.
    """

    def __init__(
        self,
        database: Database,
        planner: str,
        devices: Callable[[], Devices | None] | None = None,
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        self._database = database
        self._planner = planner
        self._devices = devices
        self._period = period_seconds
        self._offered: tuple[Snapshot, Plan, int] | None = None
        self._taken_at = float("-inf")
        self._ready = threading.Condition()
        self._next: tuple[int, int, dict[str, Any]] | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._write_all, name="publisher", daemon=True)
        self._thread.start()

    def publish(self, snapshot: Snapshot, plan: Plan, now: int) -> None:
        """Offer the newest state; it is taken at once, or at the next `tick` if one was taken just now."""
        self._offered = (snapshot, plan, now)
        self.tick()

    def tick(self) -> None:
        """Take what was offered, if it is time; call it in the thread of the loop, between events."""
        if self._offered is None or self.due_seconds() > 0:
            return
        snapshot, plan, now = self._offered
        self._offered = None
        if plan.version < snapshot.log_start:
            return  # compaction has renumbered the rows since; the next pass offers a plan of the new ones
        self._taken_at = time.monotonic()
        document = describe(snapshot, plan, now, self._planner).to_document()
        document["devices"] = self._devices() if self._devices is not None else None
        with self._ready:
            self._next = (snapshot.version, now, document)
            self._ready.notify()

    def due_seconds(self) -> float:
        """Return how long until `tick` has something to do; infinity if nothing was offered."""
        if self._offered is None:
            return float("inf")
        return max(self._taken_at + self._period - time.monotonic(), 0.0)

    def close(self) -> None:
        """Write what was offered last and stop."""
        self._taken_at = float("-inf")
        self.tick()
        with self._ready:
            self._closing = True
            self._ready.notify()
        self._thread.join(timeout=5)

    def _write_all(self) -> None:
        while True:
            with self._ready:
                while self._next is None and not self._closing:
                    self._ready.wait()
                item, self._next = self._next, None
            if item is None:
                return
            try:
                self._write(*item)
            except (UnavailableError, SQLAlchemyError) as error:  # the next view may fare better
                _log.warning("cannot publish", error=str(error))

    def _write(self, version: int, at: int, document: dict[str, Any]) -> None:
        row = {"version": version, "at": at, "document": dump(document)}
        with self._database.lossy() as connection:
            if connection.execute(published.update().values(row)).rowcount == 0:
                connection.execute(published.insert().values(id=1, **row))
