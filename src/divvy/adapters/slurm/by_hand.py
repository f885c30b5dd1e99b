"""Modes observe and advise: what people run themselves, since Divvy does not pass it on to Slurm."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from typing import Final

from divvy.adapters.slurm.identity import base_id
from divvy.units import SECOND

_SLURMS: Final = re.compile(r"\d+(?:_\d+)?", re.ASCII)
_NAME: Final = re.compile(r"[^A-Za-z0-9]+")


class SlurmByHand:
    """Names the commands of Slurm that do what was asked.

    Args:
        mode: ``observe`` or ``advise``.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def cancel(self, job: str) -> str:
        """Return the command that ends a job; empty for one that is not Slurm's."""
        name = base_id(job)
        return shlex.join(("scancel", name)) if _SLURMS.fullmatch(name) else ""

    def drain(self, node: str, reason: str, window: tuple[int, int] | None, *, fatal: bool = False) -> str:
        """Return the command that takes a node out of service.

        Args:
            node: Its name here; ``node05:v100`` is node05 in Slurm.
            reason: Why.
            window: From and until when, ms, an end of 0 for none; None: from now on.
            fatal: Whether what runs there ends at once.
        """
        name = node.partition(":")[0]
        if window is None:
            state = "DOWN" if fatal else "DRAIN"
            return shlex.join(
                ("scontrol", "update", f"NodeName={name}", f"State={state}", f"Reason={reason}")
            )
        begin, end = window
        return shlex.join(
            (
                "scontrol",
                "create",
                "reservation",
                f"ReservationName=maint_{_NAME.sub('_', name)}",
                f"StartTime={_stamp(begin)}",
                f"EndTime={_stamp(end)}" if end else "Duration=UNLIMITED",
                f"Nodes={name}",
                "Users=root",
                "Flags=MAINT,IGNORE_JOBS",
            )
        )

    def undrain(self, node: str) -> str:
        """Return the command that brings a node back into service."""
        return shlex.join(("scontrol", "update", f"NodeName={node.partition(':')[0]}", "State=RESUME"))


def _stamp(at: int) -> str:
    """Return a time as scontrol takes it, in the zone of this machine."""
    local = datetime.fromtimestamp(at // SECOND, UTC).astimezone()
    return local.strftime("%Y-%m-%dT%H:%M:%S")
