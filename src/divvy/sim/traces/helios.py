"""Read the job logs of the Helios traces (``cluster_log.csv``).

Columns ``job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue``;
times are local, ``duration`` is ``end_time - start_time`` in seconds. The virtual cluster pays. Source: Hu et
al., "Characterization and prediction of deep learning workloads in large-scale GPU datacenters", SC 2021;
github.com/S-Lab-System-Group/HeliosData (CC-BY-4.0).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from divvy.sim.traces.table import Cells, Ids, Left, Row, rows_of, written
from divvy.sim.traces.trace import Findings, OnError, Trace, TraceJob, assemble
from divvy.units import SECOND

COLUMNS: Final = ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration")


def looks(names: list[str]) -> bool:
    """Return whether a header is that of a Helios log."""
    return set(COLUMNS) <= set(names)


def read_helios(data: bytes, source: str, on_error: OnError = OnError.FAIL) -> Trace:
    """Return the jobs of a Helios log; jobs without GPUs and jobs that never ran are left out and counted.

    Raises:
        InputError: If the header lacks a column, no row is left, or a row is malformed and that is fatal.
    """
    return read_log(data, Findings(source), on_error, COLUMNS, "vc")


def read_log(
    data: bytes,
    findings: Findings,
    on_error: OnError,
    needed: Sequence[str],
    payer: str,
    check: Callable[[Cells, Row, TraceJob], None] = lambda _cells, _row, _job: None,
) -> Trace:
    """Return the jobs of a log with ``job_id``, ``user``, ``gpu_num``, ``submit_time`` and ``duration``.

    Args:
        data: The file.
        findings: Faults and notes so far.
        on_error: Whether faults are fatal.
        needed: Its columns.
        payer: The column that names the account.
        check: Notes what else is wrong with a row.

    Raises:
        InputError: If the header lacks a column, no row is left, or a row is malformed and that is fatal.
    """
    left, ids = Left(), Ids()
    rows: list[tuple[int, TraceJob]] = []
    for line, row in rows_of(data, findings, needed):
        cells = Cells(line, row, findings)
        job = TraceJob(
            cells.text("job_id"),
            cells.stamp("submit_time"),
            round(cells.number("duration") * SECOND),
            cells.gpus("gpu_num", 0),
            cells.text(payer),
            cells.text("user"),
        )
        if cells.sound:
            check(cells, row, job)
        if not cells.sound or not ids.once(cells, line, job.id):
            continue
        if job.gpus == 0:
            left.out(line, "no GPU")
        elif job.runtime == 0:
            left.out(line, "it never ran")
        else:
            rows.append((line, job))
    left.tell(findings)
    return assemble(rows, [], findings, on_error, written)
