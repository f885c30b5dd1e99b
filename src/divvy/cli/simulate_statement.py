"""Statements of replays as files, and beside each the ledger whose entries it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from divvy.cli.statement_file import ledger_text, render, write
from divvy.control.statement_document import document, ledger_rows
from divvy.fleet.ledger import OCCUPANCY
from divvy.sim.measures import Window
from divvy.sim.replay import Replay
from divvy.sim.statement import adjustments, replay_statement
from divvy.units import SECOND

OPTION = "--statement"


def write_statement(path: Path, replay: Replay, window: Window, *, only: bool) -> None:
    """Write the statement of a replay, and its ledger as ``NAME.ledger.csv``.

    Args:
        path: As asked for; with several replays the policy and the seed go before its ending.
        replay: The replay.
        window: What counts.
        only: Whether it is the only replay.

    Raises:
        InputError: If a file cannot be written.
    """
    if not only:
        path = path.with_name(f"{path.stem}.{replay.policy}.{replay.seed}{path.suffix}")
    made, notes = replay_statement(replay, window)
    told = document(made, hours=True, notes=notes)
    end = made.end / SECOND
    told |= {"policy": replay.policy, "seed": replay.seed, "as_of": end, "age_seconds": 0.0}
    write(path, render(told, path.suffix, unix=False), OPTION)
    runs = [{**line, "cause": OCCUPANCY} for line in ledger_rows(made.sources.occupancies)]
    ledger = ledger_text([*runs, *_adjustment_rows(replay, window)])
    write(path.with_name(f"{path.stem}.ledger.csv"), ledger, OPTION)


def _adjustment_rows(replay: Replay, window: Window) -> list[dict[str, Any]]:
    """Return prices and refunds as lines of the ledger; what only a run has is left empty."""
    return [
        {
            "id": number,
            "account": entry.account,
            "job": entry.job,
            "attempt": entry.attempt,
            "from_at": entry.start / SECOND,
            "to_at": entry.end / SECOND,
            "gpus": 0,
            "weight": 0,
            "charge": entry.charge,
            "allocated": entry.allocated,
            "declared_seconds": "",
            "protected_seconds": "",
            "restore_seconds": "",
            "lost_seconds": "",
            "cause": entry.cause,
        }
        for number, entry in adjustments(replay)
        if window.start <= entry.start < window.end
    ]
