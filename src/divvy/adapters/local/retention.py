"""Which ended runs keep their directories, and for how long. The store decides when to ask."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from divvy.adapters.local.shim.main import ENDED


class Purge(NamedTuple):
    """What a clearing took away, and what it could not."""

    runs: int
    bytes: int
    faults: tuple[str, ...] = ()


def purge(root: Path, *, ended_before: int = 0, keep: int | None = None) -> Purge:
    """Delete records and logs of ended runs: those that are too old, then the oldest beyond a number.

    Runs without an end record, and those whose end the engine has still to report, are never touched.
    Only ask for runs whose end is in the journal for good: with its directory a run forgets that it
    was begun.

    Args:
        root: Directory of the engine.
        ended_before: Delete runs that ended before this time, ms since the Unix epoch.
        keep: Keep at most so many ended runs, the newest; None keeps all that are not too old.
    """
    ended = sorted(_ended(root))
    old = [path for at, path in ended if at < ended_before]
    rest = [path for at, path in ended if at >= ended_before]
    excess = rest[: len(rest) - keep] if keep is not None and len(rest) > keep else []
    runs = size = 0
    faults: list[str] = []
    for path in (*old, *excess):
        try:
            weight = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(path))
            shutil.rmtree(path)
        except OSError as error:
            faults.append(f"{path}: {error.strerror}")
            continue
        runs += 1
        size += weight
        _remove_if_empty(path.parent)
    return Purge(runs, size, tuple(faults))


def _ended(root: Path) -> Iterator[tuple[int, Path]]:
    """Yield (end, directory) of runs that are over and reported."""
    live = {entry.name for entry in os.scandir(root / "live")}
    for job in os.scandir(root / "jobs"):
        for run in os.scandir(job.path):
            if f"{job.name}.{run.name}" in live:
                continue
            try:
                at = os.stat(f"{run.path}/{ENDED}").st_mtime_ns // 1_000_000  # noqa: PTH116 - thousands of them
            except FileNotFoundError:
                continue
            yield at, Path(run.path)


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        return  # other runs of the job are kept
