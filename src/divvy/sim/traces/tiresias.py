"""Read the input of the Tiresias simulator.

CSV with ``job_id,num_gpu,submit_time,duration`` in seconds and the model that is trained. It does not say who
pays: the model stands in as the account, and a note says so. Source: Gu et al., "Tiresias", NSDI 2019;
github.com/SymbioticLab/Tiresias, simulator/ (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from divvy.sim.traces.table import Cells, Ids, rows_of, seconds
from divvy.sim.traces.trace import Findings, OnError, Trace, TraceJob, assemble

COLUMNS: Final = ("job_id", "num_gpu", "submit_time", "model_name", "duration")


def looks(names: list[str]) -> bool:
    """Return whether a header is that of a Tiresias trace."""
    return set(COLUMNS) <= set(names)


def read_tiresias(data: bytes, source: str, on_error: OnError = OnError.FAIL) -> Trace:
    """Return the jobs of a Tiresias trace; ids are ``t`` and the id in the file.

    Raises:
        InputError: If the header lacks a column, no row is left, or a row is malformed and that is fatal.
    """
    return read_models(data, source, on_error, COLUMNS, "t")


def read_models(data: bytes, source: str, on_error: OnError, needed: Sequence[str], prefix: str) -> Trace:
    """Return the jobs of a table of models to train, on the clock of the table.

    Args:
        data: The file.
        source: What to call it in faults.
        on_error: What to do about a malformed row.
        needed: Its columns.
        prefix: Of the job ids.
    """
    findings, ids = Findings(source), Ids()
    findings.notes.append("the trace names no accounts; jobs are charged to their model_name")
    rows: list[tuple[int, TraceJob]] = []
    for line, row in rows_of(data, findings, needed):
        cells = Cells(line, row, findings)
        name, gpus, account = cells.text("job_id"), cells.gpus("num_gpu"), cells.text("model_name")
        submit, runtime = cells.instant("submit_time"), cells.runtime("duration")
        if cells.sound and ids.once(cells, line, name):
            rows.append((line, TraceJob(f"{prefix}{name}", submit, runtime, gpus, account)))
    return assemble(rows, [], findings, on_error, seconds)
