"""What people must do themselves, because the engine is only looked at or advised."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from divvy.adapters.slurm.by_hand import SlurmByHand
    from divvy.bootstrap.settings import LiveSettings


def by_hand(settings: LiveSettings) -> SlurmByHand | None:
    """Return what names the engine's own commands; None where Divvy carries out what is asked itself."""
    if settings.engine != "slurm" or settings.mode == "enforce":
        return None
    from divvy.adapters.slurm.by_hand import SlurmByHand  # noqa: PLC0415 - who has no Slurm does not load it

    return SlurmByHand(settings.mode)
