"""Nodes: out of service, and back."""

from __future__ import annotations

from anyio.to_thread import run_sync
from fastapi import APIRouter
from starlette.responses import Response

from divvy.errors import InputError, NotFoundError
from divvy.service import schemas
from divvy.service.answers import answer
from divvy.service.context import Admin, Service, Shared, printable_fault
from divvy.service.describe import answers
from divvy.service.requests import DrainRequest

router = APIRouter(prefix="/v1/nodes", tags=["fleet"])


@router.post(
    "/{name}/drain",
    status_code=202,
    summary="Take a node out of service",
    **answers(schemas.Drain, "drain", status=202),
)
async def drain(name: str, request: DrainRequest, service: Shared, caller: Admin) -> Response:
    """Let a node take no more work; what runs there keeps its protection and is moved when that ends."""
    _known(service, name)
    faults = printable_fault("reason", request.reason)
    if faults:
        raise InputError("the reason cannot be stored", faults)
    await service.verdict(await run_sync(service.intake.drain, name, request.reason, caller.user))
    return _answer(name, "draining", request.reason)


@router.delete(
    "/{name}/drain",
    status_code=202,
    summary="Bring a node back into service",
    **answers(schemas.Drain, "drain", status=202),
)
async def undrain(name: str, service: Shared, caller: Admin) -> Response:
    """End a drain."""
    _known(service, name)
    await service.verdict(await run_sync(service.intake.undrain, name, caller.user))
    return _answer(name, "up", "")


def _answer(name: str, state: str, reason: str) -> Response:
    return answer({"schema": "divvy.drain/1", "node": name, "state": state, "reason": reason}, 202)


def _known(service: Service, name: str) -> None:
    names = [sight.node.name for sight in service.mirror.seen().nodes]
    if name not in names:
        raise NotFoundError.one(
            "node-unknown",
            f"no node {name[:80]!r}",
            path="node",
            allowed=", ".join(sorted(names)[:20]) or "none yet",
            fix="choose one of these",
        )
