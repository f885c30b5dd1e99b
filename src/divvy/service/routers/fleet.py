"""Health, status, metrics and the stream of versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

import divvy
from divvy.service import schemas
from divvy.service.answers import answer, dump
from divvy.service.context import Anybody, Caller, Service, Shared
from divvy.service.describe import answers
from divvy.units import SECOND

router = APIRouter(tags=["fleet"])

#: Age of the published state from which the scheduler counts as silent. It publishes at least every second.
SILENT_SECONDS: Final = 15.0
_HEARTBEAT_SECONDS: Final = 15.0


@router.get("/v1/health", summary="Whether it works", **answers(schemas.Health, "health", anonymous=True))
async def health(service: Shared, caller: Anybody) -> Response:
    """Answer anybody; where nothing is stale the status is `ok`. Only administrators see the directory."""
    view, now = service.mirror.view, service.now()
    age = None if view is None else max(now - view.at, 0) / SECOND
    silent = age is not None and age > SILENT_SECONDS
    known = caller is not None
    return answer(
        {
            "schema": "divvy.health/1",
            "status": "starting" if age is None else "stale" if silent else "ok",
            "version": divvy.__version__,
            "as_of": view.at / SECOND if view is not None and known else None,
            "age_seconds": age if known else None,
            "scheduler": "unknown" if age is None else "silent" if silent else "running",
            "home": str(service.backend.home) if caller is not None and caller.admin else None,
        }
    )


@router.get("/v1/status", summary="The fleet at a glance", **answers(schemas.Status, "status"))
async def status(service: Shared, _caller: Caller) -> Response:
    """Return nodes, devices and accounts as the last pass left them."""
    return service.status.answer(service.now())


@router.get(
    "/metrics",
    summary="Numbers for Prometheus",
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus text format"}},
    response_class=Response,
)
async def metrics(service: Shared, _caller: Caller) -> Response:
    """Return the metrics; a scraper needs a token of role viewer."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get(
    "/v1/stream",
    summary="One event per published version",
    responses={200: {"content": {"text/event-stream": {}}, "description": 'data: {"version": 7, "at": 1.5}'}},
    response_class=StreamingResponse,
)
async def stream(service: Shared, _caller: Caller) -> Response:
    """Send the version and time of every published state as it comes, beginning with the present one."""
    service.require_stream()
    return StreamingResponse(_versions(service), media_type="text/event-stream")


async def _versions(service: Service) -> AsyncIterator[bytes]:
    async with service.streaming():
        yield b"retry: 2000\n\n"
        seen = -1
        while True:
            view = await service.mirror.moved_since(seen, _HEARTBEAT_SECONDS)
            if view is None:
                yield b": still here\n\n"
                continue
            seen = view.at
            data = dump({"version": view.version, "at": view.at / SECOND})
            yield b"event: version\nid: %d\ndata: %s\n\n" % (view.version, data)
