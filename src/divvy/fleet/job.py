"""Jobs, their contracts and the states they pass through."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class JobKind(IntEnum):
    """What a job is for; interactive ones are warned before they are preempted."""

    BATCH = 0
    INTERACTIVE = 1


class Phase(IntEnum):
    """Where a job is in its life, as stored.

    What people see (protected, interruptible, unallocated) follows from the phase, the contract and the
    time; see `JobTable.label`.

    ``PLACED``: devices are promised, the engine has not yet reported the start (victims may still be
    leaving). ``STOPPING``: told to leave, still there; its devices are already promised to others.
    """

    QUEUED = 0
    PLACED = 1
    RUNNING = 2
    STOPPING = 3
    FINISHED = 4
    FAILED = 5
    CANCELLED = 6
    PREEMPTED = 7

    @property
    def terminal(self) -> bool:
        """Return whether the job is over for good."""
        return self >= Phase.FINISHED


class JobSpec(NamedTuple):
    """A job as submitted, with its contract.

    Attributes:
        id: Unique name.
        account: Path of the leaf account that pays.
        author: Who submitted it.
        gpus: Devices of the gang, all or nothing.
        min_runtime: Declared minimum runtime, ms; 0 means unallocated: free, never protected.
        resumable: Whether a preempted job goes back to the queue and continues.
        restart: Whether a job that is not resumable starts again from zero when preempted.
        priority: Orders jobs inside one account only; higher first.
        kind: Batch or interactive.
        model: Device model asked for; empty takes any.
        per_node: Devices on each node; 0 lets the planner choose (one node where it fits).
        time_limit: Longest runtime of one attempt, ms; 0 means none.
        name: What people call it.
        budgets: Accounts that may pay, in order, where there are several; the first under-served one does.
        clusters: Clusters where it may run; none: any.
    """

    id: str
    account: str
    author: str
    gpus: int
    min_runtime: int
    resumable: bool = True
    restart: bool = False
    priority: int = 0
    kind: JobKind = JobKind.BATCH
    model: str = ""
    per_node: int = 0
    time_limit: int = 0
    name: str = ""
    budgets: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()

    @property
    def allocated(self) -> bool:
        """Return whether its time is charged."""
        return self.min_runtime > 0


class StopCause(IntEnum):
    """Why a run of a job ended."""

    FINISHED = 0
    FAILED = 1
    CANCELLED = 2
    PREEMPTED = 3
    NODE_LOST = 4
    TIME_LIMIT = 5
    DRAINED = 6
    START_FAILED = 7
    LIFETIME = 8
