"""Read the Philly trace in the one-file form published with Sia (SOSP'23).

Columns ``timestamp,duration,num_gpus,gpu_time,cluster``: submission (local time), run seconds over all
attempts, devices, their product, virtual cluster. Source: Jeon et al., "Analysis of large-scale
multi-tenant GPU clusters", USENIX ATC 2019; github.com/msr-fiddle/philly-traces (CC-BY-4.0).
"""

from __future__ import annotations

from typing import Final

from divvy.sim.traces.table import Cells, Row, rows_of, written
from divvy.sim.traces.trace import LARGEST_GANG, Findings, OnError, Trace, TraceJob, assemble
from divvy.units import SECOND

COLUMNS: Final = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")


def looks(names: list[str]) -> bool:
    """Return whether a header is that of a Philly trace."""
    return set(COLUMNS) <= set(names)


def read_philly(data: bytes, source: str, on_error: OnError = OnError.FAIL) -> Trace:
    """Return the jobs of a Philly CSV file; ids are ``p`` and the line in the file.

    Raises:
        InputError: If the header lacks a column, no row is left, or a row is malformed and that is fatal.
    """
    findings = Findings(source)
    rows: list[tuple[int, TraceJob]] = []
    seen: set[tuple[str, ...]] = set()
    repeated = 0
    for line, row in rows_of(data, findings, COLUMNS):
        whole = tuple(row.values())
        repeated += whole in seen
        seen.add(whole)
        job = _job(Cells(line, row, findings), line, row)
        if job is not None:
            rows.append((line, job))
    if repeated:
        findings.notes.append(
            f"{repeated} rows repeat an earlier row letter by letter; "
            "the format has no job id, so they were kept"
        )
    return assemble(rows, [], findings, on_error, written)


def _job(cells: Cells, line: int, row: Row) -> TraceJob | None:
    """Return the job of a row, or None after noting everything that is wrong with it."""
    submit, account = cells.stamp("timestamp"), cells.text("cluster")
    duration, gpus = cells.number("duration", above=True), cells.gpus("num_gpus")
    product = cells.number("gpu_time", above=True, times=LARGEST_GANG)
    if cells.sound and abs(product - duration * gpus) > max(1.0, 1e-6 * product):
        text = f"gpu_time {product:g} contradicts duration {duration:g} x num_gpus {row['num_gpus']}"
        cells.fault("trace-product", text)
    if not cells.sound:
        return None
    return TraceJob(f"p{line}", submit, max(1, round(duration * SECOND)), gpus, account)
