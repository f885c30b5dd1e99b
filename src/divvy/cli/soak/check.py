"""What must be true of a control plane after everything that was done to it, from its own books."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from divvy.adapters.store import archive
from divvy.adapters.store.database import Database, open_database
from divvy.adapters.store.reader import JobRow, Reader
from divvy.bootstrap.settings import default_database
from divvy.cli.soak.plane import Plane
from divvy.control.journal import replay
from divvy.fleet.job import Phase
from divvy.planners.jobs import registry

_MOST_JOBS = 1_000_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found; everything but the counts should be empty.

    Attributes:
        runs: Runs in the ledger.
        passes: Passes of the journal that were decided again.
        lost: Jobs that were answered and are not there, or not over.
        strange: Jobs that are there and that nobody submitted.
        doubled: Runs that were begun twice.
        wrong: Jobs whose exit code is another than their process had.
        unequal: Ledger entries that differ from the process's own record, or have no process, or the reverse.
        decided: Passes that the planner decides otherwise when asked again.
    """

    runs: int
    passes: int
    lost: tuple[str, ...]
    strange: tuple[str, ...]
    doubled: tuple[str, ...]
    wrong: tuple[str, ...]
    unequal: tuple[str, ...]
    decided: tuple[str, ...]


class _Ran(NamedTuple):
    """What the process above a run noted of it, ms on the machine's own clock."""

    started: int
    ended: int


def inspect(plane: Plane, codes: Mapping[str, int], unsure: Collection[str] = ()) -> Verdict:
    """Return what is wrong in the books of a control plane that is not running.

    Args:
        plane: The control plane.
        codes: Exit code of every job whose submission was answered.
        unsure: Jobs that may be there or not.
    """
    database = open_database(default_database(plane.home))
    try:
        reader = Reader(database)
        jobs = {row.spec.id: row for row in reader.jobs(limit=_MOST_JOBS)}
        runs, unequal = _ledger(reader, plane.home)
        passes, decided = _decisions(database)
    finally:
        database.dispose()
    marks = Counter((plane.base / "marks").read_text(encoding="utf-8").splitlines())
    return Verdict(
        runs,
        passes,
        tuple(name for name in codes if name not in jobs or not jobs[name].over),
        tuple(name for name in jobs if name not in codes and name not in unsure),
        tuple(run for run, times in marks.items() if times > 1),
        tuple(name for name, code in codes.items() if name in jobs and not _ended_so(jobs[name], code)),
        unequal,
        decided,
    )


def _ended_so(row: JobRow, code: int) -> bool:
    return row.phase not in (Phase.FINISHED, Phase.FAILED) or row.exit_code == code


def _ledger(reader: Reader, home: Path) -> tuple[int, tuple[str, ...]]:
    """Compare the ledger with what the process above every run noted; return runs and differences."""
    ran: dict[tuple[str, int], _Ran] = {}
    for record in (home / "jobs").glob("*/*/ended.json"):
        ended = json.loads(record.read_text(encoding="utf-8"))
        if ended["began"]:
            key = (record.parent.parent.name, int(record.parent.name))
            ran[key] = _Ran(ended["started_steady_ms"], ended["ended_steady_ms"])
    entries = reader.ledger()
    booked = {(entry.job, entry.attempt): entry for entry in entries}
    count = Counter((entry.job, entry.attempt) for entry in entries)
    found = [f"{job}/{attempt}: {times} times" for (job, attempt), times in count.items() if times > 1]
    found += [
        f"{job}/{attempt}: only in one of the books" for job, attempt in sorted(booked.keys() ^ ran.keys())
    ]
    for key in booked.keys() & ran.keys():
        entry, run = booked[key], ran[key]
        if entry.ended - entry.started != run.ended - run.started:
            found.append(f"{entry.job}/{entry.attempt}: {entry.ended - entry.started} ms booked")
        if entry.charge != (entry.ended - entry.started) * entry.gpus:
            found.append(f"{entry.job}/{entry.attempt}: charged {entry.charge}")
    return len(entries), tuple(found)


def _decisions(database: Database) -> tuple[int, tuple[str, ...]]:
    """Decide every pass of the journal again; return how many, and which come out otherwise."""
    first = archive.bounds(database)[0]
    state, after = archive.state_before(database, first)
    passes, found = 0, []
    for verdict in replay(state, archive.steps(database, after=after), registry.create, lambda _seq: True):
        passes += 1
        if not verdict.same:
            found.append(str(verdict.differences()[:1]))
    return passes, tuple(found)
