"""Health, status, metrics and the stream of versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

import divvy
from divvy.service import schemas
from divvy.service.answers import answer, dump
from divvy.service.context import Anybody, Caller, Service, Shared
from divvy.service.describe import answers
from divvy.service.ports import SchedulerHealth
from divvy.units import SECOND

router = APIRouter(tags=["fleet"])

#: Age of the published state from which the scheduler counts as silent. It publishes at least every second.
SILENT_SECONDS: Final = 15.0
_HEARTBEAT_SECONDS: Final = 15.0


@router.get("/v1/health", summary="Whether it works", **answers(schemas.Health, "health", anonymous=True))
async def health(service: Shared, caller: Anybody) -> Response:
    """Answer anybody; `ok` means that the scheduler decides. Callers who are known learn more."""
    view, now, heard = service.mirror.view, service.now(), service.backend.health()
    age = None if view is None else max(now - view.at, 0) / SECOND
    scheduler = _scheduler(heard, age)
    known = caller is not None
    return answer(
        {
            "schema": "divvy.health/1",
            "status": {"running": "ok", "starting": "starting"}.get(scheduler, "stale"),
            "version": divvy.__version__,
            "as_of": view.at / SECOND if view is not None and known else None,
            "age_seconds": age if known else None,
            "scheduler": scheduler,
            "problem": heard.problem if heard is not None and known else "",
            "home": str(service.backend.home) if caller is not None and caller.admin else None,
        }
    )


def _scheduler(heard: SchedulerHealth | None, age: float | None) -> str:
    """Return how the scheduler is: its own word, unless what it published is too old to believe it."""
    word = heard.state if heard is not None else "running" if age is not None else "starting"
    if word == "running" and age is None:
        return "starting"
    return "silent" if word == "running" and age is not None and age > SILENT_SECONDS else word


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
async def stream(request: Request, service: Shared, _caller: Caller) -> Response:
    """Send the version and time of every published state as it comes, beginning with the present one."""
    service.require_stream()
    return StreamingResponse(_versions(service, request), media_type="text/event-stream")


async def _versions(service: Service, request: Request) -> AsyncIterator[bytes]:
    async with service.streaming():
        yield b"retry: 2000\n\n"
        seen = -1
        while await service.still_known(request):
            view = await service.mirror.moved_since(seen, _HEARTBEAT_SECONDS)
            if view is None:
                yield b": still here\n\n"
                continue
            seen = view.at
            data = dump({"version": view.version, "at": view.at / SECOND})
            yield b"event: version\nid: %d\ndata: %s\n\n" % (view.version, data)
