"""Recorded output of Slurm beside the checkout; tests that need it are skipped where it is absent."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "slurm"


def path(name):
    """Return a sample; skip the test where it is not there."""
    file = FOLDER / name
    if not file.exists():
        pytest.skip(f"no ../shared/data/slurm/{name} beside the checkout")
    return file


def sample(name):
    """Return the text of a sample."""
    return path(name).read_text(encoding="utf-8")
