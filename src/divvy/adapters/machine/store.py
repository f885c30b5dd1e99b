"""The store that is there already: whether it can be opened and is sound."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

from divvy.adapters.machine.check import Check, State

_OLDEST: Final = (3, 35, 0)


def database(home: Path, url: str) -> Check:
    """Look at the database of a state directory."""
    need = "journal, jobs, budgets"
    if not url.startswith("sqlite"):
        return Check(
            "database", State.OK, f"{url.rsplit('@', maxsplit=1)[-1]}, asked when `divvy up` starts", need
        )
    if sqlite3.sqlite_version_info < _OLDEST:
        found, fix = f"SQLite {sqlite3.sqlite_version}", "use a Python with SQLite 3.35 or newer"
        return Check("database", State.FAIL, found, need, fix)
    file = home / "divvy.db"
    if not file.exists():
        return Check("database", State.OK, f"SQLite {sqlite3.sqlite_version}; {file} will be made", need)
    fix = "stop `divvy up` and restore a backup; docs/explanation/durability.md says what survives"
    try:
        with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5)) as connection:
            verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        return Check("database", State.FAIL, f"{file}: {error}", need, fix)
    if verdict != "ok":
        return Check("database", State.FAIL, f"{file}: {verdict}", need, fix)
    return Check("database", State.OK, f"{file}, sound, {file.stat().st_size / 1e6:.1f} MB", need)
