"""Read the job logs of the Helios traces (``cluster_log.csv``).

Columns ``job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue``;
times are local, ``duration`` is ``end_time - start_time`` in seconds. The virtual cluster pays. Source: Hu et
al., "Characterization and prediction of deep learning workloads in large-scale GPU datacenters", SC 2021;
github.com/S-Lab-System-Group/HeliosData (CC-BY-4.0).
"""

from __future__ import annotations

from typing import Final

from divvy.sim.traces.table import Cells, Ids, Left, rows_of, written
from divvy.sim.traces.trace import Findings, OnError, Trace, TraceJob, assemble

COLUMNS: Final = ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration")


def looks(names: list[str]) -> bool:
    """Return whether a header is that of a Helios log."""
    return set(COLUMNS) <= set(names)


def read_helios(data: bytes, source: str, on_error: OnError = OnError.FAIL) -> Trace:
    """Return the jobs of a Helios log; jobs without GPUs and jobs that never ran are left out and counted.

    Raises:
        InputError: If the header lacks a column, no row is left, or a row is malformed and that is fatal.
    """
    findings, left, ids = Findings(source), Left(), Ids()
    rows: list[tuple[int, TraceJob]] = []
    for line, row in rows_of(data, findings, COLUMNS):
        cells = Cells(line, row, findings)
        name, gpus = cells.text("job_id"), cells.gpus("gpu_num", 0)
        submit, duration = cells.stamp("submit_time"), cells.number("duration")
        account, author = cells.text("vc"), cells.text("user")
        if not cells.sound or not ids.once(cells, line, name):
            continue
        if gpus == 0:
            left.out(line, "no GPU")
        elif duration == 0:
            left.out(line, "it never ran")
        else:
            rows.append((line, TraceJob(name, submit, round(duration * 1000), gpus, account, author)))
    left.tell(findings)
    return assemble(rows, [], findings, on_error, written)
