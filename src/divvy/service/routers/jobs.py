"""Jobs: submit, look, explain, cancel; and the queue."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query
from starlette.responses import Response

from divvy.control.board import is_over, is_waiting
from divvy.control.explain import explain
from divvy.control.launch import LaunchSpec
from divvy.errors import ConflictError, DivvyError, InputError, NotFoundError
from divvy.fleet.job import Phase
from divvy.planners.jobs.admission import JOB_ID
from divvy.service import render, schemas
from divvy.service.answers import aged, answer
from divvy.service.context import Caller, Service, Shared
from divvy.service.describe import answers
from divvy.service.ports import JobRecord
from divvy.service.reach import require_reach
from divvy.service.requests import MAX_PAGE, JobRequest
from divvy.service.submission import prepare, run_as

router = APIRouter(prefix="/v1", tags=["jobs"])

#: What ``?state=`` may say, and the phases that it means.
STATES: Final[dict[str, tuple[Phase | None, ...]]] = {
    "accepted": (None,),
    "queued": (Phase.QUEUED,),
    "waiting": (None, Phase.QUEUED),
    "running": (Phase.PLACED, Phase.RUNNING, Phase.STOPPING),
    "live": (None, *(phase for phase in Phase if not phase.terminal)),
    "ended": tuple(phase for phase in Phase if phase.terminal),
    "finished": (Phase.FINISHED,),
    "failed": (Phase.FAILED,),
    "cancelled": (Phase.CANCELLED,),
    "preempted": (Phase.PREEMPTED,),
}

_LARGEST: Final = (1 << 63) - 1

Account = Annotated[str, Query(max_length=512, description="Only this account and those below it.")]
Author = Annotated[str, Query(max_length=200, description="Only jobs of this author.")]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Most rows.")]


@router.get("/queue", summary="What waits, in the order of service", **answers(schemas.Queue, "queue"))
async def queue(
    service: Shared, caller: Caller, account: Account = "", author: Author = "", limit: Limit = 200
) -> Response:
    """Return waiting jobs; a position is a statement about now, since every start changes balances."""
    view, now = service.mirror.seen(), service.now()
    rows = render.queue_rows(
        service.mirror.board,
        view,
        now,
        account=account,
        author=author,
        limit=limit,
        me=caller.user,
        admin=caller.admin,
    )
    return aged(
        {"schema": "divvy.queue/1", "jobs": rows, "total": service.mirror.board.waiting}, view.at, now
    )


@router.get("/jobs", summary="Jobs, newest first", **answers(schemas.Jobs, "jobs"))
async def jobs(
    service: Shared,
    caller: Caller,
    state: Annotated[str, Query(max_length=32, description="One of: " + ", ".join(STATES))] = "",
    account: Account = "",
    author: Author = "",
    limit: Limit = 100,
    before: Annotated[str, Query(max_length=20, description="`next` of the page before.")] = "",
) -> Response:
    """Return one page of jobs."""
    phases = _phases(state)
    number = _page(before)
    rows = await run_sync(
        partial(
            service.backend.reader.jobs,
            phases=phases,
            account=account or None,
            author=author or None,
            before=number,
            limit=limit,
        )
    )
    tree, now = service.tree(), service.now()
    document = {
        "schema": "divvy.jobs/1",
        "jobs": [
            render.job(row, now, private=caller.sees(tree, row.spec.author, row.spec.account)) for row in rows
        ],
        "next": str(rows[-1].number) if len(rows) == limit else None,
    }
    return aged(document, _as_of(service, now), now)


@router.post("/jobs", status_code=201, summary="Submit a job", **answers(schemas.Job, "job", status=201))
async def submit(request: JobRequest, service: Shared, caller: Caller) -> Response:
    """Store a job; when this answers, it is on disk. The same request with the same id again: 200."""
    for account in (request.account, *request.or_accounts):
        caller.require_submit(account)
    budget = service.mirror.in_force().budget
    view = service.mirror.view
    nodes = [sight.node for sight in view.nodes] if view is not None else []
    who = run_as(caller, service.backend.daemon_uid)
    prepared = prepare(request, caller, who, budget, nodes)
    now = service.now()
    name, created = await run_sync(service.submissions.store, prepared, budget, now, caller.user)
    record = await find_job(service, name)
    service.mirror.put(record)
    document = {
        "schema": "divvy.job/1",
        **render.job(record, now, private=True),
        **_launch(prepared.launch),
    }
    return aged(document, _as_of(service, now), now, 201 if created else 200)


@router.get("/jobs/{job}", summary="One job", **answers(schemas.Job, "job"))
async def job(job: str, service: Shared, caller: Caller) -> Response:
    """Return a job; command, directory and environment only to those who may see them."""
    record = await find_job(service, job)
    now = service.now()
    private = caller.sees(service.tree(), record.spec.author, record.spec.account)
    document = {"schema": "divvy.job/1", **render.job(record, now, private=private)}
    if private:
        stored = await run_sync(service.backend.reader.launch, record.spec.id)
        if stored is not None:
            document |= _launch(LaunchSpec.from_document(stored))
    return aged(document, _as_of(service, now), now)


@router.delete(
    "/jobs/{job}", status_code=202, summary="Cancel a job", **answers(schemas.Cancelled, "cancel", status=202)
)
async def cancel(job: str, service: Shared, caller: Caller) -> Response:
    """Record that a job is to end; a running one is warned, then stopped."""
    record = await find_job(service, job, fresh=True)
    spec = record.spec
    caller.require_cancel(service.tree(), spec.id, spec.author, spec.account)
    if is_over(record):
        state = record.label(service.now())
        raise ConflictError.one("job-over", f"job {spec.id} is over: {state}", path="job")
    hand = service.backend.by_hand
    require_reach(hand, f"cancel job {spec.id}", hand.cancel(spec.id) if hand else "")
    await run_sync(service.intake.cancel, spec.id, caller.user)
    document = {"schema": "divvy.cancel/1", "job": spec.id, "state": record.label(service.now())}
    return answer(document, 202)


@router.get(
    "/jobs/{job}/explain", summary="Why it waits or was preempted", **answers(schemas.Explanation, "explain")
)
async def why(
    job: str,
    service: Shared,
    caller: Caller,
    *,
    start: Annotated[bool, Query(description="The start interval too; takes some seconds.")] = False,
) -> Response:
    """Return what blocks a job, who is ahead, where its account stands, when it starts, what would help."""
    record = await find_job(service, job)
    history = await run_sync(service.backend.reader.history, record.spec.id)
    view, in_force, now = service.mirror.seen(), service.mirror.in_force(), service.now()
    board = service.mirror.board
    known = board.jobs.get(record.spec.id)
    if known is None and not is_over(record):  # stored a moment ago by somebody else
        service.mirror.put(record)
    private = caller.sees(in_force.budget.tree, record.spec.author, record.spec.account)
    policy = in_force.budget.policy
    found = explain(known or record, view, board, policy, history, now, private=private)
    foreseen = None
    if start and is_waiting(known or record):
        foreseen = await service.backend.foresee(record.spec.id, now)
    document = render.explanation(found, in_force.budget.tree, view, record.spec.account, foreseen)
    return aged(document, view.at, now)


async def find_job(service: Service, name: str, *, fresh: bool = False) -> JobRecord:
    """Return a job from memory, or from the store if it is over, or a fresh row is wanted.

    Raises:
        NotFoundError: If there is none; also where the name could not be one.
    """
    record: Any = None
    if JOB_ID.fullmatch(name):
        record = None if fresh else service.mirror.board.jobs.get(name)
        if record is None:
            record = await run_sync(service.backend.reader.job, name)
    if record is None:
        raise unknown_job(name)
    found: JobRecord = record
    return found


def unknown_job(name: str) -> DivvyError:
    """Return the refusal of a job that is not there."""
    return NotFoundError.one(
        "job-unknown", f"no job {name[:80]!r}", path="job", fix="divvy queue --state all lists them"
    )


def _phases(state: str) -> tuple[Phase | None, ...] | None:
    if not state:
        return None
    phases = STATES.get(state)
    if phases is None:
        raise InputError.one(
            "state-unknown", f"no state {state!r}", path="state", allowed=", ".join(STATES), fix="choose one"
        )
    return phases


def _page(before: str) -> int | None:
    """Return the job number before which a page begins."""
    if not before:
        return None
    if not (before.isascii() and before.isdigit() and int(before) <= _LARGEST):
        raise InputError.one(
            "page-before", f"{before!r} is no page", path="before", allowed="`next` of a page"
        )
    return int(before)


def _launch(launch: LaunchSpec) -> dict[str, Any]:
    return {"argv": list(launch.argv), "cwd": launch.cwd, "env": dict(launch.env)}


def _as_of(service: Service, now: int) -> int:
    """Return the time of the state that rows of the store show: that of the last published pass."""
    return service.mirror.view.at if service.mirror.view is not None else now
