"""Pairs of a prefill and a decode place."""

from __future__ import annotations

from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path
from starlette.responses import Response

from divvy.service.answers import answer
from divvy.service.context import Caller, Shared
from divvy.service.describe import answers
from divvy.service.identity import Role
from divvy.service.requests import PairRequest
from divvy.service.schemas.pairing import Pair, PairOver

router = APIRouter(prefix="/v1", tags=["transfers"])


@router.post("/pair", summary="Choose a prefill and a decode place", **answers(Pair, "pair"))
async def pair(request: PairRequest, service: Shared, caller: Caller) -> Response:
    """Return the pair whose KV cache is there first, its route, the predicted time, and why.

    What the decode place holds already is not sent; what earlier answers have put on the way counts until its
    predicted end.
    """
    caller.require(Role.SUBMITTER, "ask for a pair")
    async with service.heavy:
        return answer(await run_sync(service.pairing.pair, request.model_dump()))


@router.delete("/pair/{name}", summary="Say that a transfer is over", **answers(PairOver, "pair_over"))
async def over(name: Annotated[str, Path(max_length=64)], service: Shared, caller: Caller) -> Response:
    """Forget a pair before its predicted end, so that the next ones may use its way."""
    caller.require(Role.SUBMITTER, "end a pair")
    await run_sync(service.pairing.done, name)
    return answer({"schema": "divvy.pair.over/1", "id": name})
