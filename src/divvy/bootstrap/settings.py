"""What `divvy up` was asked for, where its state lies, and the store there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from divvy.adapters.store.database import Database, open_database
from divvy.adapters.store.schema import check, prepare


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """What `divvy up` was asked for, as plain values: it crosses process boundaries as JSON.

    Attributes:
        home: State directory.
        database: URL of the store.
        policy: Name of the planner.
        shape: Devices offered by the local engine, such as ``8`` or ``2x4``; empty: what the machine has.
        slots: Whether ``shape`` means CPU slots even where there are GPUs.
        seed: Passed to the planner.
        keep_jobs_days: How long jobs that are over stay readable.
        keep_journal_days: How long passes can be re-run.
        trust_wall_clock: Take the wall clock at the start even if it was set since the last run.
        engine: Name of the engine: ``local``, ``slurm`` or ``ray``.
        mode: What Divvy may do to an engine that decides for itself: ``observe``, ``advise`` or ``enforce``.
        engine_file: File of the engine's own settings; empty: none.
        engine_address: Where the engine is; empty: where it is by default.
        notify: File that names the receivers of notifications; empty: nobody is told.
        topology: Files of the interconnect that pairs are made on, with measured costs, joined by the path
            separator; empty: none.
        restarts: How often the loop was started before, by the same `divvy up`.
    """

    home: str
    database: str
    policy: str = "budget"
    shape: str = ""
    slots: bool = False
    seed: int = 0
    keep_jobs_days: float = 90
    keep_journal_days: float = 14
    trust_wall_clock: bool = False
    engine: str = "local"
    mode: str = "enforce"
    engine_file: str = ""
    engine_address: str = ""
    notify: str = ""
    topology: str = ""
    restarts: int = 0


def default_home() -> Path:
    """Return the state directory: ``$DIVVY_HOME``, else /var/lib/divvy for root, else the user's own."""
    given = os.environ.get("DIVVY_HOME")
    if given:
        return Path(given).absolute()
    return Path("/var/lib/divvy") if os.geteuid() == 0 else Path.home() / ".local/share/divvy"


def default_database(home: Path) -> str:
    """Return the URL of the embedded store."""
    return f"sqlite:///{home / 'divvy.db'}"


def open_store(url: str, *, verify: bool = False) -> Database:
    """Open a store and bring its schema up to date; if asked, read an embedded one through first.

    Raises:
        DivvyError: If it cannot be used, with the reason and what to do.
    """
    database = open_database(url)
    try:
        if verify:
            check(database)
        prepare(database)
    except BaseException:
        database.dispose()
        raise
    return database
