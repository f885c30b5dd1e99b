"""Logs of jobs, read safely: below the state directory, by a checked name, never through a link.

The files belong to the users whose jobs wrote them, so they may be replaced by anything at any moment.
Each step of the path is opened relative to the one before it, and no step may be a symbolic link; what is
opened in the end must be a plain file with one name.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from divvy.control.launch import directory_name
from divvy.errors import DivvyError, NotFoundError

STREAMS: Final = ("stdout", "stderr")
CHUNK_BYTES: Final = 64 << 10
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class LogFile:
    """An open log; closing it is the caller's task.

    Args:
        descriptor: Of a plain file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def size(self) -> int:
        """Return the bytes written so far."""
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int = CHUNK_BYTES) -> bytes:
        """Return at most ``size`` bytes from an offset; empty at the end."""
        return os.pread(self._descriptor, size, offset)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def chunks(self, offset: int, limit: int) -> Iterator[bytes]:
        """Yield at most ``limit`` bytes from an offset, and close the file."""
        try:
            while limit > 0 and (data := self.read(offset, min(CHUNK_BYTES, limit))):
                offset += len(data)
                limit -= len(data)
                yield data
        finally:
            self.close()


def open_log(home: Path, job: str, attempt: int, stream: str) -> LogFile | None:
    """Open the log of one run; None where there is none yet.

    The place is that of `divvy.control.launch.run_directory`.

    Raises:
        NotFoundError: If something that is not a plain file or directory is in its place.
    """
    with ExitStack() as opened:
        try:
            place = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, place)
            for step in ("jobs", directory_name(job), str(attempt)):
                place = os.open(step, _DIRECTORY, dir_fd=place)
                opened.callback(os.close, place)
            descriptor = os.open(stream, _FILE, dir_fd=place)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refused(job, attempt, stream, os.strerror(error.errno or 0)) from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise _refused(job, attempt, stream, "not a plain file with one name")
    return LogFile(descriptor)


def _refused(job: str, attempt: int, stream: str, why: str) -> DivvyError:
    return NotFoundError.one(
        "log-unreadable", f"the log of {job}, attempt {attempt}, {stream} cannot be read: {why}", path=stream
    )
