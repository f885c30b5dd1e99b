"""Read the Standard Workload Format, version 2, with processors taken for devices.

Lines of 18 numbers; ``;`` begins a comment; -1 means unknown. The group pays (else the queue), the user is
the author, requested time is the limit. Source: Chapin et al., "Benchmarks and standards for the evaluation
of parallel job schedulers", JSSPP 1999; cs.huji.ac.il/labs/parallel/workload/swf.html.
"""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

from divvy.sim.traces.table import Cells, Ids, Left, seconds, written
from divvy.sim.traces.trace import (
    LARGEST_GANG,
    LONGEST_MS,
    Findings,
    OnError,
    Trace,
    TraceJob,
    assemble,
    lines_of,
)
from divvy.units import SECOND

FIELDS: Final = 18
_START: Final = re.compile(r";\s*UnixStartTime:\s*(\d{1,11})", re.ASCII)
_PARTIAL: Final = (2, 3, 4)
"""Status of a part of a job that was checkpointed or swapped out; the job has a line of its own."""


class _Record(NamedTuple):
    """The fields that are used."""

    number: int
    submit: float
    run: float
    allocated: int
    asked: int
    limit: float
    status: int
    user: int
    group: int
    queue: int


_PLACES: Final = _Record(0, 1, 3, 4, 7, 8, 10, 11, 12, 14)


def looks(line: str) -> bool:
    """Return whether the first line of a file could be one of this format."""
    fields = line.split()
    return line.startswith(";") or (len(fields) == FIELDS and "," not in line and "{" not in line)


def read_swf(data: bytes, source: str, on_error: OnError = OnError.FAIL) -> Trace:
    """Return the jobs of a file; those that never ran are left out and counted.

    Raises:
        InputError: If no job is left, or a row is malformed and that is fatal.
    """
    findings, left, ids = Findings(source), Left(), Ids()
    rows: list[tuple[int, TraceJob]] = []
    start = raised = 0
    for line, text in lines_of(data, findings):
        if text.lstrip().startswith(";"):
            stamped = _START.match(text.strip())
            start = int(stamped[1]) * SECOND if stamped else start
            continue
        cells = Cells(line, {}, findings)
        record = _record(cells, text)
        if record is None:
            continue
        if record.status in _PARTIAL:
            left.out(line, "a part of a job that has its own line")
            continue
        gpus = record.asked if record.asked > 0 else record.allocated
        if not ids.once(cells, line, f"s{record.number}"):
            continue
        if record.run <= 0 or gpus <= 0:
            left.out(line, "it never ran")
            continue
        job = _job(record, gpus)
        raised += 0 < record.limit < record.run
        rows.append((line, job))
    if raised:
        findings.notes.append(f"{raised} jobs ran longer than they asked for; their limit is what they ran")
    left.tell(findings)
    return assemble(rows, [], findings, on_error, lambda at: written(start + at) if start else seconds(at))


def _job(record: _Record, gpus: int) -> TraceJob:
    runtime = max(1, round(record.run * SECOND))
    account = f"group{record.group}" if record.group >= 0 else f"queue{max(record.queue, 0)}"
    return TraceJob(
        f"s{record.number}",
        round(record.submit * SECOND),
        runtime,
        gpus,
        account,
        f"user{record.user}" if record.user >= 0 else None,
        time_limit=max(runtime, round(record.limit * SECOND)) if record.limit > 0 else None,
    )


def _record(cells: Cells, text: str) -> _Record | None:
    """Return the fields of a line, or None after noting everything that is wrong with it."""
    fields = text.split()
    if len(fields) != FIELDS:
        cells.fault("trace-fields", f"{len(fields)} fields; cut off or damaged: {text[:80]!r}", f"{FIELDS}")
        return None
    values = {name: _value(cells, name, fields[place]) for name, place in _PLACES._asdict().items()}
    if cells.sound:
        for name in ("allocated", "asked"):
            if values[name] > LARGEST_GANG:
                cells.fault("trace-gpus", f"{name} processors {values[name]:g}", f"at most {LARGEST_GANG}")
        if values["submit"] < 0 or values["number"] < 0:
            cells.fault("trace-number", "job number or submit time is negative", "0 or more")
    if not cells.sound:
        return None
    whole = ("number", "allocated", "asked", "status", "user", "group", "queue")
    return _Record(**{name: int(value) if name in whole else value for name, value in values.items()})  # type: ignore[arg-type]  # whole numbers and seconds by name


def _value(cells: Cells, name: str, text: str) -> float:
    """Return a number of at least -1; -1 is unknown."""
    try:
        value = float(text)
    except ValueError:
        cells.fault("trace-number", f"{name} {text!r} is not a number", "-1 (unknown) or more")
        return -1.0
    if not math.isfinite(value) or value < -1 or value > LONGEST_MS / SECOND:
        cells.fault("trace-number", f"{name} {text} is out of range", "-1 (unknown) or more")
        return -1.0
    return value
