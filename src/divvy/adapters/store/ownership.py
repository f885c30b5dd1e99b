"""One `divvy up` per state directory, one scheduler loop per database."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from divvy.adapters.store.database import Database, guarded
from divvy.errors import ConflictError, UnavailableError

#: Key of the advisory lock on PostgreSQL; any constant that nobody else in the database uses.
_LOCK_KEY: Final = 0x64697676
_RETRY_SECONDS: Final = 0.1


@contextlib.contextmanager
def locked(path: Path, who: str, wait_seconds: float = 0) -> Iterator[None]:
    """Hold a lock file for the length of a block; the kernel releases it whenever the process ends.

    Args:
        path: The file; it holds the process id of its holder.
        who: What holds it, for the message.
        wait_seconds: How long to wait for a holder that is about to leave.

    Raises:
        ConflictError: If another process holds it.
        UnavailableError: If the file cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        limit = time.monotonic() + wait_seconds
        while not _try_lock(descriptor):
            if time.monotonic() >= limit:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
                raise ConflictError.one(
                    "already-running",
                    f"{who} runs here already" + (f" ({holder})" if holder else ""),
                    path=str(path),
                    allowed="one per state directory",
                    fix="use that one, stop it, or choose another directory with --home",
                )
            time.sleep(_RETRY_SECONDS)
        with contextlib.suppress(OSError):  # on a full disk the lock holds without the note
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def sole_loop(database: Database, wait_seconds: float = 10) -> Iterator[None]:
    """Be the only scheduler loop on a database for the length of a block.

    Raises:
        ConflictError: If another loop is there and stays.
    """
    file = database.file
    if file is not None:
        with locked(file.with_name(file.name + ".lock"), "a scheduler loop on this database", wait_seconds):
            yield
        return
    engine = sa.create_engine(database.url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    with guarded(database.url), engine.connect() as connection:
        limit = time.monotonic() + wait_seconds
        while not connection.execute(sa.select(sa.func.pg_try_advisory_lock(_LOCK_KEY))).scalar_one():
            if time.monotonic() >= limit:
                raise ConflictError.one(
                    "already-running",
                    "a scheduler loop runs on this database already",
                    path=database.url.render_as_string(hide_password=True),
                    allowed="one per database",
                    fix="stop the other `divvy up`, or use another database",
                )
            time.sleep(_RETRY_SECONDS)
        try:
            yield
        finally:
            connection.invalidate()  # the session, and with it the lock, ends here


def unwritable(path: Path, error: OSError) -> UnavailableError:
    """Return the error that says why a path cannot be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    fault = UnavailableError.one(
        "store-full" if full else "home-unwritable",
        f"cannot write ({error.strerror})",
        path=str(path),
        fix="free some space" if full else "give this user write access, or choose another place with --home",
    )
    assert isinstance(fault, UnavailableError)  # noqa: S101 - `one` is typed for the base class
    return fault
