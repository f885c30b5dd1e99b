"""Readers of recorded workloads: bytes in, jobs and every fault out, nothing silently mended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from divvy.errors import InputError
from divvy.sim.traces.jsonlines import read_jsonlines
from divvy.sim.traces.philly import read_philly
from divvy.sim.traces.trace import OnError, Trace

FORMATS: Final[dict[str, Callable[[bytes, str, OnError], Trace]]] = {
    "philly": read_philly,
    "divvy": read_jsonlines,
}


def read_trace(data: bytes, name: str, source: str, on_error: OnError = OnError.FAIL) -> Trace:
    """Return the jobs of a trace in order of submission.

    Args:
        data: The file.
        name: Format, one of `FORMATS`.
        source: What to call the file in faults.
        on_error: What to do about a malformed row.

    Raises:
        InputError: If the format is unknown, the file as a whole cannot be read, or a row is malformed
            and the caller wants that to be fatal; every malformed row is listed with its line.
    """
    reader = FORMATS.get(name)
    if reader is None:
        raise InputError.one(
            "trace-format",
            f"unknown trace format {name!r}",
            path="--format",
            allowed=", ".join(FORMATS),
            fix="choose one of these",
        )
    return reader(data, source, on_error)
