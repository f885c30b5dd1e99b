"""Read the traces of ElasticFlow.

The columns of a `tiresias` trace and a deadline, ``ddl``, which is not used; neither are iterations and batch
sizes. Source: Gu et al., "ElasticFlow", ASPLOS 2023; github.com/pkusys/ElasticFlow (Apache-2.0).
"""

from __future__ import annotations

from typing import Final

from divvy.sim.traces import tiresias
from divvy.sim.traces.trace import OnError, Trace

COLUMNS: Final = (*tiresias.COLUMNS, "ddl")


def looks(names: list[str]) -> bool:
    """Return whether a header is that of an ElasticFlow trace."""
    return set(COLUMNS) <= set(names)


def read_elasticflow(data: bytes, source: str, on_error: OnError = OnError.FAIL) -> Trace:
    """Return the jobs of an ElasticFlow trace; ids are ``e`` and the id in the file.

    Raises:
        InputError: If the header lacks a column, no row is left, or a row is malformed and that is fatal.
    """
    return tiresias.read_models(data, source, on_error, COLUMNS, "e")
