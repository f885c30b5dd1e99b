"""Answers about jobs: lists, the queue, explanations."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from divvy.service.schemas.shape import AccountView, Aged, PlaceView, ReasonView, Shape


class JobView(Shape):
    """One job. What its author wrote is for the author, owners of the account and administrators.

    For everybody else ``name`` and ``note`` are empty and ``argv``, ``cwd`` and ``env`` are null.
    """

    id: str
    name: str
    account: str = Field(description="The account that pays, or is to pay.")
    accounts: list[str] = Field(description="The accounts that may pay, in order.")
    author: str
    gpus: int
    model: str
    clusters: list[str] = Field(description="Clusters where it may run; empty: any.")
    per_node: int
    kind: Literal["batch", "interactive"]
    allocated: bool
    min_runtime_seconds: float
    time_limit_seconds: float | None
    resumable: bool
    restart: bool
    priority: int
    debug: bool = Field(description="Whether the debug rule favours it.")
    state: str = Field(
        description="accepted, queued, protected, interruptible, unallocated, stopping, preempted(N), "
        "finished, failed, cancelled or preempted."
    )
    submitted_at: float
    queued_at: float | None
    started_at: float | None
    ended_at: float | None
    protected_until_at: float | None
    waiting_seconds: float | None
    running_seconds: float | None
    placement: list[PlaceView]
    attempt: int
    preemptions: int
    exit_code: int | None
    cause: str | None = Field(description="Why the last run ended; null before the first end.")
    note: str = Field(description="What the scheduler or the engine said about its end; often empty.")
    argv: list[str] | None = None
    cwd: str | None = None
    env: dict[str, str] | None = None


class Job(JobView, Aged):
    """One job with everything the caller may see."""

    schema_: Literal["divvy.job/1"] = Field("divvy.job/1", alias="schema")


class Jobs(Aged):
    """A page of jobs, newest first."""

    schema_: Literal["divvy.jobs/1"] = Field("divvy.jobs/1", alias="schema")
    jobs: list[JobView]
    next: str | None = Field(description="Give it as `before` for the next page; null on the last.")


class Cancelled(Shape):
    """A cancellation was recorded; the job leaves when the scheduler has seen it."""

    schema_: Literal["divvy.cancel/1"] = Field("divvy.cancel/1", alias="schema")
    job: str
    state: str


class QueuedJob(Shape):
    """One line of the queue."""

    position: int
    id: str
    name: str
    account: str
    author: str
    gpus: int
    min_runtime_seconds: float
    state: str
    waiting_seconds: float
    reason: ReasonView
    ahead: list[str] = Field(description="The next few jobs ahead of it.")
    ahead_count: int


class Queue(Aged):
    """Everything that waits, in the order of service."""

    schema_: Literal["divvy.queue/1"] = Field("divvy.queue/1", alias="schema")
    jobs: list[QueuedJob]
    total: int = Field(description="Waiting jobs in all; the list may be cut by `limit`.")


class AheadView(Shape):
    """A job that goes first, and why."""

    id: str
    account: str
    gpus: int
    why: str


class HistoryView(Shape):
    """Something that happened to a job."""

    at: float
    event: str
    text: str


class StartView(Shape):
    """When a waiting job starts, over many futures run on from the present state by the same planner.

    Runtimes and further submissions are drawn from the last seven days. A future in which the job did not
    start within its horizon is extrapolated.
    """

    p50_at: float = Field(description="Half of the futures say by then.")
    p90_at: float = Field(description="Nine in ten say by then.")
    futures: int
    started_in: int = Field(description="In how many of them it started within the horizon (a day).")
    computed_at: float


class Explanation(Aged):
    """Why a job waits, runs or was preempted, and what would help."""

    schema_: Literal["divvy.explain/1"] = Field("divvy.explain/1", alias="schema")
    job: str
    state: str
    headline: ReasonView
    reasons: list[ReasonView] = Field(description="All reasons, the most severe first.")
    account: AccountView | None
    ahead: list[AheadView]
    ahead_count: int
    numbers: dict[str, float | int | str | None] = Field(
        description="What the codes stand on: needed, free, reclaimable, protected, floor, balance, rank, ..."
    )
    start: StartView | None = Field(
        None, description="Only for a waiting job, if asked for; null also while it is being computed."
    )
    help: list[str]
    history: list[HistoryView]
