"""Which jobs the store has seen, so that nothing is taken in twice under one id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import sqlalchemy as sa

from divvy.adapters.store.database import Database
from divvy.adapters.store.tables import job

_PART: Final = 500


def known_jobs(database: Database, names: Iterable[str]) -> set[str]:
    """Return which of some job ids there is a row of, over or not.

    Raises:
        UnavailableError: If the store cannot be read now.
    """
    wanted = list(dict.fromkeys(names))
    found: set[str] = set()
    with database.read() as connection:
        for begin in range(0, len(wanted), _PART):
            part = wanted[begin : begin + _PART]
            found.update(connection.execute(sa.select(job.c.id).where(job.c.id.in_(part))).scalars())
    return found
