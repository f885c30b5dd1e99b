"""The loop's own word on how it is, in a place that works when the database cannot be written.

A file of fixed size is overwritten in place, which needs no free space; a checksum tells a reader that it
caught a write half done.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

_SIZE: Final = 4_096
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class LoopHealth:
    """How the loop is.

    Attributes:
        state: ``starting``, ``running``, ``stalled`` (decides nothing, see ``problem``) or ``stopped``.
        at: When this was written, wall clock, ms since the Unix epoch; a running loop writes every second.
        pid: Process of the loop.
        version: Version of the state.
        seq: Last journal entry.
        last_pass: Time of the last pass, ms.
        pass_ms: How long it took.
        problem: What is wrong, with what to do; empty when nothing is.
        clock_offset_ms: Wall clock minus the loop's clock; not 0 when the wall clock was set.
        restarts: How often the loop was started again after it had failed.
    """

    state: str
    at: int
    pid: int
    version: int = 0
    seq: int = 0
    last_pass: int = 0
    pass_ms: float = 0.0
    problem: str = ""
    clock_offset_ms: int = 0
    restarts: int = 0


class HealthFile:
    """The file.

    Args:
        path: Where it lies.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if os.fstat(self._descriptor).st_size < _SIZE:
            os.pwrite(self._descriptor, b"\0" * _SIZE, 0)  # now, while there is space

    def write(self, health: LoopHealth) -> None:
        """Replace what the file says."""
        problem = health.problem
        while True:
            text = json.dumps({**asdict(health), "problem": problem}).encode()
            if len(text) <= _SIZE - 16:
                break
            problem = problem[: len(problem) // 2]
        line = f"{zlib.crc32(text):08x}".encode() + b" " + text
        with contextlib.suppress(OSError):  # a file system that copies on write may want space even here
            os.pwrite(self._descriptor, line.ljust(_SIZE, b"\n"), 0)

    def close(self) -> None:
        """Close the file; it stays."""
        os.close(self._descriptor)


def read_health(path: Path) -> LoopHealth | None:
    """Return what a loop last said, None where none ever spoke."""
    for _ in range(_TRIES):
        try:
            crc, _, text = path.read_bytes().strip(b"\n\0").partition(b" ")
        except FileNotFoundError:
            return None
        if crc and zlib.crc32(text) == int(crc, 16):
            return LoopHealth(**json.loads(text))
    return None
