"""Refuses what would not reach the engine, and says which command of the engine does it."""

from __future__ import annotations

from divvy.errors import ConflictError
from divvy.service.ports import ByHand


def require_reach(hand: ByHand | None, what: str, command: str) -> None:
    """Refuse a request that this mode does not carry out; nothing is recorded then.

    Args:
        hand: What names the engine's commands; None where Divvy acts itself.
        what: What was asked, such as ``cancel job 17``.
        command: The command that does it; empty where the engine has nothing to do with it.

    Raises:
        ConflictError: If the mode does not reach the engine.
    """
    if hand is None or not command:
        return
    raise ConflictError.one(
        "mode-looks-on",
        f"Divvy runs with --mode {hand.mode} here and does not {what}; nothing was changed",
        path="mode",
        allowed="this in --mode enforce; in observe and advise it is done in Slurm itself",
        fix=f"run: {command}",
    )
