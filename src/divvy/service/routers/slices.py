"""What slices worked for accounts, as routers of queries post it: into the ledger, once by its id."""

from __future__ import annotations

from typing import Final

from anyio.to_thread import run_sync
from fastapi import APIRouter
from starlette.responses import Response

from divvy.errors import ConflictError
from divvy.fleet.device import weight_of
from divvy.service import schemas
from divvy.service.answers import answer
from divvy.service.context import Caller, Shared
from divvy.service.describe import answers
from divvy.service.identity import Role, denied
from divvy.service.requests import SlicesRequest
from divvy.units import DAY, SECOND

router = APIRouter(prefix="/v1", tags=["budgets"])

#: Ids are kept longer than this: what could have been charged already is not taken.
_LATEST_MS: Final = 60 * DAY


@router.post("/slices", summary="Charge slice-seconds", **answers(schemas.SlicesCharged, "slices"))
async def charge(request: SlicesRequest, service: Shared, caller: Caller) -> Response:
    """Charge an account for what slices worked for it; the same batch again is charged once."""
    caller.require(Role.OWNER, "charge slices")
    tree = service.tree()
    tree.leaf(request.account)
    if not caller.owns(tree, request.account):
        raise denied(
            "account-denied",
            f"{caller.user} may not charge account {request.account}",
            path="account",
            allowed=f"an owner of {request.account} or an administrator",
        )
    if request.until_at * SECOND < service.now() - _LATEST_MS:
        raise ConflictError.one(
            "slices-old", "it ended too long ago", path="until_at", allowed=f"{_LATEST_MS // DAY} days back"
        )
    worked = sum(weight_of(one.model) * one.microseconds for one in request.slices)
    amount = (worked + 500) // 1000
    seq, created = await run_sync(
        service.intake.charge_slices, request.id, request.account, amount, caller.user
    )
    pending = await service.verdict(seq) is None
    document = {"schema": "divvy.slices/1", "id": request.id, "account": request.account, "charge": amount}
    return answer({**document, "created": created, "pending": pending})
