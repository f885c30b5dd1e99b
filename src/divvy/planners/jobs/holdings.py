"""What an account holds and waits for, as the budget planner keeps it between passes."""

from __future__ import annotations

from typing import Final, NamedTuple

from divvy.fleet.decision import Placement
from divvy.fleet.job import JobSpec
from divvy.planners.jobs.queue import AccountQueue, Rank
from divvy.units import MINUTE

#: End of a protection that has no end yet: the run has not begun.
NEVER: Final = 1 << 62
#: Half of it is the work that a preemption of a resumable run is expected to cost.
USUAL_CHECKPOINT: Final = 30 * MINUTE


class Run(NamedTuple):
    """A run that holds devices.

    Attributes:
        row: The job.
        account: Leaf account.
        author: Who submitted it.
        allocated: Whether it is charged.
        placement: Where.
        gpus: Devices.
        weight: Devices x model weight.
        until: End of its protection; a run that has not begun yet is protected without end.
        started: When it began.
        rank: Its place in its account's order.
        lost: Work at stake, GPU-ms, capped at one minimum runtime.
        model: Device model that its job asks for; empty for any.
    """

    row: int
    account: int
    author: str
    allocated: bool
    placement: Placement
    gpus: int
    weight: int
    until: int
    started: int
    rank: Rank
    lost: int
    model: str = ""


class Account:
    """One leaf account: what waits, what it holds, what may be taken from it."""

    __slots__ = (
        "author_gpus",
        "author_usage",
        "bucket",
        "gpus",
        "interruptible",
        "interruptible_gpus",
        "interruptible_ranks",
        "models_run",
        "queue",
        "row",
        "running",
        "spare",
    )

    def __init__(self, row: int) -> None:
        self.row = row
        self.queue = AccountQueue()
        """Allocated jobs."""
        self.spare = AccountQueue()
        """Unallocated jobs."""
        self.interruptible: dict[int, Run] = {}
        self.gpus = 0
        """Devices of its allocated runs."""
        self.interruptible_gpus = 0
        """Devices of those that may be taken."""
        self.interruptible_ranks: dict[Rank, int] = {}
        """How many interruptible runs there are of each rank."""
        self.running: dict[str, int] = {}
        """Weight of allocated runs per author."""
        self.author_gpus: dict[str, int] = {}
        """Devices of allocated runs per author."""
        self.models_run: dict[str, int] = {}
        """How many allocated runs there are by the model that their jobs ask for."""
        self.author_usage: dict[str, float] = {}
        """Window usage per author at the time of `bucket`, where it was asked for."""
        self.bucket = -1

    def models(self) -> frozenset[str]:
        """Return the device models that its allocated jobs ask for, waiting or running; empty is any."""
        running = {model for model, runs in self.models_run.items() if runs}
        return self.queue.models() | running


def at_stake(spec: JobSpec) -> int:
    """Return the work per device that a preemption is expected to cost, ms.

    A resumable run loses the work since its last checkpoint, at a phase nobody knows: half of the usual
    interval. What cannot resume loses all, counted as one minimum runtime at most, so that never
    checkpointing is no shield.
    """
    return min(spec.min_runtime, USUAL_CHECKPOINT) // 2 if spec.resumable else spec.min_runtime
