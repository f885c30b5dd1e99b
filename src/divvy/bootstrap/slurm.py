"""The Slurm engine, wired: its settings, how Slurm is reached, how much may be done to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import structlog

from divvy.adapters.slurm.engine import Mode, SlurmEngine
from divvy.adapters.slurm.rest.client import RestReader
from divvy.adapters.slurm.settings import SlurmSettings, read_settings
from divvy.adapters.slurm.shell import CommandLine
from divvy.bootstrap.engines import LiveEngine, World
from divvy.bootstrap.settings import LiveSettings
from divvy.errors import InputError

_log = structlog.get_logger("bootstrap")


def slurm_settings(home: Path, file: str) -> SlurmSettings:
    """Return how Slurm is treated; without a path, the heartbeat lies in the state directory.

    Raises:
        InputError: If the file cannot be used.
    """
    settings = read_settings(file)
    return settings if settings.heartbeat else replace(settings, heartbeat=str(home / "slurm-heartbeat"))


def read_mode(text: str) -> Mode:
    """Return a mode by its name.

    Raises:
        InputError: If there is no such mode.
    """
    try:
        return Mode(text)
    except ValueError:
        raise InputError.one(
            "mode-unknown", f"no mode {text!r}", path="--mode", allowed=", ".join(Mode)
        ) from None


def make(settings: LiveSettings, world: World) -> LiveEngine:
    """Make the engine.

    Raises:
        InputError: If its settings cannot be used.
    """
    ours = slurm_settings(Path(settings.home), settings.engine_file)
    mode = read_mode(settings.mode)
    _log.info("slurm", mode=mode.value, api=ours.api, partitions=list(ours.partitions) or "all with GPUs")
    slurm = CommandLine(ours) if ours.api == "cli" else RestReader(ours)
    return SlurmEngine(slurm, world.snapshot, ours, mode, world.clock, world.known)
