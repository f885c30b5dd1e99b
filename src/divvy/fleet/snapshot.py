"""Snapshots: the fleet at one version, in columns, with a log of what changed since the last ones.

Building 100,000 frozen objects per pass would cost more than a pass may take, so a snapshot is a *view*
on live columns: valid until the state that owns it applies its next event. Planners only read it. Rows
of jobs are stable for as long as the change log reaches back (compaction renumbers them and empties it);
rows of accounts belong to one tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from divvy.fleet.account import AccountTree
from divvy.fleet.budget import Policy
from divvy.fleet.decision import Placement
from divvy.fleet.health import LostRun, NodeFault, Window
from divvy.fleet.job import JobSpec, Phase, StopCause
from divvy.fleet.node import Node
from divvy.fleet.usage import ChargeHistory

NEVER = -1


class Change(IntEnum):
    """What a row of the change log speaks of; the row number is that of the subject."""

    JOB = 0
    NODE = 1
    TREE = 2


class Slot(NamedTuple):
    """A dated slot of a gang that waits; see `divvy.fleet.decision.Hold`."""

    placement: Placement
    due: int
    since: int


class JobTable:
    """Columns over jobs; every list has one entry per row.

    Times are ms since the state's epoch (the Unix epoch live, the first submission in replay).
    """

    __slots__ = (
        "account",
        "attempt",
        "debug",
        "exit_code",
        "live",
        "phase",
        "placement",
        "preemptions",
        "protected_until",
        "queued",
        "rate",
        "row",
        "several",
        "slot",
        "spec",
        "started",
        "stop_cause",
        "stopped",
        "submitted",
        "surcharge",
    )

    def __init__(self) -> None:
        self.row: dict[str, int] = {}
        """Row per job id."""
        self.live: dict[int, None] = {}
        """Rows that are not over, in order of submission."""
        self.several: dict[str, None] = {}
        """Jobs that are not over and that several accounts may pay for."""
        self.spec: list[JobSpec] = []
        self.account: list[int] = []
        """Row of the leaf account in the present tree."""
        self.phase: list[Phase] = []
        self.submitted: list[int] = []
        self.queued: list[int] = []
        """Since when it waits; equal to submitted until the first preemption."""
        self.started: list[int] = []
        """When the present run was placed (PLACED) or started (RUNNING, STOPPING); NEVER before."""
        self.stopped: list[int] = []
        """When the job ended for good; NEVER before."""
        self.stop_cause: list[StopCause] = []
        """Why the present run was told to leave, or why the last one ended."""
        self.exit_code: list[int | None] = []
        """Exit code of the last run; None where there was none to ask."""
        self.protected_until: list[int] = []
        """End of the present run's protection; 0 where it has none."""
        self.placement: list[Placement] = []
        """Nodes and devices of the present run; empty when it has none."""
        self.slot: dict[int, Slot] = {}
        """Dated slots, by row of the gang that waits for it."""
        self.preemptions: list[int] = []
        self.attempt: list[int] = []
        """Runs begun so far."""
        self.debug: list[bool] = []
        """Whether the debug rule favours it (decided at admission)."""
        self.rate: list[int] = []
        """Charge per ms of the present run from its start; 0 where nothing runs."""
        self.surcharge: list[int] = []
        """What the protection of the present run was charged beyond its occupancy, all of it in advance."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.spec)

    def label(self, row: int, now: int) -> str:
        """Return the state as people know it: queued, protected, interruptible, unallocated, ..."""
        phase = self.phase[row]
        if phase in (Phase.RUNNING, Phase.PLACED):
            if not self.spec[row].allocated:
                return "unallocated"
            return "protected" if now < self.protected_until[row] else "interruptible"
        if phase is Phase.QUEUED and self.preemptions[row]:
            return f"preempted({self.preemptions[row]})"
        return phase.name.lower()


class NodeTable:
    """Columns over nodes."""

    __slots__ = ("fault", "free", "node", "row", "there", "window")

    def __init__(self) -> None:
        self.row: dict[str, int] = {}
        self.node: list[Node] = []
        self.fault: dict[int, NodeFault] = {}
        """Faults that were reported, by row of the node."""
        self.window: dict[int, Window] = {}
        """Maintenance that is announced or under way, by row of the node."""
        self.free: list[int] = []
        """Devices neither running nor promised; 0 where the node takes no work. Devices of jobs that
        are being stopped count as free: the engine starts a successor only when they have left."""
        self.there: list[int] = []
        """Devices that count as capacity: all of a node that is up, of a draining one those that runs still
        hold (nobody can be given the others), none of one that is down."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.node)


@dataclass(frozen=True, slots=True)
class ShareEpoch:
    """A tree and the time since which it holds."""

    since: int
    tree: AccountTree
    author: str = ""
    reason: str = ""


@dataclass(slots=True)
class Snapshot:
    """The fleet at one version.

    Attributes:
        version: Grows by one per change.
        policy: Settings in force.
        epochs: The trees that hold within the lookback, oldest first; the last is in force.
        jobs: Jobs, queued and running and those that ended since the state was loaded.
        nodes: Nodes.
        usage: Charged usage per account row (leaves only are filled).
        unallocated: Free usage per account row, in the same units.
        author_usage: Charged usage per (account row, author).
        capacity: Charge rate of all healthy devices over time.
        lost: Runs that failed or were lost lately, in case their node is found at fault.
        log: Changes (kind, row), the oldest of them `log_start` versions after the beginning.
        log_start: Version at the start of the log; a planner that saw an older one rebuilds.
    """

    policy: Policy
    epochs: list[ShareEpoch]
    version: int = 0
    jobs: JobTable = field(default_factory=JobTable)
    nodes: NodeTable = field(default_factory=NodeTable)
    usage: list[ChargeHistory] = field(default_factory=list)
    unallocated: list[ChargeHistory] = field(default_factory=list)
    author_usage: dict[tuple[int, str], ChargeHistory] = field(default_factory=dict)
    capacity: ChargeHistory = field(default_factory=ChargeHistory)
    lost: list[LostRun] = field(default_factory=list)
    log: list[tuple[Change, int]] = field(default_factory=list)
    log_start: int = 0

    @property
    def tree(self) -> AccountTree:
        """Return the account tree in force."""
        return self.epochs[-1].tree

    def healthy_gpus(self) -> int:
        """Return the devices that count as capacity; see `NodeTable.there`."""
        return sum(self.nodes.there)

    def changes_since(self, version: int) -> list[tuple[Change, int]] | None:
        """Return the changes after a version, or None where the log no longer reaches back so far."""
        if version < self.log_start:
            return None
        return self.log[version - self.log_start :]
