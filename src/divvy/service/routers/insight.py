"""Questions that no single state answers: what if, what ran when, what others claim, who am I."""

from __future__ import annotations

from typing import Annotated, Final

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query
from starlette.responses import Response

from divvy.errors import InputError
from divvy.planners.jobs import registry
from divvy.service import schemas
from divvy.service.answers import aged, answer, dump
from divvy.service.claims import claims
from divvy.service.context import Caller, Shared
from divvy.service.describe import answers
from divvy.service.requests import WhatIfRequest
from divvy.service.routers.budgets import Instant
from divvy.service.timeline import trace
from divvy.units import DAY, HOUR, SECOND

router = APIRouter(prefix="/v1", tags=["insight"])

_LONGEST: Final = 32 * DAY


@router.get("/me", summary="Who asks", **answers(schemas.Me, "me"))
async def me(service: Shared, caller: Caller) -> Response:
    """Return what the API knows of the caller, so that a page offers only what will be allowed."""
    tree = service.tree()
    document = {
        "schema": "divvy.me/1",
        "user": caller.user,
        "role": caller.role.word,
        "accounts": None if caller.accounts is None else list(caller.accounts),
        "may_split": [path for path in tree.paths[1:] if caller.owns(tree, path)],
        "may_drain": caller.admin,
        "via": caller.via,
    }
    return answer(document)


@router.get("/policies", summary="The policies by name", **answers(schemas.Policies, "policies"))
async def policies(_caller: Caller) -> Response:
    """Return what `policy` of a what-if question may be."""
    named = [{"name": name, "source": registry.documented(name)["source"]} for name in registry.PLANNERS]
    return answer({"schema": "divvy.policies/1", "policies": named})


@router.post("/whatif", summary="What if shares or policy were others", **answers(schemas.WhatIf, "whatif"))
async def whatif(request: WhatIfRequest, service: Shared, _caller: Caller) -> Response:
    """Replay the jobs of the last hours as things are and as asked, and say what changes for whom.

    It changes nothing. The replay runs in a process of its own at the lowest priority; where it takes longer
    than a few seconds the answer is 503 with the code `whatif-computing`: ask the same question again.
    """
    now = service.now()
    question = {"shares": request.shares, "policy": request.policy, "hours": request.hours}
    found = await service.backend.whatif(question, now)
    return aged(found, round(found["basis"]["until_at"] * SECOND), service.now())


@router.get(
    "/trace",
    summary="What ran, for Perfetto",
    responses={200: {"content": {"application/json": {}}, "description": "Chrome trace events"}},
    response_class=Response,
)
async def timeline(
    service: Shared,
    _caller: Caller,
    *,
    from_: Annotated[Instant, Query(alias="from")] = None,
    to: Instant = None,
) -> Response:
    """Return the runs of a period, by default of the last hour, for ui.perfetto.dev."""
    now = service.now()
    end = now if to is None else round(to * SECOND)
    start = end - HOUR if from_ is None else round(from_ * SECOND)
    if not 0 < end - start <= _LONGEST:
        raise InputError.one(
            "period-empty" if end <= start else "period-long",
            f"{(end - start) / SECOND:g} s",
            path="from",
            allowed=f"more than 0, at most {_LONGEST // DAY} days",
        )
    async with service.heavy:
        text = await run_sync(lambda: dump(trace(service.backend.reader, start, end)))
    headers = {"Content-Disposition": 'attachment; filename="divvy-trace.json"'}
    return Response(text, headers=headers, media_type="application/json")


@router.get("/claims", summary="Published claims beside ours", **answers(schemas.Claims, "claims"))
async def claimed(_caller: Caller) -> Response:
    """Return every published claim with what was measured here, its conditions and corrections."""
    found = await run_sync(claims)
    return answer({"schema": "divvy.claims/1", "claims": found})
