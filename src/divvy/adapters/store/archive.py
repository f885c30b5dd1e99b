"""The journal's reader: the first start, the state after the last entry, and any entry again."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa

from divvy.adapters.store.database import Database
from divvy.adapters.store.journal import write_base
from divvy.adapters.store.rows import dump
from divvy.adapters.store.tables import base, blob, budget_version, counter, fence, journal
from divvy.control.codec import canonical, digest, restore, state_document
from divvy.control.journal import Compaction, Entry, Step, read_events, walk
from divvy.control.state import FleetState
from divvy.errors import NotFoundError, UnavailableError
from divvy.fleet.budget import Budget
from divvy.fleet.ledger import LedgerEntry

_PAGE = 500


class Tenure(NamedTuple):
    """What a loop finds when it takes over.

    Attributes:
        term: Number of the tenure; every append claims it.
        at: Newest time in the journal, ms.
        boot: The boot of the machine in which `uptime` was read.
        uptime: ms since that boot when `at` was written.
    """

    term: int
    at: int
    boot: str
    uptime: int


class Loaded(NamedTuple):
    """The state after the last entry."""

    state: FleetState
    seq: int
    since_base: int


def is_new(database: Database) -> bool:
    """Return whether nothing was ever journalled here."""
    with database.read() as connection:
        return connection.execute(sa.select(fence.c.id)).first() is None


def found(database: Database, budget: Budget, at: int, author: str, reason: str) -> None:
    """Write the first base snapshot and the first version of the budget, in one transaction."""
    state = FleetState(budget, epoch=at)
    data = canonical(state_document(state.snapshot))
    document = dump(budget.to_document())
    with database.write() as connection:
        write_base(connection, 0, at, state.snapshot.version, data)
        connection.execute(
            budget_version.insert().values(
                version=1, at=at, author=author, reason=reason, document=document, changes="[]"
            )
        )
        connection.execute(fence.insert().values(id=1, term=0, owner="", seq=0, at=at, boot="", uptime=0))
        connection.execute(sa.delete(counter).where(counter.c.name == "job"))
        connection.execute(counter.insert().values(name="job", value=0))


def take_over(database: Database, owner: str) -> Tenure:
    """Begin a tenure: from now on every older loop is refused when it appends."""
    step = fence.update().values(term=fence.c.term + 1, owner=owner)
    with database.write() as connection:
        row = connection.execute(step.returning(fence.c.term, fence.c.at, fence.c.boot, fence.c.uptime)).one()
    return Tenure._make(row)


def load(database: Database, on_ledger: Callable[[LedgerEntry], None] | None = None) -> Loaded:
    """Return the state after the last journal entry.

    The newest base snapshot that is sound is the start; a damaged one costs time, not state, while an
    older one is kept. Ledger entries that replayed events close are not passed on: they are in the store.

    Raises:
        UnavailableError: If no base snapshot can be used or the journal does not fit it.
    """
    live = False

    def charge(entry: LedgerEntry) -> None:
        if live and on_ledger is not None:
            on_ledger(entry)

    damage: UnavailableError | None = None
    for start in _bases(database):
        try:
            state = restore(_blob(database, start.sha), charge)
        except UnavailableError as error:
            damage = damage or error
            continue
        seq, events = start.seq, 0
        for step in steps(database, after=start.seq):
            walk(state, step)
            if isinstance(step, Entry):
                seq = step.seq
                events += len(step.happened) + len(step.carried_out)
            else:
                events = 0
        live = True
        return Loaded(state, seq, events)
    raise damage or UnavailableError.one(
        "base-missing", "the journal has no base snapshot", fix="restore a copy of the database"
    )


def state_before(database: Database, seq: int) -> tuple[FleetState, int]:
    """Return a state from which the entries up to ``seq`` can be applied, and the entry it stands after.

    Raises:
        NotFoundError: If the journal no longer reaches back so far, or not yet so far.
    """
    oldest, newest = bounds(database)
    for start in _bases(database) if seq <= newest else ():
        if start.seq < seq:
            return restore(_blob(database, start.sha)), start.seq
    raise NotFoundError.one(
        "entry-unknown",
        f"no journal entry {seq}",
        path="SEQ",
        allowed=f"{oldest} to {newest}" if newest else "none yet",
        fix="see `divvy replay --last 10`",
    )


def bounds(database: Database) -> tuple[int, int]:
    """Return the numbers of the oldest entry that can be re-run and of the newest; (0, 0) if none."""
    with database.read() as connection:
        first = connection.execute(sa.select(sa.func.min(base.c.seq))).scalar_one_or_none()
        last = connection.execute(sa.select(sa.func.max(journal.c.seq))).scalar_one_or_none()
    if first is None or last is None:
        return 0, 0
    return int(first) + 1, int(last)


def recent_pass(database: Database, count: int) -> int:
    """Return the number of the oldest of the last so many entries with a plan; 0 if there is none."""
    query = (
        sa.select(journal.c.seq).where(journal.c.planner != "").order_by(journal.c.seq.desc()).limit(count)
    )
    with database.read() as connection:
        return min(connection.execute(query).scalars(), default=0)


def steps(database: Database, *, after: int, until: int | None = None) -> Iterator[Step]:
    """Yield entries and compactions in order, a page at a time.

    Raises:
        UnavailableError: If an entry is missing or damaged.
    """
    marks = [(row.seq, row.at) for row in _bases(database) if row.seq > after]  # newest first
    while True:
        query = sa.select(journal).where(journal.c.seq > after).order_by(journal.c.seq).limit(_PAGE)
        if until is not None:
            query = query.where(journal.c.seq <= until)
        with database.read() as connection:
            rows = connection.execute(query).all()
        for row in rows:
            if row.seq != after + 1:
                raise UnavailableError.one(
                    "journal-damaged",
                    f"journal entry {after + 1} is missing",
                    fix="restore a copy of the database",
                )
            after = row.seq
            yield _entry(row)
            if marks and marks[-1][0] == after:
                yield Compaction(*marks.pop())
        if len(rows) < _PAGE:
            return


def _entry(row: sa.Row[Any]) -> Entry:
    try:
        body = json.loads(zlib.decompress(row.body))
    except (zlib.error, ValueError) as error:
        raise UnavailableError.one(
            "journal-damaged", f"journal entry {row.seq} is damaged: {error}"
        ) from error
    return Entry(
        row.seq,
        row.at,
        row.version,
        row.planner,
        row.seed,
        read_events(body["happened"]),
        body["plan"],
        read_events(body["carried_out"]),
    )


def _bases(database: Database) -> list[sa.Row[Any]]:
    with database.read() as connection:
        return list(connection.execute(sa.select(base).order_by(base.c.seq.desc())).all())


def _blob(database: Database, sha: str) -> dict[str, Any]:
    with database.read() as connection:
        body = connection.execute(sa.select(blob.c.body).where(blob.c.sha == sha)).scalar_one_or_none()
    try:
        data = zlib.decompress(body or b"")
    except zlib.error:
        data = b""
    if digest(data) != sha:
        raise UnavailableError.one(
            "base-damaged",
            f"base snapshot {sha[:12]} is missing or damaged",
            fix="restore a copy of the database",
        )
    document: dict[str, Any] = json.loads(data)
    return document
