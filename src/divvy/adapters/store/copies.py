"""Copies of the embedded store: taken while it is in use, read through, and put back."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from divvy.adapters.store.ownership import unwritable
from divvy.adapters.store.schema import HEAD
from divvy.errors import ConflictError, InputError, NotFoundError, UnavailableError

_PAGES: Final = 2_000
_BUSY_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.01


def copy_out(source: Path, target: Path, *, replace: bool = False) -> str:
    """Copy a store that may be in use to a new file, whole or not at all; return its schema.

    Raises:
        NotFoundError: If there is no store.
        ConflictError: If the target exists and is not to be replaced.
        UnavailableError: If it cannot be read or written, or the copy is not sound.
    """
    if not source.is_file():
        raise NotFoundError.one(
            "store-missing", "there is no store", path=str(source), fix="name the state directory with --home"
        )
    _check_target(source, target, replace=replace)
    part = target.with_name(f".{target.name}.part")
    try:
        part.unlink(missing_ok=True)
        with closing(_open(source)) as one, closing(sqlite3.connect(part)) as other:
            one.backup(other, pages=_PAGES, sleep=_PAUSE_SECONDS)
            other.execute("PRAGMA journal_mode=DELETE")  # one file, with nothing beside it
        part.chmod(0o600)  # commands and their environments are in it
        schema = inspect(part)
        _flush(part)
        part.replace(target)
        _flush(target.parent)
    except sqlite3.Error as error:
        raise UnavailableError.one("copy-failed", str(error), path=str(target)) from error
    except OSError as error:
        raise unwritable(target, error) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return schema


def _check_target(source: Path, target: Path, *, replace: bool) -> None:
    """Refuse a target that is there, and also by force what is no plain file or belongs to the store."""
    try:
        there = os.path.lexists(target)
        plain = target.is_file() and not target.is_symlink()
        own = {(source.parent / f"{source.name}{end}").resolve() for end in ("", "-wal", "-shm", ".lock")}
        used = target.resolve() in own
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, a loop of links
        raise InputError.one(
            "copy-name", str(error)[:200], path=str(target)[:200], fix="choose another name"
        ) from error
    if used:  # its log beside it holds what it has not taken in yet; another file there damages it
        raise ConflictError.one(
            "copy-store", "this file belongs to the store itself", path=str(target), fix="choose another name"
        )
    if there and not plain:
        raise ConflictError.one(
            "copy-target",
            "a directory, a device or a link is there",
            path=str(target),
            allowed="a new file, or a plain file with --force",
            fix="choose another name",
        )
    if there and not replace:
        raise ConflictError.one(
            "copy-exists", "there is a file already", path=str(target), fix="choose another name, or --force"
        )


def put_back(copy: Path, store: Path) -> Path | None:
    """Put a copy in the place of a store that nobody uses; return where the former one is now, if any.

    Raises:
        NotFoundError: If there is no copy.
        InputError: If it is no store of Divvy, is damaged, or is of a newer Divvy.
        UnavailableError: If it cannot be written.
    """
    if not copy.is_file():
        raise NotFoundError.one("copy-missing", "there is no such file", path=str(copy))
    schema = inspect(copy)
    if schema > HEAD:
        raise InputError.one(
            "store-newer",
            f"the copy has schema {schema}",
            path=str(copy),
            allowed=f"up to {HEAD}",
            fix="install the Divvy that wrote it, or a newer one",
        )
    former = None
    if store.exists():
        former = _free_name(store)
        copy_out(store, former)  # with what its log has that the file itself has not
    part = store.with_name(f".{store.name}.part")
    copy_out(copy, part, replace=True)
    try:
        for beside in ("-wal", "-shm"):
            store.with_name(store.name + beside).unlink(missing_ok=True)
        part.replace(store)
        _flush(store.parent)
    except OSError as error:
        raise unwritable(store, error) from error
    return former


def inspect(file: Path) -> str:
    """Return the schema of a store's file, read through.

    Raises:
        InputError: If it is none, or it is damaged.
    """
    try:
        with closing(_open(file)) as connection:
            found = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error as error:
        raise _no_store(file, str(error)) from error
    if found != ["ok"]:
        raise _no_store(file, "; ".join(map(str, found)))
    return str(row[0]) if row else ""


def _no_store(file: Path, why: str) -> InputError:
    return InputError.one(
        "store-damaged", f"it is no sound store of Divvy ({why})", path=str(file), fix="take another copy"
    )


def _open(file: Path) -> sqlite3.Connection:
    """Open a file that exists, to read."""
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)


def _free_name(store: Path) -> Path:
    """Return a name beside a store for what is there now."""
    number = 1
    while (named := store.with_name(f"{store.name}.before-restore-{number}")).exists():
        number += 1
    return named


def _flush(path: Path) -> None:
    """See that a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
