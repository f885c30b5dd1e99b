"""Read the Philly trace in the one-file form published with Sia (SOSP'23).

Columns ``timestamp,duration,num_gpus,gpu_time,cluster``: submission (local time), run seconds over all
attempts, devices, their product, virtual cluster. Source: Jeon et al., "Analysis of large-scale
multi-tenant GPU clusters", USENIX ATC 2019; github.com/msr-fiddle/philly-traces (CC-BY-4.0).
"""

from __future__ import annotations

import csv
import math
import re
from datetime import UTC, datetime
from typing import Final

from divvy.errors import InputError
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

COLUMNS: Final = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
_TIME: Final = "%Y-%m-%d %H:%M:%S"
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII)
_TIME_HELP: Final = "YYYY-MM-DD HH:MM:SS"


def looks(names: list[str]) -> bool:
    """Return whether a header is that of a Philly trace."""
    return set(COLUMNS) <= set(names)


def read_philly(data: bytes, source: str, on_error: OnError = OnError.FAIL) -> Trace:
    """Return the jobs of a Philly CSV file; ids are ``p`` and the line in the file.

    Raises:
        InputError: If the header lacks a column, no row is left, or a row is malformed and that is fatal.
    """
    findings = Findings(source)
    lines = lines_of(data, findings)
    number, header = next(lines, (1, ""))
    order = _columns(header, number, source)
    width = len(header.split(","))
    rows: list[tuple[int, TraceJob]] = []
    seen: set[str] = set()
    repeated = 0
    for number, line in lines:
        fields = line.split(",") if '"' not in line else next(csv.reader([line]))
        if len(fields) != width:
            findings.fault(
                number, "trace-fields", f"{len(fields)} fields; cut off or damaged: {line[:80]!r}", f"{width}"
            )
            continue
        repeated += line in seen
        seen.add(line)
        job = _row(number, [fields[place].strip() for place in order], findings)
        if job is not None:
            rows.append((number, job))
    if repeated:
        findings.notes.append(
            f"{repeated} rows repeat an earlier row letter by letter; "
            "the format has no job id, so they were kept"
        )
    return assemble(rows, [], findings, on_error, _written)


def _written(at: int) -> str:
    return datetime.fromtimestamp(at / SECOND, UTC).strftime(_TIME)


def _columns(header: str, number: int, source: str) -> list[int]:
    """Return where each of `COLUMNS` is.

    Raises:
        InputError: If one is missing or there twice.
    """
    names = [name.strip() for name in header.split(",")]
    wrong = [name for name in COLUMNS if names.count(name) != 1]
    if wrong:
        raise InputError.one(
            "trace-header",
            f"the header has not exactly one column {', '.join(wrong)}; it reads {header[:120]!r}",
            path=f"{source}:{number}",
            allowed=",".join(COLUMNS),
            fix="check --format",
        )
    return [names.index(name) for name in COLUMNS]


def _row(line: int, fields: list[str], findings: Findings) -> TraceJob | None:
    """Return the job of a row, or None after noting everything that is wrong with it."""
    before = len(findings.faults)
    stamp, duration_text, gpus_text, product_text, cluster = fields
    submit = _instant(line, stamp, findings)
    duration = _number(line, "duration", duration_text, findings)
    product = _number(line, "gpu_time", product_text, findings)
    gpus = 0
    try:
        gpus = int(gpus_text)
        if not 0 < gpus <= LARGEST_GANG:
            findings.fault(line, "trace-gpus", f"num_gpus {gpus} is out of range", f"1 to {LARGEST_GANG}")
    except ValueError:
        findings.fault(line, "trace-gpus", f"num_gpus {gpus_text!r} is not a whole number", "1 or more")
    if not cluster:
        findings.fault(line, "trace-account", "cluster is empty", "the name of a virtual cluster")
    if len(findings.faults) == before and abs(product - duration * gpus) > max(1.0, 1e-6 * product):
        findings.fault(
            line,
            "trace-product",
            f"gpu_time {product:g} contradicts duration {duration:g} x num_gpus {gpus}",
        )
    if len(findings.faults) > before:
        return None
    return TraceJob(f"p{line}", submit, max(1, round(duration * SECOND)), gpus, cluster)


def _instant(line: int, text: str, findings: Findings) -> int:
    """Return a time as ms since 1970 read as UTC (the trace names no zone), or 0 after noting a fault."""
    if _STAMP.fullmatch(text):
        try:
            return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND
        except ValueError:  # a 30 February has the right form and is still no day
            pass
    findings.fault(line, "trace-time", f"timestamp {text!r} is not a time", _TIME_HELP)
    return 0


def _number(line: int, name: str, text: str, findings: Findings) -> float:
    """Return a positive number of seconds, or 0 after noting why it is none."""
    try:
        value = float(text)
    except ValueError:
        findings.fault(line, "trace-number", f"{name} {text!r} is not a number", "seconds, above 0")
        return 0.0
    limit = LONGEST_MS / SECOND * (LARGEST_GANG if name == "gpu_time" else 1)
    if not math.isfinite(value) or not 0 < value <= limit:
        findings.fault(line, "trace-number", f"{name} {text} is out of range", "seconds, above 0")
        return 0.0
    return value
