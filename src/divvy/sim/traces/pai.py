"""Read the task table of the PAI trace of 2020, alone or joined with the job table.

Columns ``job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type``, with
a header or, as published, without; ``plan_gpu`` is percent of a GPU per instance, times are seconds. A job is
the sum of its tasks that ask for GPUs, rounded up to whole devices, from the first start to the last end.
Where a column ``user`` was joined from ``pai_job_table`` the user pays and is the author; else the type of
GPU stands in as the account. Source: Weng et al., "MLaaS in the wild", NSDI 2022;
github.com/alibaba/clusterdata, cluster-trace-gpu-v2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from divvy.sim.traces.table import Cells, Left, Row, rows_of, seconds
from divvy.sim.traces.trace import LARGEST_GANG, Findings, OnError, Trace, TraceJob, assemble
from divvy.units import SECOND

COLUMNS: Final = ("job_name", "inst_num", "status", "start_time", "end_time", "plan_gpu")
PUBLISHED: Final = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
_STATES: Final = ("Terminated", "Failed", "Running", "Waiting", "Interrupted")


@dataclass(slots=True)
class _Job:
    """What the tasks of a job add up to so far."""

    line: int
    account: str
    author: str | None
    start: float = math.inf
    end: float = 0.0
    percent: float = 0.0


def looks(names: list[str]) -> bool:
    """Return whether the first line of a file is the header of a task table, or a row of one without."""
    return set(COLUMNS) <= set(names) or (len(names) == len(PUBLISHED) and names[3].strip() in _STATES)


def read_pai(data: bytes, source: str, on_error: OnError = OnError.FAIL) -> Trace:
    """Return the jobs of a task table; tasks without GPUs or without an end are left out and counted.

    Raises:
        InputError: If the header lacks a column, no row is left, or a row is malformed and that is fatal.
    """
    findings, left = Findings(source), Left()
    jobs: dict[str, _Job] = {}
    named = False
    for line, row in rows_of(data, findings, COLUMNS, PUBLISHED):
        named = "user" in row
        _add(line, row, jobs, findings, left)
    rounded = sum(1 for job in jobs.values() if job.percent % 100)
    if rounded:
        findings.notes.append(f"{rounded} jobs ask for parts of a GPU; they were rounded up")
    if not named:
        findings.notes.append("the table names no users; jobs are charged to their type of GPU")
    left.tell(findings)
    rows = [
        (
            job.line,
            TraceJob(
                name,
                round(job.start * SECOND),
                max(1, round((job.end - job.start) * SECOND)),
                math.ceil(job.percent / 100 - 1e-9),
                job.account,
                job.author,
            ),
        )
        for name, job in jobs.items()
    ]
    return assemble(rows, [], findings, on_error, seconds)


def _add(line: int, row: Row, jobs: dict[str, _Job], findings: Findings, left: Left) -> None:
    """Add a task to its job."""
    cells = Cells(line, row, findings)
    name = cells.text("job_name")
    if row["status"] not in _STATES:
        cells.fault("trace-state", f"status {row['status']!r}", ", ".join(_STATES))
    percent = cells.number("plan_gpu") if row["plan_gpu"] else 0.0
    if cells.sound and percent == 0:
        left.out(line, "no GPU")
        return
    if cells.sound and not (row["start_time"] and row["end_time"]):
        left.out(line, "it has not ended")
        return
    instances = cells.number("inst_num", least=1)
    start, end = cells.number("start_time"), cells.number("end_time")
    if cells.sound and end <= start:
        if end == start:
            left.out(line, "it never ran")
            return
        cells.fault("trace-time", f"it ends at {end:g}, before it starts at {start:g}")
    author = cells.text("user") if "user" in row else None
    account = author or row.get("gpu_type") or "any"
    known = jobs.get(name)
    total = percent * instances + (known.percent if known else 0.0)
    if cells.sound and total > 100 * LARGEST_GANG:
        cells.fault("trace-gpus", f"{total / 100:g} devices", f"at most {LARGEST_GANG}")
    if not cells.sound:
        return
    job = jobs.setdefault(name, _Job(line, account, author))
    job.start, job.end, job.percent = min(job.start, start), max(job.end, end), total
