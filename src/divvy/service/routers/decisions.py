"""The journal: every pass with what it decided and why."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from divvy.errors import NotFoundError
from divvy.fleet.reason import TEXT, Reason
from divvy.service import schemas
from divvy.service.answers import aged
from divvy.service.context import Caller, Service, Shared
from divvy.service.describe import answers
from divvy.service.identity import Identity
from divvy.service.ports import PassRecord
from divvy.units import SECOND

router = APIRouter(prefix="/v1/decisions", tags=["journal"])

_MOST: Final = 100
_LARGEST: Final = (1 << 63) - 1


@router.get("", summary="Passes that decided something", **answers(schemas.Decisions, "decisions"))
async def decisions(
    service: Shared,
    _caller: Caller,
    limit: Annotated[int, Query(ge=1, le=_MOST, description="Most passes.")] = 20,
    before: Annotated[int | None, Query(ge=0, le=_LARGEST, description="`next` of the page before.")] = None,
) -> Response:
    """Return the newest passes with their starts and preemptions."""

    def read() -> list[dict[str, Any]]:
        reader = service.backend.reader
        passes = reader.passes(before=before, limit=limit, decisions_only=True)
        found = (reader.entry(record.seq) for record in passes)
        return [_head(*entry) for entry in found if entry is not None]

    async with service.heavy:
        rows = await run_sync(read)
    following = rows[-1]["seq"] if len(rows) == limit else None
    now = service.now()
    return aged({"schema": "divvy.decisions/1", "passes": rows, "next": following}, now, now)


@router.get("/{seq}", summary="One pass in full", **answers(schemas.Decision, "decision"))
async def decision(seq: Annotated[int, Path(ge=0, le=_LARGEST)], service: Shared, caller: Caller) -> Response:
    """Return everything that a pass saw happen and decided; `divvy replay SEQ` runs it again."""
    entry = await run_sync(partial(service.backend.reader.entry, seq))
    if entry is None:
        raise NotFoundError.one(
            "decision-unknown", f"no journal entry {seq}, or it is kept no more", path="seq"
        )
    record, body = entry
    head = _head(record, body)
    events = [_visible(event, service, caller) for event in [*body["happened"], *body["carried_out"]]]
    plan = body.get("plan") or {}
    document = {"schema": "divvy.decision/1", **head, "events": events, "waits": len(plan.get("waits", ()))}
    now = service.now()
    return aged(document, now, now)


def _head(record: PassRecord, body: Mapping[str, Any]) -> dict[str, Any]:
    plan = body.get("plan") or {}
    return {
        "seq": record.seq,
        "at": record.at / SECOND,
        "version": record.version,
        "events": record.events,
        "decisions": [_decision(each) for each in plan.get("decisions", ())],
        "slots": [_slot(each) for each in plan.get("slots", ())],
    }


def _slot(each: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dated slot that was given, or given up."""
    return {
        "kind": each["do"],
        "job": each["job"],
        "placement": [{"node": node, "gpus": gpus} for node, gpus in each.get("nodes", ())],
        "due_at": each["due"] / SECOND if "due" in each else None,
    }


def _decision(each: Mapping[str, Any]) -> dict[str, Any]:
    reason = Reason[str(each["reason"]).upper()]
    return {
        "kind": each["do"],
        "job": each["job"],
        "account": each["account"],
        "gpus": each["gpus"],
        "reason": {"code": reason.name.lower().replace("_", "-"), "text": TEXT[reason]},
        "placement": [{"node": node, "gpus": gpus} for node, gpus in each.get("placement", ())],
        "protected": each.get("protected"),
        "by": each.get("by"),
        "victim_balance": _number(each.get("victim_balance")),
        "balance": _number(each.get("balance")),
    }


def _number(value: Any) -> float | None:
    """Return a number of the journal; infinities are words there, and null here."""
    return float(value) if isinstance(value, int | float) else None


def _visible(event: Mapping[str, Any], service: Service, caller: Identity) -> dict[str, Any]:
    """Return an event without what only its author, owners and administrators may read."""
    shown = dict(event)
    if "at" in shown:
        shown["at"] = shown["at"] / SECOND
    if caller.admin:
        return shown
    if "spec" in shown:
        spec = dict(shown["spec"])
        if not caller.sees(service.tree(), str(spec["author"]), str(spec["account"])):
            spec["name"] = ""
        shown["spec"] = spec
    if "detail" in shown:
        shown["detail"] = ""
    return shown
