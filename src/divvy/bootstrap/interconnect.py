"""The interconnect that pairings are made on: topology files, with measured costs where there are some."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from divvy.errors import InputError

if TYPE_CHECKING:
    from divvy.planners.transfers.roads import Roads

_MOST_BYTES: Final = 64 * 1024 * 1024


class Interconnect:
    """Reads topology files, and again when one of them has changed.

    Args:
        files: Topology inputs, which are merged; one of them may hold measured costs
            (``divvy.route.costs/1``).
    """

    def __init__(self, files: Sequence[str]) -> None:
        self._files = [Path(file) for file in files]
        self._seen: tuple[tuple[int, int], ...] = ()
        self._ways: Roads | None = None

    def __call__(self) -> Roads:
        """Return the roads of the files as they are now.

        Raises:
            InputError: If they cannot be read.
        """
        # NumPy and SciPy take half a second: only who pairs pays for them.
        from divvy.fleet.topology.read import build  # noqa: PLC0415
        from divvy.planners.transfers.calibrate import calibrated, read_calibration  # noqa: PLC0415
        from divvy.planners.transfers.roads import roads  # noqa: PLC0415

        seen = tuple(_stamp(path) for path in self._files)
        if self._ways is None or seen != self._seen:
            texts = [(path.name, _text(path)) for path in self._files]
            costs = [(name, text) for name, text in texts if _is_costs(text)]
            topo = build([item for item in texts if item not in costs])
            if len(costs) > 1:
                names = ", ".join(name for name, _ in costs)
                raise InputError.one("costs-twice", f"{names} all hold costs", path="--topology")
            self._ways = (
                calibrated(topo, read_calibration(costs[0][0], json.loads(costs[0][1])))[0]
                if costs
                else roads(topo)
            )
            self._seen = seen
        return self._ways


def interconnect_of(files: str) -> Interconnect | None:
    """Return the interconnect of files joined by the path separator; None where none is named."""
    named = [file for file in files.split(os.pathsep) if file]
    return Interconnect(named) if named else None


def _is_costs(text: str) -> bool:
    """Return whether a text is a file of costs and no topology."""
    try:
        body = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return False
    return isinstance(body, dict) and "vertices" not in body and bool(body.keys() & {"transfers", "kinds"})


def _stamp(path: Path) -> tuple[int, int]:
    """Return what changes when a file does."""
    try:
        found = path.stat()
    except OSError as error:
        raise _unreadable(path, error.strerror or "gone") from error
    return found.st_mtime_ns, found.st_size


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _unreadable(path, "larger than 64 MiB")
        return path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise _unreadable(path, error.strerror or "gone") from error


def _unreadable(path: Path, why: str) -> InputError:
    return InputError.one(
        "unreadable", f"{path}: {why}", path="--topology", fix="name a file that can be read"
    )
