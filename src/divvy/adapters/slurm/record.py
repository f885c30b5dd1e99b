"""What Slurm says, as values: jobs, nodes, reservations and past runs, whatever told them.

Times are ms since the Unix epoch, 0 where Slurm has none. Every reader (a command's text, a version of
slurmrestd) makes these, and nothing else of the engine knows where they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from divvy.adapters.slurm.tres import NO_GPUS, Gpus

#: The beginning of the mark (AdminComment) on a job whose hold is Divvy's.
MARK: Final = "divvy"
#: The mark by which job_submit.lua holds a new job; its hold may look like the user's own.
MARK_NEW: Final = "divvy:new"

PENDING: Final = "PENDING"
#: States in which a job holds its devices.
HOLDING: Final = frozenset(
    {"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
)
#: States in which a job waits for devices.
WAITING: Final = frozenset(
    {PENDING, "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job as Slurm has it; a heterogeneous job is one job, an array task is one job.

    Attributes:
        id: As Slurm's commands take it: ``17``, ``17_4`` for a task, ``17`` for a whole heterogeneous job.
        state: Slurm's word, such as ``PENDING``.
        reason: Why it waits, Slurm's word.
        user: Login name.
        account: Slurm's account.
        partition: One, or several with commas while it waits.
        gpus: GPUs it holds, or asks for.
        per_node: GPUs on each node, where it asked so; 0 else.
        nodes: Where it runs or ran.
        node_count: Nodes it has or asks for.
        spread: GPUs per node, where Slurm was asked and told; empty else.
        priority: 0: held.
        nice: Adjustment of the priority.
        mark: AdminComment.
        comment: What the user wrote.
        name: What people call it.
        submit: When it entered the queue; a requeue sets it anew.
        eligible: When it may start; 0: not known, or not before something else happens.
        start: When its run began.
        end: When its run ended, or is going to.
        limit: Time limit; 0: none.
        requeue: Whether Slurm may put it back.
        restarts: How often Slurm did.
        exit_code: Exit code of the batch script, 128 + n for signal n; None where there is none.
        batch: Whether it has a batch script.
        reservation: Reservation it asked for.
        dependency: What it waits for; empty: nothing.
    """

    id: str
    state: str
    reason: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    gpus: Gpus = NO_GPUS
    per_node: int = 0
    nodes: tuple[str, ...] = ()
    node_count: int = 1
    spread: tuple[tuple[str, int], ...] = ()
    priority: int = 1
    nice: int = 0
    mark: str = ""
    comment: str = ""
    name: str = ""
    submit: int = 0
    eligible: int = 0
    start: int = 0
    end: int = 0
    limit: int = 0
    requeue: bool = True
    restarts: int = 0
    exit_code: int | None = None
    batch: bool = True
    reservation: str = ""
    dependency: str = ""

    @property
    def waits(self) -> bool:
        """Return whether it is in Slurm's queue."""
        return self.state in WAITING

    @property
    def holds(self) -> bool:
        """Return whether it holds devices."""
        return self.state in HOLDING

    @property
    def runs(self) -> bool:
        """Return whether its run is under way; one that is completing holds devices and is over already."""
        return self.holds and self.state != "COMPLETING"

    @property
    def over(self) -> bool:
        """Return whether it ended."""
        return not (self.waits or self.holds)

    @property
    def ran(self) -> bool:
        """Return whether a job that is over had devices, if only for less than a second.

        One that was cancelled in the queue has one time for its start and its end, too.
        """
        return bool(self.nodes and self.start) and (self.start < self.end or self.state != "CANCELLED")

    @property
    def held(self) -> bool:
        """Return whether it is held, by whomever."""
        return self.waits and self.priority == 0

    @property
    def ours(self) -> bool:
        """Return whether its hold is Divvy's to lift: marked so, and not the user's own hold."""
        if self.reason.startswith("job requeued") or self.mark == MARK_NEW:
            return True
        return self.mark.startswith(MARK) and self.reason != "JobHeldUser"


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm has it.

    Attributes:
        name: Node name.
        gpus: GPUs it is configured with.
        shared: GPUs of it that are cut into shards now, and so cannot be given whole.
        state: Slurm's word with its flags, such as ``IDLE+DRAIN``.
        reason: Why it is drained or down.
        partitions: Partitions that it is in.
    """

    name: str
    gpus: Gpus
    shared: int = 0
    state: str = "IDLE"
    reason: str = ""
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation.

    Attributes:
        name: Its name.
        start: From when.
        end: Until when.
        nodes: Its nodes.
        users: Who may use it, by name.
        active: Whether it holds now.
    """

    name: str
    start: int
    end: int
    nodes: tuple[str, ...]
    users: tuple[str, ...] = ()
    active: bool = False


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run in the accounting: what was used, to the second.

    Attributes:
        job: Id as in `SlurmJob`.
        state: How it ended, or ``RUNNING``.
        start: When it began.
        end: When it ended; 0: it has not.
        gpus: GPUs it held.
        nodes: Where.
        exit_code: As in `SlurmJob`.
        submit: When it entered the queue.
        account: Slurm's account.
        user: Login name.
        partition: Where it ran.
        name: What people call it.
        comment: What the user wrote, where the accounting keeps it.
    """

    job: str
    state: str
    start: int
    end: int
    gpus: Gpus = NO_GPUS
    nodes: tuple[str, ...] = ()
    exit_code: int | None = None
    submit: int = 0
    account: str = ""
    user: str = ""
    partition: str = ""
    name: str = ""
    comment: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """What Slurm said at one instant.

    Attributes:
        at: When it was asked, ms.
        jobs: Jobs by id, those included that ended a few minutes ago.
        nodes: Nodes by name.
        reservations: Reservations by name.
        past: Runs in the accounting of the jobs that were asked for.
        asked: Jobs whose accounting was asked for, whether or not there is any.
        history: In the first view: every run in the accounting since somebody last looked.
        took_ms: How long it took to ask.
        calls: Requests to slurmctld and slurmdbd that it took.
    """

    at: int
    jobs: Mapping[str, SlurmJob]
    nodes: Mapping[str, SlurmNode]
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    past: Mapping[str, tuple[PastRun, ...]] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    history: Mapping[str, tuple[PastRun, ...]] = field(default_factory=dict)
    took_ms: float = 0.0
    calls: int = 0
