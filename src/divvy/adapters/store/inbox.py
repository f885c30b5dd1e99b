"""The loop's side of the intake: requests become events, in order, and each gets its outcome once.

A request that the state takes is marked consumed in the transaction that journals its event. One that is
refused is settled by itself: should the loop die in between, it is simply looked at again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa
import structlog

from divvy.adapters.store.database import Database
from divvy.adapters.store.rows import dump
from divvy.adapters.store.tables import history, intake, job
from divvy.control.health import with_node_state
from divvy.control.state import FleetState
from divvy.errors import ConflictError, DivvyError, UnavailableError
from divvy.fleet.event import (
    Adjusted,
    BudgetChanged,
    Event,
    MaintenanceEnded,
    MaintenanceSet,
    NodeCleared,
    NodeFaulted,
    Stopping,
    Submitted,
    Withdrawn,
    from_document,
)
from divvy.fleet.job import Phase, StopCause
from divvy.fleet.node import NodeState

_BATCH: Final = 1_000
_log = structlog.get_logger("intake")


@dataclass(slots=True)
class Taken:
    """A request that became an event."""

    seq: int
    event: Event
    result: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Refused:
    seq: int
    kind: str
    document: dict[str, Any]
    error: DivvyError


class Inbox:
    """Yields what people asked for.

    Args:
        database: The store.
        state: Against which requests are understood; the loop applies each event before it asks for the next.
        now: Time of the state, ms.
        budget_version: Version of the budget in force.
    """

    def __init__(
        self, database: Database, state: FleetState, now: Callable[[], int], budget_version: int
    ) -> None:
        self._database = database
        self._state = state
        self._now = now
        self.budget_version = budget_version
        self.more = False
        """Whether the last poll left requests for the next."""
        self._taken: dict[int, Taken] = {}
        """By identity of the event: events need not be hashable, and equal ones may come twice."""
        self._busy: set[int] = set()
        """Requests taken or refused whose outcome is not yet written."""
        self._refused: list[_Refused] = []
        self._documents: dict[int, tuple[str, dict[str, Any]]] = {}

    def poll(self) -> Iterator[Event]:
        """Yield an event per waiting request; where the store cannot be read now, none."""
        for row in self._waiting():
            document = json.loads(row.document)
            version = self._state.snapshot.version
            try:
                event = self._event(row.kind, document, row.actor, min(row.at, self._now()))
            except DivvyError as error:
                self._busy.add(row.seq)
                self._refused.append(_Refused(row.seq, row.kind, document, error))
                continue
            if event is None:
                continue
            taken = Taken(row.seq, event)
            self._busy.add(row.seq)
            self._taken[id(event)] = taken
            self._documents[row.seq] = (row.kind, document)
            yield event
            if self._state.snapshot.version > version and isinstance(event, BudgetChanged):
                self.budget_version += 1
                taken.result = {"version": self.budget_version}

    def taken(self, events: Sequence[Event]) -> list[Taken]:
        """Return the requests behind events that were applied.

        A budget that nobody asked for now (a dated share) is a version all the same; its request is number 0.
        """
        found: list[Taken] = []
        for event in events:
            if id(event) in self._taken:
                found.append(self._taken[id(event)])
            elif isinstance(event, BudgetChanged):
                self.budget_version += 1
                found.append(Taken(0, event, {"version": self.budget_version}))
        return found

    def written(self, taken: Iterable[Taken]) -> None:
        """Forget requests whose outcome is in the store."""
        for each in taken:
            self._taken.pop(id(each.event), None)
            self._documents.pop(each.seq, None)
            self._busy.discard(each.seq)

    def refuse(self, event: Event, error: DivvyError) -> bool:
        """Note that the state refused an event; return whether it came from a request."""
        taken = self._taken.pop(id(event), None)
        if taken is None:
            return False
        kind, document = self._documents.pop(taken.seq)
        self._refused.append(_Refused(taken.seq, kind, document, error))
        return True

    def settle(self) -> None:
        """Write the outcomes of refused requests; where that fails, they are kept for the next call.

        Raises:
            UnavailableError: If they cannot be written now.
        """
        if not self._refused:
            return
        now = self._now()
        with self._database.write() as connection:
            for each in self._refused:
                _write_refusal(connection, each, now)
        for each in self._refused:
            _log.info("refused", request=each.kind, seq=each.seq, code=each.error.code, error=str(each.error))
            self._busy.discard(each.seq)
        self._refused.clear()

    def _waiting(self) -> Sequence[sa.Row[Any]]:
        most = _BATCH + len(self._busy)
        query = sa.select(intake).where(intake.c.consumed.is_(None)).order_by(intake.c.seq).limit(most)
        try:
            with self._database.read() as connection:
                rows = connection.execute(query).all()
        except UnavailableError as error:
            _log.warning("intake unreadable", error=str(error))
            return []
        self.more = len(rows) == most
        return [row for row in rows if row.seq not in self._busy]

    def _event(self, kind: str, document: dict[str, Any], actor: str, at: int) -> Event | None:
        """Return the event that a request means now; None leaves the request for later."""
        if kind == "submit":
            event = from_document({"event": "submitted", "at": at, **document})
            assert isinstance(event, Submitted)  # noqa: S101 - asked for just above
            return event
        if kind == "cancel":
            return self._cancel(str(document["job"]))
        if kind == "budget":
            return self._budget(document, actor)
        if kind == "adjust":
            return Adjusted(self._now(), document["account"], int(document["charge"]), document["cause"])
        return self._of_node(kind, str(document.get("node")), document, actor)

    def _of_node(self, kind: str, name: str, document: dict[str, Any], actor: str) -> Event:
        """Return the event that a request about a node means."""
        now = self._now()
        if kind == "fault":
            return NodeFaulted(now, name, document["code"], bool(document["fatal"]))
        if kind == "healthy":
            return NodeCleared(now, name)
        if kind == "undrain":
            return self._undrain(name)
        if kind != "drain":
            raise ConflictError.one("request-unknown", f"a request of kind {kind!r}")
        cause = f"drained by {actor}: {document['reason']}"
        if "start" in document:
            return MaintenanceSet(now, name, int(document["start"]), int(document["end"]), cause)
        return self._node(name, NodeState.DRAINING, cause)

    def _cancel(self, name: str) -> Event | None:
        jobs = self._state.snapshot.jobs
        row = jobs.row.get(name)
        if row is None or jobs.phase[row].terminal:
            raise ConflictError.one("job-over", f"job {name} is over", path="job")
        if jobs.phase[row] is Phase.QUEUED:
            return Withdrawn(self._now(), name)
        if jobs.phase[row] is Phase.STOPPING:
            # It is leaving. Should that put it back into the queue, it is withdrawn there.
            return None
        return Stopping(self._now(), name, StopCause.CANCELLED)

    def _budget(self, document: dict[str, Any], actor: str) -> Event:
        if document["version"] != self.budget_version:
            raise ConflictError.one(
                "budget-stale",
                f"the change was made from version {document['version']} of the budget",
                path="version",
                allowed=str(self.budget_version),
                fix="read the present version and make the change again",
            )
        return BudgetChanged(self._now(), document["document"], actor, document["reason"])

    def _undrain(self, name: str) -> Event:
        """Return the event that ends what keeps a node out: its fault, its maintenance, or a drain."""
        nodes = self._state.snapshot.nodes
        row = nodes.row.get(name, -1)
        if row in nodes.fault:
            return NodeCleared(self._now(), name)
        if row in nodes.window and nodes.node[row].cause in ("", nodes.window[row].cause):
            return MaintenanceEnded(self._now(), name)
        return self._node(name, NodeState.UP, "")

    def _node(self, name: str, to: NodeState, cause: str) -> Event:
        event = with_node_state(self._state, name, to, cause, self._now())
        nodes = self._state.snapshot.nodes
        present = nodes.node[nodes.row[name]].state
        if present is NodeState.DOWN or (to is NodeState.UP and present is NodeState.UP):
            raise ConflictError.one(
                "node-state",
                f"node {name} is {present.name.lower()}",
                path="node",
                allowed="up or draining" if to is NodeState.DRAINING else "draining",
            )
        return event


def settle_rows(connection: sa.Connection, at: int, taken: Iterable[Taken]) -> None:
    """Mark requests as consumed."""
    rows = [{"seq_": each.seq, "result_": dump(each.result) if each.result else None} for each in taken]
    if rows:
        statement = (
            intake.update()
            .where(intake.c.seq == sa.bindparam("seq_"))
            .values(consumed=at, result=sa.bindparam("result_"))
        )
        connection.execute(statement, rows)


def _write_refusal(connection: sa.Connection, refused: _Refused, now: int) -> None:
    problem = dump(refused.error.to_problem())
    connection.execute(intake.update().where(intake.c.seq == refused.seq).values(consumed=now, fault=problem))
    if refused.kind != "submit":
        return
    name = refused.document["spec"]["id"]
    why = "; ".join(str(fault) for fault in refused.error.faults)
    connection.execute(
        job.update().where(job.c.id == name).values(phase=int(Phase.FAILED), stopped=now, note=why)
    )
    connection.execute(
        history.insert().values(
            job=name, at=now, event="refused", detail=dump({"code": refused.error.code, "text": why}), seq=0
        )
    )
