"""Connections: a database by URL, opened so that what is committed survives, with faults in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from divvy.errors import InputError, UnavailableError

_BUSY_MS: Final = 15_000


@dataclass(frozen=True, slots=True)
class Database:
    """A database and two ways to connect to it.

    Attributes:
        url: As given, for messages; a password in it is never printed.
        writer: Connections that write: a transaction takes the write lock when it begins.
        reader: Connections that only read, each on a consistent view.
        scratch: Connections that write what may be lost with the machine's power (the published row).
    """

    url: sa.URL
    writer: sa.Engine
    reader: sa.Engine
    scratch: sa.Engine

    @property
    def sqlite(self) -> bool:
        """Return whether this is SQLite."""
        return self.writer.dialect.name == "sqlite"

    @property
    def file(self) -> Path | None:
        """Return the path of an SQLite file, None elsewhere."""
        return Path(self.url.database) if self.sqlite and self.url.database else None

    def dispose(self) -> None:
        """Close all connections."""
        for engine in (self.writer, self.reader, self.scratch):
            engine.dispose()

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Run a block in one transaction; it is durable when the block is left without an exception.

        Raises:
            UnavailableError: If the database cannot be written now; then nothing has changed.
        """
        with guarded(self.url), self.writer.begin() as connection:
            yield connection

    @contextmanager
    def lossy(self) -> Iterator[sa.Connection]:
        """Run a block in one transaction that a loss of power may undo; it waits for no disk.

        Raises:
            UnavailableError: If the database cannot be written now.
        """
        with guarded(self.url), self.scratch.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Run a block on one consistent view.

        Raises:
            UnavailableError: If the database cannot be read now.
        """
        with guarded(self.url), self.reader.connect() as connection:
            yield connection


def open_database(url: str) -> Database:
    """Open a database without looking at its contents.

    Raises:
        InputError: If the URL is not of a database that Divvy keeps its state in.
    """
    try:
        parsed = sa.make_url(url)
    except SQLAlchemyError as error:
        raise _bad_url(url, "cannot be read") from error
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise _bad_url(url, "names no file")
        return Database(
            parsed,
            _sqlite(parsed, "IMMEDIATE", "FULL"),
            _sqlite(parsed, "DEFERRED", "FULL", read_only=True),
            _sqlite(parsed, "IMMEDIATE", "NORMAL"),
        )
    if parsed.get_backend_name() == "postgresql":
        if parsed.get_driver_name() != "psycopg":
            parsed = parsed.set(drivername="postgresql+psycopg")
        try:
            return Database(
                parsed,
                sa.create_engine(parsed, pool_pre_ping=True),
                sa.create_engine(parsed, pool_pre_ping=True, isolation_level="REPEATABLE READ"),
                sa.create_engine(
                    parsed, pool_pre_ping=True, connect_args={"options": "-c synchronous_commit=off"}
                ),
            )
        except ImportError as error:
            raise InputError.one(
                "store-driver",
                "the PostgreSQL driver is not installed",
                path="--database",
                fix="pip install 'divvy-gpu[postgres]'",
            ) from error
    raise _bad_url(url, f"is of {parsed.get_backend_name()}")


def _bad_url(url: str, problem: str) -> Exception:
    shown = url if "@" not in url else url.split("@", 1)[-1]
    return InputError.one(
        "store-url",
        f"database {shown!r} {problem}",
        path="--database",
        allowed="sqlite:////absolute/path.db or postgresql+psycopg://user:password@host/name",
        fix="correct the URL, or leave the option away",
    )


def _sqlite(url: sa.URL, begin: str, synchronous: str, *, read_only: bool = False) -> sa.Engine:
    engine = sa.create_engine(url, connect_args={"timeout": _BUSY_MS / 1000, "check_same_thread": False})

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions begin and end where SQLAlchemy says so
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
        if not read_only:
            cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")
            cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute(f"PRAGMA synchronous={synchronous}")
        if read_only:
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"BEGIN {begin}")

    return engine


@contextmanager
def guarded(url: sa.URL) -> Iterator[None]:
    """Turn what a database driver raises because of its surroundings into an error for people.

    A violated constraint or a wrong statement is a fault of the program and passes through.

    Raises:
        UnavailableError: With one of the codes ``store-full``, ``store-unwritable``, ``store-locked``,
            ``store-damaged``, ``store-unreachable``.
    """
    try:
        yield
    except DBAPIError as error:
        fault = _diagnose(error, url)
        if fault is None:
            raise
        raise fault from error


def _diagnose(error: DBAPIError, url: sa.URL) -> UnavailableError | None:
    if not isinstance(error, sa.exc.OperationalError | sa.exc.DatabaseError):
        return None
    if isinstance(error, sa.exc.IntegrityError | sa.exc.ProgrammingError | sa.exc.DataError):
        return None
    text = str(error.orig)
    where = url.render_as_string(hide_password=True)
    for needles, code, what, fix in _DIAGNOSES:
        if any(needle in text for needle in needles):
            return _unavailable(code, f"{what} ({text.strip()})", where, fix)
    if isinstance(error, sa.exc.OperationalError):
        return _unavailable(
            "store-unreachable",
            f"the database does not answer ({text.strip()})",
            where,
            "check that it runs and that the URL and password are right",
        )
    return None


def _unavailable(code: str, message: str, path: str, fix: str) -> UnavailableError:
    error = UnavailableError.one(code, message, path=path, fix=fix)
    assert isinstance(error, UnavailableError)  # noqa: S101 - `one` is typed for the base class
    return error


_DIAGNOSES: Final = (
    (
        ("disk is full", "No space left", "could not extend file", "DiskFull"),
        "store-full",
        "no space left for the database; nothing is decided until there is",
        "free some space, or move the state directory",
    ),
    (
        ("readonly database", "attempt to write a readonly", "read-only transaction", "Permission denied"),
        "store-unwritable",
        "the database cannot be written",
        "give this user write access to the file and its directory",
    ),
    (
        ("database is locked", "database table is locked"),
        "store-locked",
        "another program holds the database",
        "end the program that holds it",
    ),
    (
        ("malformed", "not a database", "file is encrypted", "invalid page", "checksum"),
        "store-damaged",
        "the database is damaged",
        "restore a copy (see docs/explanation/durability.md), or begin with an empty state directory",
    ),
    (
        ("unable to open database file", "disk I/O error"),
        "store-unwritable",
        "the database cannot be opened or written",
        "check that the directory exists, is writable, and that the disk is sound",
    ),
)
