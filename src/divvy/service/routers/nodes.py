"""Nodes: out of service and back, now or in a window; faults that node health reports."""

from __future__ import annotations

from anyio.to_thread import run_sync
from fastapi import APIRouter
from starlette.responses import Response

from divvy.errors import InputError, NotFoundError
from divvy.fleet.health import is_fatal
from divvy.service import schemas
from divvy.service.answers import answer
from divvy.service.context import Admin, Service, Shared, printable_fault
from divvy.service.describe import answers
from divvy.service.reach import require_reach
from divvy.service.requests import DrainRequest, FaultRequest
from divvy.units import SECOND

router = APIRouter(prefix="/v1/nodes", tags=["fleet"])


@router.post(
    "/{name}/drain",
    status_code=202,
    summary="Take a node out of service",
    **answers(schemas.Drain, "drain", status=202),
)
async def drain(name: str, request: DrainRequest, service: Shared, caller: Admin) -> Response:
    """Let a node take no more work, now or in a window; what runs there keeps its protection.

    With a window nothing starts there whose protection would outlast its beginning, and the node comes back
    by itself at its end.
    """
    _known(service, name)
    faults = printable_fault("reason", request.reason)
    if faults:
        raise InputError("the reason cannot be stored", faults)
    window = _window(request, service.now())
    hand = service.backend.by_hand
    require_reach(hand, f"drain node {name}", hand.drain(name, request.reason, window) if hand else "")
    await service.verdict(await run_sync(service.intake.drain, name, request.reason, caller.user, window))
    now = window is None or window[0] <= service.now()
    state = "draining" if now else "up"
    return _answer(name, state, request.reason, request.from_at, request.until_at)


@router.delete(
    "/{name}/drain",
    status_code=202,
    summary="Bring a node back into service",
    **answers(schemas.Drain, "drain", status=202),
)
async def undrain(name: str, service: Shared, caller: Admin) -> Response:
    """End a drain, call off an announced one, or clear a fault."""
    _known(service, name)
    _require_resume(service, name)
    await service.verdict(await run_sync(service.intake.undrain, name, caller.user))
    return _answer(name, "up", "")


@router.post(
    "/{name}/fault",
    status_code=202,
    summary="Report a fault of a node",
    **answers(schemas.Drain, "drain", status=202),
)
async def fault(name: str, request: FaultRequest, service: Shared, caller: Admin) -> Response:
    """Take a node out of service for a fault: as protection ends, or at once where it is fatal."""
    _known(service, name)
    fatal = is_fatal(request.code) if request.fatal is None else request.fatal
    if fatal is None:
        raise InputError.one(
            "fault-application",
            f"{request.code} is a fault of an application, not of its node",
            path="code",
            fix="send fatal as true or false to take the node out all the same",
        )
    hand, reason = service.backend.by_hand, f"fault {request.code}"
    command = hand.drain(name, reason, None, fatal=fatal) if hand else ""
    require_reach(hand, f"take node {name} out of service", command)

    def store() -> int:
        return service.intake.fault(name, request.code, caller.user, fatal=fatal)

    await service.verdict(await run_sync(store))
    return _answer(name, "down" if fatal else "draining", f"fault {request.code}")


@router.delete(
    "/{name}/fault",
    status_code=202,
    summary="Report a node well again",
    **answers(schemas.Drain, "drain", status=202),
)
async def healthy(name: str, service: Shared, caller: Admin) -> Response:
    """Let a node that was at fault come back into service."""
    _known(service, name)
    _require_resume(service, name)
    await service.verdict(await run_sync(service.intake.healthy, name, caller.user))
    return _answer(name, "up", "")


def _require_resume(service: Service, name: str) -> None:
    hand = service.backend.by_hand
    require_reach(hand, f"bring node {name} back", hand.undrain(name) if hand else "")


def _window(request: DrainRequest, now: int) -> tuple[int, int] | None:
    """Return the window of a drain (ms), None for one without times.

    Raises:
        InputError: If it ends before it begins, or is over already.
    """
    if request.from_at is None and request.until_at is None:
        return None
    start = now if request.from_at is None else round(request.from_at * SECOND)
    end = 0 if request.until_at is None else round(request.until_at * SECOND)
    if end and end <= max(start, now):
        raise InputError.one(
            "drain-window",
            f"it ends at {end / SECOND:g} and begins at {max(start, now) / SECOND:g}",
            path="until_at",
            allowed="a time after from_at and after now",
        )
    return start, end


def _answer(
    name: str, state: str, reason: str, from_at: float | None = None, until_at: float | None = None
) -> Response:
    document = {"schema": "divvy.drain/1", "node": name, "state": state, "reason": reason}
    return answer({**document, "from_at": from_at, "until_at": until_at}, 202)


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
