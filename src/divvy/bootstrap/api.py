"""The API process: what it reads and writes of the store, and the scheduler's clock and health."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from divvy.adapters.store.health import LoopHealth, read_health
from divvy.adapters.store.intake import IntakeWriter
from divvy.adapters.store.reader import Reader
from divvy.adapters.store.tokens import TokenTable
from divvy.adapters.store.wake import wake
from divvy.bootstrap.settings import LiveSettings, open_store

_FRESH_SECONDS: Final = 0.5


class ApiStore(NamedTuple):
    """The store and the scheduler as the API sees them."""

    reader: Reader
    intake: IntakeWriter
    tokens: TokenTable
    now: Callable[[], int]
    health: Callable[[], LoopHealth | None]
    close: Callable[[], None]


def open_for_api(settings: LiveSettings) -> ApiStore:
    """Open the store for the API process.

    Raises:
        DivvyError: If it cannot be used.
    """
    home = Path(settings.home)
    database = open_store(settings.database)
    health = _Health(home / "health")
    return ApiStore(
        Reader(database),
        IntakeWriter(database, lambda: wake(home / "wake"), health.now),
        TokenTable(database),
        health.now,
        health,
        database.dispose,
    )


class _Health:
    """Reads the loop's health at most twice a second, and with it how its clock stands to the wall's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at = float("-inf")
        self._last: LoopHealth | None = None

    def __call__(self) -> LoopHealth | None:
        """Return what the loop last said."""
        now = time.monotonic()
        if now - self._read_at > _FRESH_SECONDS:
            self._read_at = now
            self._last = read_health(self._path)
        return self._last

    def now(self) -> int:
        """Return the time by the loop's clock, ms: the two processes must not disagree about it."""
        health = self()
        return time.time_ns() // 1_000_000 - (health.clock_offset_ms if health is not None else 0)
