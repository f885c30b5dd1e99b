"""Read the job logs of the Acme traces (``trace_seren.csv``, ``trace_kalos.csv``).

Columns ``job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,
gpu_time``, Kalos a few more; times carry their zone, ``gpu_time`` is ``duration x gpu_num``. The trace names
no team, so the type of work (pretraining, evaluation, ...) stands in as the account. Source: Hu et al.,
"Characterization of large language model development in the datacenter", NSDI 2024;
github.com/InternLM/AcmeTrace (CC-BY-4.0).
"""

from __future__ import annotations

from typing import Final

from divvy.sim.traces.helios import read_log
from divvy.sim.traces.table import Cells, Row
from divvy.sim.traces.trace import LARGEST_GANG, Findings, OnError, Trace, TraceJob
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
    findings = Findings(source)
    findings.notes.append("the trace names no teams; jobs are charged to their type of work")
    return read_log(data, findings, on_error, COLUMNS, "type", _check)


def _check(cells: Cells, row: Row, job: TraceJob) -> None:
    """Note where the product of duration and devices, if it is given, is none."""
    if not row["gpu_time"]:
        return
    product = cells.number("gpu_time", times=LARGEST_GANG)
    if cells.sound and abs(product - job.runtime / SECOND * job.gpus) > max(1.0, 1e-6 * product):
        seconds = job.runtime / SECOND
        cells.fault(
            "trace-product", f"gpu_time {product:g} contradicts duration {seconds:g} x gpu_num {job.gpus}"
        )
