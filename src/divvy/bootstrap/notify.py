"""The notify process: what it reads of the store."""

from __future__ import annotations

from divvy.adapters.store.reader import Reader
from divvy.bootstrap.settings import LiveSettings, open_store


def open_for_notices(settings: LiveSettings) -> Reader:
    """Open the store for the notify process.

    Raises:
        DivvyError: If it cannot be used.
    """
    return Reader(open_store(settings.database))
