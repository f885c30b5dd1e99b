"""What the API process writes: requests, each durable before it is answered, for the loop to take in order.

| kind     | document                                                                       |
|----------|--------------------------------------------------------------------------------|
| submit   | {"spec": JobSpec, "debug": bool}                                               |
| cancel   | {"job"}                                                                        |
| budget   | {"document", "reason", "version"}: the version that the change was made from   |
| drain    | {"node", "reason"}; with "start" and "end" (ms; 0: open) maintenance           |
| undrain  | {"node"}                                                                       |
| fault    | {"node", "code", "fatal"}                                                      |
| healthy  | {"node"}                                                                       |
| adjust   | {"account", "charge", "cause"}                                                 |
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from divvy.adapters.store.database import Database
from divvy.adapters.store.rows import spec_values
from divvy.adapters.store.tables import ACCEPTED, counter, intake, job, launch, posted
from divvy.errors import ConflictError, DivvyError, problem_to_error
from divvy.fleet.job import JobSpec
from divvy.fleet.ledger import SLICES

_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford base 32: no i, l, o, u
_POLL_SECONDS: Final = 0.004


class Outcome(NamedTuple):
    """What the loop made of a request: a fault, or a result such as ``{"version": 4}``."""

    fault: DivvyError | None
    result: dict[str, Any]


class Submission(NamedTuple):
    """A stored submission; ``created`` is False where the same one was stored before."""

    job: str
    seq: int
    created: bool


class Posted(NamedTuple):
    """A stored charge of slices; ``created`` is False where the same one was stored before."""

    seq: int
    created: bool


class IntakeWriter:
    """Stores requests and wakes the loop.

    Args:
        database: The store.
        wake: Called after each commit.
        now: Wall clock, ms since the Unix epoch.
    """

    def __init__(
        self, database: Database, wake: Callable[[], None], now: Callable[[], int] | None = None
    ) -> None:
        self._database = database
        self._wake = wake
        self._now = now or (lambda: time.time_ns() // 1_000_000)

    def submit(self, spec: JobSpec, start: Mapping[str, Any], *, debug: bool, actor: str) -> Submission:
        """Store a job; its id is made here where ``spec.id`` is empty.

        Args:
            spec: The job; its account, sizes and times have been checked.
            start: `LaunchSpec` as plain JSON values.
            debug: Admission's answer to the debug rule.
            actor: Who asks.

        Raises:
            ConflictError: If another job has this id; the same one again is answered as the first time.
            UnavailableError: If it cannot be stored now.
        """
        if spec.id:
            before = self._stored(spec, start)
            if before is not None:
                return before
        try:
            seq, stored = self._insert(spec, start, debug=debug, actor=actor)
        except IntegrityError as error:
            before = self._stored(spec, start) if spec.id else None
            if before is None:
                raise _duplicate(spec.id) from error
            return before
        self._wake()
        return Submission(stored, seq, created=True)

    def cancel(self, name: str, actor: str) -> int:
        """Ask for the end of a job; return the number of the request."""
        return self._request("cancel", {"job": name}, actor)

    def change_budget(self, document: Mapping[str, Any], reason: str, version: int, actor: str) -> int:
        """Ask for a new budget version, made from ``version``; return the number of the request."""
        return self._request(
            "budget", {"document": dict(document), "reason": reason, "version": version}, actor
        )

    def drain(self, node: str, reason: str, actor: str, window: tuple[int, int] | None = None) -> int:
        """Ask that a node takes no more work; return the number of the request.

        Args:
            node: Its name.
            reason: Why.
            actor: Who asks.
            window: From when to when (ms; an end of 0: until somebody says so); None: from now on.
        """
        document: dict[str, Any] = {"node": node, "reason": reason}
        if window is not None:
            document |= {"start": window[0], "end": window[1]}
        return self._request("drain", document, actor)

    def fault(self, node: str, code: str, actor: str, *, fatal: bool) -> int:
        """Report a fault of a node; return the number of the request."""
        return self._request("fault", {"node": node, "code": code, "fatal": fatal}, actor)

    def healthy(self, node: str, actor: str) -> int:
        """Report a node well again; return the number of the request."""
        return self._request("healthy", {"node": node}, actor)

    def undrain(self, node: str, actor: str) -> int:
        """Ask that a node takes work again; return the number of the request."""
        return self._request("undrain", {"node": node}, actor)

    def adjust(self, account: str, charge: int, cause: str, actor: str) -> int:
        """Ask for an explicit ledger entry (a refund is negative); return the number of the request."""
        return self._request("adjust", {"account": account, "charge": charge, "cause": cause}, actor)

    def charge_slices(self, name: str, account: str, charge: int, actor: str) -> Posted:
        """Ask for the ledger entry of slices that worked for an account; once, however often it is asked.

        Args:
            name: Id of the batch, made by the router.
            account: Who is charged.
            charge: Device weight x milliseconds.
            actor: Who asks.

        Raises:
            ConflictError: If another batch had this id.
            UnavailableError: If it cannot be stored now.
        """
        try:
            with self._database.write() as connection:
                before = _posted(connection, name, account, charge)
                if before is not None:
                    return before
                document = {"account": account, "charge": charge, "cause": SLICES}
                now = self._now()
                seq = _enqueue(connection, now, "adjust", document, actor)
                row = {"id": name, "at": now, "account": account, "charge": charge, "seq": seq}
                connection.execute(posted.insert().values(**row))
        except IntegrityError:
            with self._database.read() as connection:
                before = _posted(connection, name, account, charge)
            if before is None:
                raise
            return before
        self._wake()
        return Posted(seq, created=True)

    def outcome(self, seq: int, timeout_seconds: float = 0) -> Outcome | None:
        """Return what came of a request, None while the loop has not taken it within the timeout."""
        limit = time.monotonic() + timeout_seconds
        query = sa.select(intake.c.consumed, intake.c.fault, intake.c.result).where(intake.c.seq == seq)
        while True:
            with self._database.read() as connection:
                row = connection.execute(query).one_or_none()
            if row is None:  # retention removed it: it was taken long ago
                return Outcome(None, {})
            if row.consumed is not None:
                fault = problem_to_error(json.loads(row.fault)) if row.fault else None
                return Outcome(fault, json.loads(row.result) if row.result else {})
            if time.monotonic() >= limit:
                return None
            time.sleep(_POLL_SECONDS)

    # -- inside ---------------------------------------------------------------------------------------

    def _request(self, kind: str, document: dict[str, Any], actor: str) -> int:
        with self._database.write() as connection:
            seq = _enqueue(connection, self._now(), kind, document, actor)
        self._wake()
        return seq

    def _insert(self, spec: JobSpec, start: Mapping[str, Any], *, debug: bool, actor: str) -> tuple[int, str]:
        now = self._now()
        with self._database.write() as connection:
            number = _next_number(connection)
            while not spec.id:
                candidate = job_id(number)
                taken = connection.execute(sa.select(job.c.id).where(job.c.id == candidate)).first()
                if taken is None:
                    spec = spec._replace(id=candidate)
                else:  # somebody chose the very id that was next
                    number = _next_number(connection)
            connection.execute(launch.insert().values(job=spec.id, document=_dump(start)))
            connection.execute(job.insert().values(**_job_row(spec, number, now, debug=debug)))
            seq = _enqueue(connection, now, "submit", {"spec": spec._asdict(), "debug": debug}, actor)
        return seq, spec.id

    def _stored(self, spec: JobSpec, start: Mapping[str, Any]) -> Submission | None:
        """Return the earlier submission of the same job, None where there is none."""
        query = (
            sa.select(launch.c.document, job).join(job, job.c.id == launch.c.job).where(job.c.id == spec.id)
        )
        with self._database.read() as connection:
            row = connection.execute(query).mappings().one_or_none()
        if row is None:
            return None
        wanted = spec_values(spec)
        payers = spec.budgets or (spec.account,)  # which of them is to pay now is not part of what was asked
        same = row["account"] in payers and all(row[name] == wanted[name] for name in _COMPARED)
        if not same or row["document"] != _dump(start):
            raise _duplicate(spec.id)
        return Submission(spec.id, 0, created=False)


_COMPARED: Final = tuple(name for name in JobSpec._fields if name not in ("id", "account"))


def _posted(connection: sa.Connection, name: str, account: str, charge: int) -> Posted | None:
    """Return the same charge, stored before; None where there is none."""
    row = connection.execute(sa.select(posted).where(posted.c.id == name)).one_or_none()
    if row is None:
        return None
    if (row.account, row.charge) != (account, charge):
        raise ConflictError.one(
            "slices-duplicate",
            f"batch {name} was {row.charge} of {row.account}",
            path="id",
            fix="give every batch an id of its own",
        )
    return Posted(row.seq, created=False)


def job_id(number: int) -> str:
    """Return the id of the n-th job: short, and sortable as text up to the 34th thousand million."""
    digits = ""
    while number:
        number, digit = divmod(number, 32)
        digits = _DIGITS[digit] + digits
    return "j" + digits.rjust(7, "0")


def _duplicate(name: str) -> DivvyError:
    return ConflictError.one(
        "job-duplicate",
        f"another job {name} exists already",
        path="id",
        fix="choose another id, or leave it away",
    )


def _dump(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _enqueue(connection: sa.Connection, at: int, kind: str, document: Mapping[str, Any], actor: str) -> int:
    statement = intake.insert().values(at=at, kind=kind, actor=actor, document=_dump(document))
    return int(connection.execute(statement.returning(intake.c.seq)).scalar_one())


def _next_number(connection: sa.Connection) -> int:
    step = counter.update().where(counter.c.name == "job").values(value=counter.c.value + 1)
    number = connection.execute(step.returning(counter.c.value)).scalar_one_or_none()
    if number is None:
        connection.execute(counter.insert().values(name="job", value=1))
        number = 1
    return int(number)


def _job_row(spec: JobSpec, number: int, now: int, *, debug: bool) -> dict[str, Any]:
    return {
        **spec_values(spec),
        "number": number,
        "debug": debug,
        "phase": ACCEPTED,
        "submitted": now,
        "queued": now,
        "protected_until": 0,
        "placement": "[]",
        "preemptions": 0,
        "attempt": 0,
        "rate": 0,
        "note": "",
        "changed": 0,
    }
