"""Records on disk that are either whole or absent, whatever is killed when."""

from __future__ import annotations

import json
import os
from typing import Any, Final

#: Room kept for the end record, so that a disk that fills up during a run cannot swallow its exit code.
RESERVED_BYTES: Final = 8192
_LONGEST_MESSAGE: Final = 500  # up to 12 bytes each in JSON


def read(path: str) -> dict[str, Any] | None:
    """Return the record, or None where there is none.

    Raises:
        ValueError: If the file is not a record.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs the shim 10 ms at start
            text = file.read()
    except FileNotFoundError:
        return None
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError(f"{path} is not a record")
    return document


def write(path: str, document: dict[str, Any], *, durable: bool = True) -> None:
    """Put a record in place of an older one, or of none.

    Args:
        path: Where.
        document: JSON values.
        durable: Whether it must survive a power cut once this returns.
    """
    scratch = f"{path}.tmp"
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    _fill(descriptor, document, durable=durable)
    os.replace(scratch, path)  # noqa: PTH105
    if durable:
        sync_directory(os.path.dirname(path) or ".")  # noqa: PTH120


def claim(path: str, document: dict[str, Any]) -> bool:
    """Write a record durably unless there is one already; return whether this call wrote it.

    ``link`` refuses an existing name in one step, so that of any number of callers exactly one succeeds.
    """
    scratch = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    _fill(descriptor, document, durable=True)
    try:
        os.link(scratch, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(scratch)  # noqa: PTH108
    directory = os.path.dirname(path) or "."  # noqa: PTH120
    sync_directory(directory)
    return True


def reserve(path: str) -> None:
    """Allocate the room of a record that `write_reserved` will write later.

    Raises:
        OSError: If the room is not there (disk full, quota, read-only).
    """
    descriptor = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, RESERVED_BYTES)
    finally:
        os.close(descriptor)


def write_reserved(path: str, document: dict[str, Any]) -> None:
    """Write a record durably into the room that `reserve` allocated."""
    message = document.get("message")
    if isinstance(message, str):
        document = {**document, "message": message[:_LONGEST_MESSAGE]}
    descriptor = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _fill(descriptor, document, durable=True)
    os.replace(f"{path}.tmp", path)  # noqa: PTH105
    sync_directory(os.path.dirname(path) or ".")  # noqa: PTH120


def sync_directory(path: str) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fill(descriptor: int, document: dict[str, Any], *, durable: bool) -> None:
    """Make a file hold exactly the document, and close it."""
    data = json.dumps(document, separators=(",", ":")).encode()
    try:
        written = 0
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], written)
        os.ftruncate(descriptor, len(data))
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
