from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_world import World

from divvy.control.ports import Halt, Launch
from divvy.fleet.job import StopCause


@pytest.fixture
def directory() -> Iterator[Path]:
    # Not pytest's tmp_path: users that a test changes to could not pass through it.
    path = Path(tempfile.mkdtemp(prefix="divvy-local-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def idle(directory: Path) -> Iterator[World]:
    """A world whose engine is not opened yet."""
    world = World(directory)
    yield world
    if world.engine is None:
        world.open()
    world.submit()  # whatever still runs is claimed by no order, and so is stopped
    for job, spec in world.specs.items():
        for attempt in range(1, 4):
            if world.file(job, "order.json", attempt).exists():
                world.submit(Launch(job, attempt, spec, ()), Halt(job, attempt, StopCause.CANCELLED))
    world.until(lambda: not (directory / "live").exists() or not list((directory / "live").iterdir()))
    bases = set(world.engine.containment.base.values())
    world.close()
    assert [base for base in bases if base.exists()] == []


@pytest.fixture
def world(idle: World) -> World:
    idle.open()
    idle.submit()
    return idle
