"""The application: routes over one shared service, behind the limits, with problems for every refusal."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial

import structlog
from anyio.to_thread import run_sync
from fastapi import FastAPI

import divvy
from divvy.errors import DivvyError
from divvy.service import problems, web
from divvy.service.answers import Rendered
from divvy.service.context import Service
from divvy.service.describe import describe
from divvy.service.limits import Limits
from divvy.service.metrics import Metrics
from divvy.service.mirror import Mirror
from divvy.service.pairing import PairingDesk
from divvy.service.ports import Backend
from divvy.service.routers import (
    budgets,
    decisions,
    fleet,
    insight,
    jobs,
    logs,
    nodes,
    pairing,
    shown,
    slices,
    tokens,
)
from divvy.service.statements import Statements
from divvy.service.status import StatusPage
from divvy.service.submission import Submissions
from divvy.service.tokens import TokenBook

_TOKENS_EVERY_SECONDS = 10.0

_ABOUT = """\
The control plane of a fleet of GPUs. Over the Unix socket of the machine a caller is known by the kernel;
over TCP a request needs `Authorization: Bearer divvy_...`. Times are Unix seconds. Every refusal is an RFC
9457 problem document that lists all faults at once, with the codes of the command line.
"""
_log = structlog.get_logger("api")


def create_app(backend: Backend) -> FastAPI:
    """Return the application over a backend; it begins to follow the scheduler when it is started."""
    mirror = Mirror(backend.reader)
    service = Service(
        backend=backend,
        mirror=mirror,
        tokens=TokenBook(backend.tokens),
        submissions=Submissions(backend.reader, backend.intake),
        statements=Statements(backend.reader),
        metrics=Metrics(mirror, backend.now, backend.health),
        pairing=PairingDesk(backend.interconnect),
        status=Rendered(mirror, StatusPage(mirror).render),
    )
    app = FastAPI(
        title="Divvy",
        version=divvy.__version__,
        summary="Who gets GPU time, now and over the week.",
        description=_ABOUT,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    for part in (fleet, jobs, logs, budgets, nodes, decisions, tokens, shown, insight, pairing, slices):
        app.include_router(part.router)
    web.mount(app)
    problems.install(app)
    app.openapi = partial(describe, app)  # type: ignore[method-assign]  # FastAPI's documented way to extend it
    app.add_middleware(Limits, observe=service.metrics.observe)
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Load the state, then keep up with it and with the tokens while the application runs."""
    service: Service = app.state.service
    try:
        await service.mirror.refresh()
    except DivvyError as error:  # it answers 503 and tries again: the store may come later
        _log.warning("the store cannot be read yet", error=str(error))
    tokens_task = asyncio.create_task(_keep_tokens(service.tokens), name="tokens")
    try:
        async with service.mirror.running():
            yield
    finally:
        tokens_task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await tokens_task


async def _keep_tokens(book: TokenBook) -> None:
    """Note last uses and learn of tokens that others made or revoked, every few seconds."""
    while True:
        await asyncio.sleep(_TOKENS_EVERY_SECONDS)
        try:
            await run_sync(book.write_used)
            await run_sync(book.reload)
        except DivvyError as error:
            _log.warning("tokens cannot be kept up", error=str(error))
