"""Bring a database up to date, and refuse one that is damaged or of a newer Divvy."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from divvy.adapters.store.database import Database
from divvy.errors import UnavailableError

#: Newest revision in migrations/versions; a test holds it to the files there.
HEAD: Final = "0004"

#: Larger files are not read through at every start.
_CHECK_UP_TO_BYTES: Final = 256 << 20


def prepare(database: Database) -> None:
    """Create or migrate the schema, in one transaction.

    Raises:
        UnavailableError: If the database cannot be written or is of a newer Divvy.
    """
    with database.write() as connection:
        present = revision(connection)
        if present == HEAD:
            return
        _refuse_newer(present, database)
        _upgrade(connection)


def check(database: Database) -> None:
    """Read an SQLite file through and refuse a damaged one.

    Raises:
        UnavailableError: With code ``store-damaged``.
    """
    file = database.file
    if file is None or not file.exists() or file.stat().st_size > _CHECK_UP_TO_BYTES:
        return
    with database.read() as connection:
        found = connection.exec_driver_sql("PRAGMA quick_check(3)").scalars().all()
    if found != ["ok"]:
        raise UnavailableError.one(
            "store-damaged",
            f"the database is damaged ({'; '.join(map(str, found))})",
            path=str(file),
            fix="restore a copy (see docs/explanation/durability.md), or begin with an empty state directory",
        )


def revision(connection: sa.Connection) -> str | None:
    """Return the revision of the schema, None where there is none yet."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def _refuse_newer(present: str | None, database: Database) -> None:
    if present is not None and present > HEAD:
        raise UnavailableError.one(
            "store-newer",
            f"the database has schema {present}",
            path=database.url.render_as_string(hide_password=True),
            allowed=f"up to {HEAD}",
            fix="install the Divvy that wrote it, or a newer one",
        )


def _upgrade(connection: sa.Connection) -> None:
    # Imported here: a start with an up-to-date schema does not pay for it.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    attributes: dict[str, Any] = config.attributes
    attributes["connection"] = connection
    command.upgrade(config, "head")
