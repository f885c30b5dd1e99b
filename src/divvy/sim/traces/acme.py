"""Read the job logs of the Acme traces (``trace_seren.csv``, ``trace_kalos.csv``).

Columns ``job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,
gpu_time``, Kalos a few more; times carry their zone, ``gpu_time`` is ``duration x gpu_num``. The trace names
no team, so the type of work (pretraining, evaluation, ...) stands in as the account. Source: Hu et al.,
"Characterization of large language model development in the datacenter", NSDI 2024;
github.com/InternLM/AcmeTrace (CC-BY-4.0).
"""

from __future__ import annotations

from typing import Final

from divvy.sim.traces.table import Cells, Ids, Left, rows_of, written
from divvy.sim.traces.trace import LARGEST_GANG, Findings, OnError, Trace, TraceJob, assemble
from divvy.units import SECOND

COLUMNS: Final = ("job_id", "user", "gpu_num", "type", "state", "submit_time", "duration", "gpu_time")


def looks(names: list[str]) -> bool:
    """Return whether a header is that of an Acme log."""
    return set(COLUMNS) <= set(names)


def read_acme(data: bytes, source: str, on_error: OnError = OnError.FAIL) -> Trace:
    """Return the jobs of an Acme log; jobs without GPUs and jobs that never ran are left out and counted.

    Raises:
        InputError: If the header lacks a column, no row is left, or a row is malformed and that is fatal.
    """
    findings, left, ids = Findings(source), Left(), Ids()
    findings.notes.append("the trace names no teams; jobs are charged to their type of work")
    rows: list[tuple[int, TraceJob]] = []
    for line, row in rows_of(data, findings, COLUMNS):
        cells = Cells(line, row, findings)
        name, gpus = cells.text("job_id"), cells.gpus("gpu_num", 0)
        submit, duration = cells.stamp("submit_time"), cells.number("duration")
        account, author = cells.text("type"), cells.text("user")
        if cells.sound and row["gpu_time"]:
            product = _product(cells, row["gpu_time"])
            if cells.sound and abs(product - duration * gpus) > max(1.0, 1e-6 * product):
                cells.fault(
                    "trace-product",
                    f"gpu_time {product:g} contradicts duration {duration:g} x gpu_num {gpus}",
                )
        if not cells.sound or not ids.once(cells, line, name):
            continue
        if gpus == 0:
            left.out(line, "no GPU")
        elif duration == 0:
            left.out(line, "it never ran")
        else:
            rows.append((line, TraceJob(name, submit, round(duration * SECOND), gpus, account, author)))
    left.tell(findings)
    return assemble(rows, [], findings, on_error, written)


def _product(cells: Cells, text: str) -> float:
    """Return GPU-seconds, which may be far more than any time."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < LARGEST_GANG * 1e10:
        cells.fault("trace-number", f"gpu_time {text!r} is not a number of GPU-seconds", "0 or more")
    return value
