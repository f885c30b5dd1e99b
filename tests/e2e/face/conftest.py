from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from fake_fleet import FakeFleet
from fake_server import Server

from divvy.cli import main


class Ran(NamedTuple):
    """What one run of the command line gave."""

    code: int
    out: str
    err: str


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


@pytest.fixture
def home(fleet: FakeFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory at whose socket the fake answers."""
    for name in ("DIVVY_SERVER", "DIVVY_TOKEN", "DIVVY_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DIVVY_HOME", str(tmp_path))
    with Server(fleet, tmp_path / "socket"):
        yield tmp_path


@pytest.fixture
def divvy(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Ran]:
    """Run the command line in this process, as a pipe sees it."""

    def run(*args: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["divvy", *args])
        capsysbinary.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsysbinary.readouterr()
        return Ran(code, out.decode(), err.decode())

    return run
