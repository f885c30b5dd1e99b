"""Results of a benchmark kept in files, so that a run that was stopped goes on: only with the same code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import divvy

Figures = Mapping[str, float]


class Kept:
    """Results by what was asked for.

    Args:
        directory: Where they are kept; None to keep nothing.
        rooms: Files and directories of the package that decide the figures: a result is used only by the
            code that made it.
    """

    def __init__(self, directory: Path | None, rooms: Sequence[str]) -> None:
        self._directory = directory
        self._code = _fingerprint(rooms) if directory is not None else ""
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)

    def find(self, key: Any) -> Figures | None:
        """Return a kept result; None where there is none or it was cut off."""
        path = self._path(key)
        if path is None or not path.exists():
            return None
        try:
            figures: Figures = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            return None
        return figures

    def store(self, key: Any, figures: Figures) -> None:
        """Keep a result."""
        path = self._path(key)
        if path is not None:
            path.write_text(json.dumps(figures), encoding="utf-8")

    def _path(self, key: Any) -> Path | None:
        if self._directory is None:
            return None
        text = json.dumps([self._code, *key], sort_keys=True)
        return self._directory / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def _fingerprint(rooms: Sequence[str]) -> str:
    """Return a fingerprint of the modules that decide the figures."""
    root = Path(divvy.__file__).parent
    digest = hashlib.sha256()
    for room in rooms:
        place = root / room
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.read_bytes())
    return digest.hexdigest()
