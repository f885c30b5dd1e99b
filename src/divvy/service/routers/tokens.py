"""Bearer tokens: made, listed and revoked by administrators."""

from __future__ import annotations

from functools import partial
from typing import Any

from anyio.to_thread import run_sync
from fastapi import APIRouter
from starlette.responses import Response

from divvy.control.token import TokenRow
from divvy.errors import Fault, InputError
from divvy.fleet.account import ROOT, AccountTree
from divvy.planners.jobs.admission import printable
from divvy.service import schemas
from divvy.service.answers import aged, answer
from divvy.service.context import Admin, Shared
from divvy.service.describe import answers
from divvy.service.identity import Role
from divvy.service.render import seconds
from divvy.service.requests import TokenRequest
from divvy.service.tokens import make_token
from divvy.units import DAY, DURATION_HELP, parse_duration

router = APIRouter(prefix="/v1/tokens", tags=["tokens"])

_LONGEST = 3_650 * DAY


@router.get("", summary="All tokens", **answers(schemas.Tokens, "tokens"))
async def listed(service: Shared, _admin: Admin) -> Response:
    """Return the tokens, without their secrets: nobody has those."""
    rows = [_row(token) for token in service.tokens.listed()]
    now = service.now()
    return aged({"schema": "divvy.tokens/1", "tokens": rows}, now, now)


@router.post(
    "", status_code=201, summary="Make a token", **answers(schemas.TokenCreated, "token", status=201)
)
async def create(request: TokenRequest, service: Shared, admin: Admin) -> Response:
    """Make a token and show it this once."""
    faults: list[Fault] = _faults(request, service.tree())
    now = service.now()
    expires = None
    if request.expires_in is not None:
        try:
            expires = now + parse_duration(request.expires_in)
        except ValueError:
            faults.append(
                Fault("duration", "expires_in", f"{request.expires_in!r} is not a duration", DURATION_HELP)
            )
        if expires is not None and not now < expires <= now + _LONGEST:
            faults.append(
                Fault("duration-long", "expires_in", f"{request.expires_in!r}", "more than 0, up to 3650d")
            )
    if faults:
        raise InputError("the token cannot be made", faults)
    token, row = make_token(
        request.user,
        Role[request.role.upper()],
        accounts=request.accounts,
        label=request.label,
        now=now,
        created_by=admin.user,
        expires=expires,
    )
    await run_sync(service.tokens.create, row)
    return answer({"schema": "divvy.token/1", **_row(row), "token": token}, 201)


@router.delete("/{token}", summary="Revoke a token", **answers(schemas.TokenRevoked, "token_revoked"))
async def revoke(token: str, service: Shared, _admin: Admin) -> Response:
    """Revoke a token; it stops working before this answers."""
    await run_sync(partial(service.tokens.revoke, token, service.now()))
    return answer({"schema": "divvy.token.revoked/1", "id": token})


def _faults(request: TokenRequest, tree: AccountTree) -> list[Fault]:
    faults = [
        Fault("text-control", name, "is empty or holds a control character", "printable text", "correct it")
        for name, text in (("user", request.user), ("label", request.label or "-"))
        if not text.strip() or not printable(text)
    ]
    faults += [
        Fault(
            "account-unknown",
            "accounts",
            f"no account {path!r}",
            ", ".join(tree.paths[1:21]),
            "choose one of these",
        )
        for path in request.accounts
        if tree.row.get(path, ROOT) == ROOT
    ]
    return faults


def _row(token: TokenRow) -> dict[str, Any]:
    return {
        "id": token.id,
        "user": token.user,
        "role": token.role,
        "accounts": list(token.accounts),
        "label": token.label,
        "created_at": seconds(token.created),
        "created_by": token.created_by,
        "expires_at": seconds(token.expires),
        "last_used_at": seconds(token.last_used),
    }
