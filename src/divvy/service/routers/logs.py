"""What jobs print: from an offset, to the present end or for as long as the job lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Final, Literal

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from divvy.control.board import is_over
from divvy.errors import DivvyError, NotFoundError
from divvy.service.context import Caller, Service, Shared
from divvy.service.identity import denied
from divvy.service.logs import CHUNK_BYTES, LogFile, open_log
from divvy.service.ports import JobRecord
from divvy.service.routers.jobs import find_job

router = APIRouter(prefix="/v1", tags=["jobs"])

MAX_BYTES: Final = 1 << 30
_POLL_SECONDS: Final = 0.2
_TEXT: Final = "text/plain; charset=utf-8"


@router.get(
    "/jobs/{job}/logs",
    summary="What it printed",
    responses={200: {"content": {"text/plain": {}}, "description": "The bytes of the log"}},
    response_class=StreamingResponse,
)
async def logs(
    job: str,
    request: Request,
    service: Shared,
    caller: Caller,
    *,
    stream: Annotated[Literal["stdout", "stderr"], Query(description="Which stream.")] = "stdout",
    offset: Annotated[
        int, Query(ge=-MAX_BYTES, le=1 << 60, description="First byte; negative: from the end.")
    ] = 0,
    limit: Annotated[
        int, Query(ge=1, le=MAX_BYTES, description="Most bytes, unless it follows.")
    ] = MAX_BYTES,
    attempt: Annotated[int, Query(ge=0, le=1 << 31, description="Which run; 0: the last one.")] = 0,
    follow: Annotated[bool, Query(description="Go on until the job ends, over all further runs.")] = False,
) -> Response:
    """Return the log of a run as plain bytes, exactly as the job wrote them."""
    record = await find_job(service, job)
    spec = record.spec
    if not caller.sees(service.tree(), spec.author, spec.account):
        raise denied(
            "log-not-yours",
            f"the log of {spec.id} belongs to {spec.author}",
            path="job",
            allowed=f"{spec.author}, an owner of {spec.account} or an administrator",
        )
    if follow:
        service.require_stream()
        return StreamingResponse(_follow(service, request, record, attempt, stream, offset), media_type=_TEXT)
    number = attempt or record.attempt
    log = await run_sync(open_log, service.backend.home, spec.id, number, stream) if number else None
    if log is None:
        raise _no_log(record, number)
    size = log.size()
    begin = max(size + offset, 0) if offset < 0 else offset
    end = min(begin + limit, max(size, begin))
    headers = {"X-Divvy-Attempt": str(number), "X-Divvy-Next-Offset": str(end), "X-Divvy-Size": str(size)}
    return StreamingResponse(log.chunks(begin, end - begin), headers=headers, media_type=_TEXT)


def _no_log(record: JobRecord, attempt: int) -> DivvyError:
    why = "it has not started yet" if not record.attempt else f"there is none of attempt {attempt}"
    return NotFoundError.one(
        "log-none", f"no log of {record.spec.id}: {why}", path="job", fix="follow it (-f), or divvy explain"
    )


async def _follow(
    service: Service, request: Request, record: JobRecord, attempt: int, stream: str, offset: int
) -> AsyncIterator[bytes]:
    """Yield what a job prints until it is over; a job that starts again is followed into its next run."""
    home, name, only = service.backend.home, record.spec.id, attempt > 0
    attempt = attempt or max(record.attempt, 1)
    async with service.streaming():
        log: LogFile | None = None
        try:
            while await service.still_known(request):
                # Whether more can come is asked before reading, so that nothing written in between is lost.
                newest, over = await _progress(service, name)
                if log is None:
                    log = await run_sync(open_log, home, name, attempt, stream)
                    if log is not None and offset < 0:
                        offset = max(log.size() + offset, 0)
                data = await run_sync(log.read, offset, CHUNK_BYTES) if log is not None else b""
                if data:
                    offset += len(data)
                    yield data
                elif over or newest > attempt:
                    if only or newest <= attempt:
                        return
                    if log is not None:
                        log.close()
                    log, attempt, offset = None, attempt + 1, 0
                else:
                    await asyncio.sleep(_POLL_SECONDS)
        finally:
            if log is not None:
                log.close()


async def _progress(service: Service, name: str) -> tuple[int, bool]:
    """Return the newest run of a job, and whether it is over."""
    live = service.mirror.board.jobs.get(name)
    if live is not None:
        return live.attempt, False
    record = await run_sync(service.backend.reader.job, name)
    if record is None:
        return 0, True
    return record.attempt, is_over(record)
