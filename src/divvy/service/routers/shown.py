"""What people put on the page: plans of slices, topologies and routes, and pictures of topologies."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path
from starlette.responses import Response

from divvy.errors import InputError
from divvy.fleet.topology.document import read_topology
from divvy.fleet.topology.picture import draw
from divvy.service import schemas
from divvy.service.answers import aged, answer
from divvy.service.context import Admin, Caller, Shared, printable_fault
from divvy.service.describe import answers
from divvy.service.requests import ShownRequest
from divvy.service.shown import NAME, ShownDocuments, check_document
from divvy.units import SECOND

router = APIRouter(prefix="/v1/shown", tags=["shown"])

Name = Annotated[str, Path(pattern=NAME, description="Its name on the page.")]


@router.get("", summary="What the page shows besides the fleet", **answers(schemas.ShownList, "shown"))
async def listed(service: Shared, _caller: Caller) -> Response:
    """Return names, kinds and origins; the documents themselves are asked for one by one."""
    rows = await run_sync(_documents(service).listed)
    now = service.now()
    return aged({"schema": "divvy.shown/1", "documents": rows}, now, now)


@router.get("/{name}", summary="One document", **answers(schemas.Shown, "shown_document"))
async def one(name: Name, service: Shared, _caller: Caller) -> Response:
    """Return a document as it was printed, with who put it here, when and by which command."""
    found = await run_sync(partial(_documents(service).get, name))
    now = service.now()
    return aged({"schema": "divvy.shown.document/1", **found}, now, now)


@router.get(
    "/{name}/picture",
    summary="A picture of a topology",
    responses={200: {"content": {"image/svg+xml": {}}, "description": "SVG"}},
    response_class=Response,
)
async def picture(name: Name, service: Shared, _caller: Caller) -> Response:
    """Return the picture that `divvy topo show --svg` writes."""
    found = await run_sync(partial(_documents(service).get, name))
    if found["kind"] != "divvy.topo/1":
        raise InputError.one(
            "picture-none", f"{name} is {found['kind']}", path="name", allowed="a topology (divvy.topo/1)"
        )
    async with service.heavy:
        text = await run_sync(lambda: draw(read_topology(name, json.dumps(found["document"]))))
    return Response(text, media_type="image/svg+xml")


@router.put(
    "/{name}",
    status_code=201,
    summary="Show a document",
    **answers(schemas.ShownKept, "shown_kept", status=201),
)
async def put(name: Name, request: ShownRequest, service: Shared, caller: Admin) -> Response:
    """Put what a verb printed with --json on the page; one of the same name is replaced."""
    faults = printable_fault("command", request.command)
    if faults:
        raise InputError("the command cannot be stored", faults)
    check_document(request.document)
    if request.document["schema"] == "divvy.topo/1":
        read_topology(name, json.dumps(request.document))
    kept = await run_sync(
        partial(
            _documents(service).put,
            name,
            request.document,
            by=caller.user,
            at=service.now() / SECOND,
            command=request.command,
            example=request.example,
        )
    )
    return answer({"schema": "divvy.shown.kept/1", **kept}, 201)


@router.delete(
    "/{name}", summary="Take a document off the page", **answers(schemas.ShownRemoved, "shown_removed")
)
async def remove(name: Name, service: Shared, _caller: Admin) -> Response:
    """Take a document off the page; nothing else changes."""
    await run_sync(partial(_documents(service).remove, name))
    return answer({"schema": "divvy.shown.removed/1", "name": name})


def _documents(service: Shared) -> ShownDocuments:
    return ShownDocuments(service.backend.home / "shown")
