"""What every reader returns: jobs as recorded, faults with their lines, and notes on what looked odd."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from divvy.errors import Fault, InputError
from divvy.fleet.event import MaintenanceSet, NodeCleared, NodeFaulted
from divvy.fleet.job import JobKind
from divvy.fleet.node import Node
from divvy.units import DAY

#: Nothing real lasts longer; a larger number is a unit mistaken or a damaged row.
LONGEST_MS: Final = 36_525 * DAY
LARGEST_GANG: Final = 1_000_000
_SHOWN: Final = 100
_BOMS: Final = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


class OnError(StrEnum):
    """What a malformed row does to the whole file."""

    FAIL = "fail"
    SKIP = "skip"


class TraceJob(NamedTuple):
    """A job as a trace records it; None where the trace does not say.

    Attributes:
        id: Unique name.
        submit: Submission, ms after the first one of the trace.
        runtime: How long it truly ran without interruption, ms; the scheduler never learns it.
        gpus: Devices of the gang.
        account: Who pays, by the trace's own name.
        author: Who submitted it.
        min_runtime: Declared minimum runtime, ms.
        resumable: Whether it continues after a preemption.
        restart: Whether it starts again from zero after a preemption.
        priority: Inside its account.
        kind: Batch or interactive.
        model: Device model asked for; empty takes any.
        per_node: Devices on each node; 0 lets the planner choose.
        time_limit: The user's limit on one attempt, ms; 0 for none.
        name: What people call it.
        or_accounts: Further accounts that may pay, in order, by the trace's own names.
        clusters: Clusters where it may run; none: any.
    """

    id: str
    submit: int
    runtime: int
    gpus: int
    account: str
    author: str | None = None
    min_runtime: int | None = None
    resumable: bool | None = None
    restart: bool = False
    priority: int = 0
    kind: JobKind = JobKind.BATCH
    model: str = ""
    per_node: int = 0
    time_limit: int | None = None
    name: str = ""
    or_accounts: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()


class CapacityChange(NamedTuple):
    """A node as it is from an instant (ms after the first submission) on."""

    at: int
    node: Node


#: What happens to nodes besides changes of the fleet; times are ms after the first submission.
Incident = MaintenanceSet | NodeFaulted | NodeCleared


def _moved(incident: Incident, first: int) -> Incident:
    """Return an incident on the clock of the first submission."""
    at = max(0, incident.at - first)
    if isinstance(incident, MaintenanceSet):
        start, end = max(0, incident.start - first), incident.end and max(0, incident.end - first)
        return incident._replace(at=at, start=start, end=end)
    return incident._replace(at=at)


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded workload.

    Attributes:
        jobs: In order of submission; the first is at 0.
        capacity: Changes of the fleet that the trace holds, in order of time.
        incidents: Faults of nodes and maintenance that the trace holds, in order of time.
        skipped: Faults of the rows that were left out.
        notes: What was accepted but deserves a look, such as rows out of order.
        origin: What the trace calls the time of its first submission.
        begin: That time on the trace's own clock, ms.
    """

    jobs: tuple[TraceJob, ...]
    capacity: tuple[CapacityChange, ...] = ()
    skipped: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    origin: str = "0"
    begin: int = 0
    incidents: tuple[Incident, ...] = ()

    @property
    def last_submission(self) -> int:
        """Return the time of the last submission, ms."""
        return self.jobs[-1].submit if self.jobs else 0

    def gpu_time(self) -> dict[str, int]:
        """Return the GPU-milliseconds that each account's jobs need, in order of first appearance."""
        total: dict[str, int] = {}
        for job in self.jobs:
            total[job.account] = total.get(job.account, 0) + job.gpus * job.runtime
            for name in job.or_accounts:
                total.setdefault(name, 0)
        return total


@dataclass(slots=True)
class Findings:
    """What a reader finds wrong or odd, row by row."""

    source: str
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def fault(self, line: int, code: str, message: str, allowed: str = "") -> None:
        """Note that a row is malformed."""
        self.faults.append(Fault(code, f"{self.source}:{line}", message, allowed))

    def settle(self, on_error: OnError) -> tuple[Fault, ...]:
        """Return the faults of the rows to skip.

        Raises:
            InputError: If there are faults and they are to be fatal.
        """
        if self.faults and on_error is OnError.FAIL:
            count = rows_of(self.faults)
            listed = self.faults[:_SHOWN]
            if len(self.faults) > _SHOWN:
                more = len(self.faults) - _SHOWN
                listed.append(Fault("trace-rows", self.source, f"{more} more faults in malformed rows"))
            raise InputError(
                f"{self.source} has {count} malformed row{'s' if count > 1 else ''}; "
                "mend them or leave them out with --on-error skip",
                listed,
            )
        return tuple(self.faults)


def rows_of(faults: Sequence[Fault]) -> int:
    """Return how many rows the faults are in; one row may have several."""
    return len({fault.path for fault in faults})


def lines_of(data: bytes, findings: Findings) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file with their numbers, from 1, without their ends.

    A byte order mark and carriage returns are taken off; a line that is not UTF-8 or holds a NUL byte
    becomes a fault.

    Raises:
        InputError: If the file is empty or in an encoding other than UTF-8.
    """
    for mark, encoding in _BOMS.items():
        if data.startswith(mark):
            raise InputError.one(
                "trace-encoding",
                f"the file is {encoding}",
                path=findings.source,
                allowed="UTF-8",
                fix=f"convert it: iconv -f {encoding} -t UTF-8",
            )
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise InputError.one("trace-empty", "the file is empty", path=findings.source, fix="check the path")
    if not data.endswith(b"\n"):
        findings.notes.append("the file does not end with a newline; its last row may be cut off")
    for number, raw in enumerate(data.split(b"\n"), start=1):
        line = raw.rstrip(b"\r")
        if not line.strip():
            continue
        if b"\0" in line:
            findings.fault(number, "trace-nul", "holds a NUL byte; the file is damaged")
            continue
        try:
            yield number, line.decode()
        except UnicodeDecodeError as error:
            findings.fault(number, "trace-encoding", f"not UTF-8 at byte {error.start}", "UTF-8")


def assemble(
    rows: list[tuple[int, TraceJob]],
    changes: list[CapacityChange],
    findings: Findings,
    on_error: OnError,
    origin: Callable[[int], str],
    incidents: Sequence[Incident] = (),
) -> Trace:
    """Return the trace that rows, given with their lines, and changes make, on the clock of its first job.

    Args:
        rows: Jobs with their lines, in the order of the file; times on the file's clock, ms.
        changes: Changes of the fleet on the same clock.
        findings: Faults and notes so far.
        on_error: Whether the faults are fatal.
        origin: Says how the file calls a time on its clock.
        incidents: Faults and maintenance of nodes on the same clock.

    Raises:
        InputError: If there are faults and they are fatal, or no job is left.
    """
    skipped = findings.settle(on_error)
    if not rows:
        raise InputError.one(
            "trace-empty", "no job is left", path=findings.source, fix="check the file and its format"
        )
    late = [line for (_, one), (line, other) in pairwise(rows) if other.submit < one.submit]
    if late:
        findings.notes.append(
            f"{len(late)} rows are earlier than the row before them (first: line {late[0]}); "
            "the jobs were sorted by submission"
        )
    first = min(job.submit for _, job in rows)
    jobs = sorted((job._replace(submit=job.submit - first) for _, job in rows), key=lambda job: job.submit)
    moved = [CapacityChange(max(0, change.at - first), change.node) for change in changes]
    return Trace(
        tuple(jobs),
        tuple(sorted(moved, key=lambda change: change.at)),
        skipped,
        tuple(findings.notes),
        origin(first),
        first,
        tuple(sorted((_moved(incident, first) for incident in incidents), key=lambda each: each.at)),
    )
