"""What is done to a control plane: each fault ends by itself, and says what it did."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from divvy.cli.soak.plane import Plane

_LONGEST_SECONDS: Final = 6.0
_STEPS: Final = (-7200, -60, 45, 3600)
_BLOCK: Final = b"\0" * (1 << 20)


def kill_loop(plane: Plane, _draw: random.Random) -> bool:
    """SIGKILL the loop, and with it the engine that lives in it."""
    return plane.kill("loop")


def kill_api(plane: Plane, _draw: random.Random) -> bool:
    """SIGKILL the API."""
    return plane.kill("api")


def kill_supervisor(plane: Plane, draw: random.Random) -> bool:
    """SIGKILL the supervisor; somebody starts `divvy up` again some time later."""
    if not plane.kill("supervisor"):
        return False
    time.sleep(draw.uniform(0, 2))
    plane.start()
    return True


def lock_database(plane: Plane, draw: random.Random) -> bool:
    """Hold the write lock of the database from another process's connection."""
    try:
        other = sqlite3.connect(plane.home / "divvy.db", timeout=5, isolation_level=None)
    except sqlite3.Error:
        return False
    try:
        other.execute("BEGIN EXCLUSIVE")
        time.sleep(draw.uniform(0.5, _LONGEST_SECONDS))
        other.execute("ROLLBACK")
    except sqlite3.Error:  # it was busy all the time: nothing was locked
        return False
    finally:
        other.close()
    return True


def fill_disk(plane: Plane, draw: random.Random) -> bool:
    """Fill the disk to the last block for a while; only where it is a file system of its own."""
    if not plane.own_disk:
        return False
    ballast = plane.disk / "ballast"
    try:
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, max(shutil.disk_usage(plane.disk).free - len(_BLOCK), 1))
            while True:
                file.seek(0, os.SEEK_END)
                if not file.write(_BLOCK):
                    break
        time.sleep(draw.uniform(0.5, _LONGEST_SECONDS))
    finally:
        ballast.unlink(missing_ok=True)
    return True


def step_clock(plane: Plane, draw: random.Random) -> bool:
    """Set the wall clock that the control plane sees back or forward; it is put right at the next step."""
    plane.set_clock(draw.choice(_STEPS))
    time.sleep(draw.uniform(0, 2))
    if draw.random() < 0.5:
        plane.set_clock(0)
    return True


#: Faults by the name that the report has.
FAULTS: Final[dict[str, Callable[[Plane, random.Random], bool]]] = {
    "loop and engine killed": kill_loop,
    "API killed": kill_api,
    "supervisor killed": kill_supervisor,
    "database locked": lock_database,
    "disk full": fill_disk,
    "clock stepped": step_clock,
}
