"""Which ended runs keep their directories, and for how long.

Runs without an end record, and those whose end the engine has still to report, are never touched. With its
directory a run forgets that it was begun, so only what is in the journal for good may be cleared away.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from divvy.adapters.local.shim.clocks import wall_ms
from divvy.adapters.local.shim.main import ENDED
from divvy.units import HOUR

_BATCH: Final = 200
_REST_MS: Final = HOUR


class Purge(NamedTuple):
    """What a clearing took away, and what it could not."""

    runs: int
    bytes: int
    faults: tuple[str, ...] = ()


class EndedRun(NamedTuple):
    """A run that is over and reported: when it ended, ms by the wall clock, and where its directory is."""

    at: int
    path: Path


def purge(root: Path, *, ended_before: int = 0, keep: int | None = None) -> Purge:
    """Delete records and logs of ended runs: those that are too old, then the oldest beyond a number.

    Args:
        root: Directory of the engine.
        ended_before: Delete runs that ended before this time, ms by the wall clock.
        keep: Keep at most so many ended runs, the newest; None keeps all that are not too old.
    """
    ended = sorted(_ended(root))
    old = [run.path for run in ended if run.at < ended_before]
    rest = [run.path for run in ended if run.at >= ended_before]
    excess = rest[: len(rest) - keep] if keep is not None and len(rest) > keep else []
    size = runs = 0
    faults: list[str] = []
    for path in (*old, *excess):
        try:
            size += _remove(path)
        except OSError as error:
            faults.append(f"{path}: {error.strerror}")
        else:
            runs += 1
    return Purge(runs, size, tuple(faults))


class Clearing:
    """Deletes ended runs that are too old, a few at a time, so that a pass never waits for it.

    Args:
        root: Directory of the engine.
        keep_ms: How long an ended run stays.
    """

    def __init__(self, root: Path, keep_ms: int) -> None:
        self._root = root
        self._keep_ms = keep_ms
        self._round: Iterator[EndedRun] = iter(())
        self._not_before = 0

    def sweep(self, now: int) -> int:
        """Look at one batch and return how many runs were deleted; after the last batch rest for an hour."""
        if now < self._not_before:
            return 0
        batch = list(islice(self._round, _BATCH))
        if not batch:
            self._round = _ended(self._root)
            self._not_before = now + _REST_MS
            return 0
        before = wall_ms() - self._keep_ms
        removed = 0
        for run in batch:
            if run.at < before:
                with contextlib.suppress(OSError):  # what cannot be deleted now is met again in an hour
                    _remove(run.path)
                    removed += 1
        return removed


def _ended(root: Path) -> Iterator[EndedRun]:
    """Yield the runs that are over and reported; one that comes to be while this goes on may be left out."""
    for job in _entries(root / "jobs"):
        for run in _entries(Path(job.path)):
            if (root / "live" / f"{job.name}.{run.name}").exists():
                continue
            try:
                at = os.stat(f"{run.path}/{ENDED}").st_mtime_ns // 1_000_000  # noqa: PTH116 - thousands of them
            except OSError:
                continue  # it has no end record
            yield EndedRun(at, Path(run.path))


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Yield what is in a directory; nothing where it is gone."""
    try:
        with os.scandir(directory) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError):
        return


def _remove(path: Path) -> int:
    """Delete the directory of a run, and that of its job if it was the last; return its bytes."""
    size = sum(entry.stat(follow_symlinks=False).st_size for entry in _entries(path))
    shutil.rmtree(path)
    with contextlib.suppress(OSError):  # other runs of the job are kept
        path.parent.rmdir()
    return size
