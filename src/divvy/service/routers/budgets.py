"""Budgets and statements: what was given to whom, who may change it, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Annotated, Any, Final

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from divvy.control.changes import budget_changes
from divvy.control.statement_document import document
from divvy.errors import ConflictError, InputError, NotFoundError
from divvy.fleet.account import ROOT, AccountTree
from divvy.fleet.budget import read_budget
from divvy.service import render, schemas, statements
from divvy.service.answers import aged, aged_bytes, answer, dump
from divvy.service.context import Caller, Service, Shared, printable_fault
from divvy.service.describe import answers
from divvy.service.identity import Identity, Role, within
from divvy.service.ports import BudgetRecord
from divvy.service.requests import MAX_PAGE, BudgetRequest, ShareRequest
from divvy.units import DAY, SECOND

router = APIRouter(prefix="/v1", tags=["budgets"])

_DEEPEST: Final = 32
_LAST_INSTANT: Final = 32_503_680_000.0  # the year 3000


@router.get("/budget", summary="The budget in force", **answers(schemas.BudgetView, "budget"))
async def budget(service: Shared, _caller: Caller) -> Response:
    """Return the document and every account with its standing."""
    in_force, view, now = service.mirror.in_force(), service.mirror.view, service.now()
    document = {
        "schema": "divvy.budget/1",
        "version": in_force.record.version,
        "document": in_force.record.document,
        "accounts": render.accounts(in_force.budget.tree, view),
    }
    return aged(document, view.at if view is not None else in_force.record.at, now)


@router.get("/budget/history", summary="Its versions", **answers(schemas.BudgetHistory, "budget_history"))
async def history(
    service: Shared,
    _caller: Caller,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Most versions.")] = 100,
) -> Response:
    """Return who changed what, when and why, newest first."""
    records = await run_sync(service.backend.reader.budgets)
    versions = [
        {
            "version": record.version,
            "at": record.at / SECOND,
            "author": record.author,
            "reason": record.reason,
            "changes": record.changes,
        }
        for record in records[:limit]
    ]
    now = service.now()
    return aged({"schema": "divvy.budget.history/1", "versions": versions}, now, now)


@router.put("/budget", summary="Change the budget", **answers(schemas.BudgetAccepted, "budget_change"))
async def replace(request: BudgetRequest, service: Shared, caller: Caller) -> Response:
    """Make a new version from a whole document; owners may change what lies below what they own."""
    caller.require(Role.OWNER, "change budgets")
    if _depth(request.document) > _DEEPEST:
        raise InputError.one(
            "budget-depth", "the document is nested too deeply", path="budget", allowed=f"{_DEEPEST} levels"
        )
    record = await _present(service, request.version)
    return await _change(service, caller, record, request.document, request.reason)


@router.patch(
    "/budget/accounts/{path}", summary="Change one share", **answers(schemas.BudgetAccepted, "budget_change")
)
async def set_share(
    path: Annotated[str, Path(max_length=512)], request: ShareRequest, service: Shared, caller: Caller
) -> Response:
    """Make a new version in which one account has another share of its parent."""
    caller.require(Role.OWNER, "change budgets")
    record = await _present(service, request.version)
    tree = read_budget(record.document).tree
    if tree.row.get(path, ROOT) == ROOT:
        raise NotFoundError.one(
            "account-unknown",
            f"no account {path!r}",
            path="account",
            allowed=", ".join(tree.paths[1:21]),
            fix="choose one of these",
        )
    document = deepcopy(record.document)
    level = document["accounts"]
    *above, name = path.split(".")
    for step in above:
        level = level[step]
    level[name]["share"] = int(request.share) if request.share == int(request.share) else request.share
    return await _change(service, caller, record, document, request.reason)


async def _present(service: Service, version: int) -> BudgetRecord:
    """Return the version in force, from the store and not from memory: a change is made from it.

    Raises:
        ConflictError: If it is not the one that the change was made from.
    """
    record = await run_sync(service.backend.reader.budget)
    if record is None:
        record = service.mirror.in_force().record
    if record.version != version:
        raise ConflictError.one(
            "budget-stale",
            f"the change was made from version {version} of the budget, version {record.version} is in force",
            path="version",
            allowed=str(record.version),
            fix="read the present version and make the change again",
        )
    return record


async def _change(
    service: Service, caller: Identity, record: BudgetRecord, document: Mapping[str, Any], reason: str
) -> Response:
    """Check a new document and who asks for it, store it, and wait for the scheduler's verdict.

    Should another change come first after all, the scheduler refuses this one with the same code.
    """
    faults = printable_fault("reason", reason)
    if faults:
        raise InputError("the reason cannot be stored", faults)
    present, wanted = read_budget(record.document), read_budget(document).to_document()
    changes = budget_changes(present.to_document(), wanted)
    for change in changes:
        _authorise(caller, present.tree, str(change["path"]))
    version = record.version
    seq = await run_sync(service.intake.change_budget, wanted, reason, version, caller.user)
    result = await service.verdict(seq)
    pending = result is None
    made = version + 1 if result is None else result.get("version", version + 1)
    body = {"schema": "divvy.budget.change/1", "version": made, "pending": pending, "changes": changes}
    return answer(body, 202 if pending else 200)


def _authorise(caller: Identity, tree: AccountTree, path: str) -> None:
    """Refuse a change that the caller may not make.

    ``accounts.lab.vision.share`` needs an owner of ``lab``: owners split what they own among its children. An
    account that is not there yet belongs to the nearest account above that is; the policy to administrators.

    Raises:
        DeniedError: If the caller may not.
    """
    section, _, rest = path.partition(".")
    parent = rest.rpartition(".")[0].rpartition(".")[0] if section == "accounts" else ""
    while parent and parent not in tree.row:
        parent = parent.rpartition(".")[0]
    caller.require_split(tree, parent, path)


def _depth(value: Any) -> int:
    """Return how deeply a document is nested, without recursion: it may be hostile."""
    deepest, level = 0, [value]
    while level and deepest <= _DEEPEST:
        deepest += 1
        level = [
            item
            for each in level
            if isinstance(each, dict | list)
            for item in (each.values() if isinstance(each, dict) else each)
        ]
    return deepest


Instant = Annotated[float | None, Query(ge=0, le=_LAST_INSTANT, description="Unix seconds.")]


@router.get("/statement", summary="Owed and delivered", **answers(schemas.Statement, "statement"))
async def statement(
    service: Shared,
    _caller: Caller,
    *,
    account: Annotated[str, Query(max_length=512, description="Only this account and those below it.")] = "",
    from_: Annotated[Instant, Query(alias="from")] = None,
    to: Instant = None,
    hours: Annotated[bool, Query(description="Every hour too.")] = False,
    trace: Annotated[
        bool, Query(description="What it was made from too; per hour the numbers of all ledger entries.")
    ] = False,
) -> Response:
    """Return what each account was owed and what it got; by default over the last seven days."""
    now, hours = service.now(), hours or trace
    end = now if to is None else round(to * SECOND)
    start = end - 7 * DAY if from_ is None else round(from_ * SECOND)
    tree = service.tree()
    if account and tree.row.get(account, ROOT) == ROOT:
        raise NotFoundError.one(
            "account-unknown",
            f"no account {account!r}",
            path="account",
            allowed=", ".join(tree.paths[1:21]),
            fix="choose one of these",
        )
    asked = sum(not account or within(path, account) for path in tree.paths[1:])
    statements.check_period(start, end, hours=hours, accounts=asked)

    def make() -> bytes:
        made, notes = service.statements.make(start, end, now, listed=trace)
        return dump(document(made, account, hours=hours, notes=notes, sources=trace))

    async with service.heavy:
        rendered = await run_sync(make)
    return aged_bytes(rendered, now, service.now())
