"""Listings for people: ``squeue`` and ``sinfo`` in columns made of blanks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from divvy.adapters.slurm.accounting.clock import Clock
from divvy.adapters.slurm.accounting.collect import Collector
from divvy.adapters.slurm.accounting.layout import Layout, column_names, is_aside
from divvy.adapters.slurm.accounting.notes import RowError
from divvy.adapters.slurm.accounting.objects import in_service
from divvy.adapters.slurm.accounting.table import RowReader
from divvy.adapters.slurm.hostlist import expand
from divvy.adapters.slurm.tres import count_gpus
from divvy.control.audit.jobs import NodeRow

_GPUS: Final = re.compile(r"(?:^|,)gpu(?::|$)")
_JOB_HEADER: Final = re.compile(r"[ \t]*JOB_?ID(?:[ \t]|$)", re.IGNORECASE)
_NO_GRES: Final = frozenset({"(null)", "N/A"})


def is_queue_header(line: str) -> bool:
    """Return whether a line is the header of squeue."""
    return _JOB_HEADER.match(line) is not None and "|" not in line


def tells_gres(line: str) -> bool:
    """Return whether a line has a word of GRES with GPUs, as sinfo's lines have."""
    return any(_GPUS.search(word) for word in line.split())


def read_queue(lines: Iterable[tuple[int, str]], file: int, clock: Clock, into: Collector) -> None:
    """Read squeue's listing: jobs without submission and mostly without GPUs, which is all that it says."""
    reader: RowReader | None = None
    names: Sequence[str] = ()
    for number, line in lines:
        if is_aside(line):
            continue
        if is_queue_header(line):
            names = column_names(line.split()) or ()
            reader = RowReader(Layout(names, " "), file, clock, into)
            continue
        if reader is None:
            into.skip(number, file, "row-unreadable", f"no header of squeue before {line.strip()[:60]!r}")
            continue
        try:
            reader.read(_pieces(line, names), number)
        except RowError as fault:
            into.skip(number, file, fault.code, str(fault))


def _pieces(line: str, names: Sequence[str]) -> list[str]:
    """Return the columns of a line; blanks in the last column are kept."""
    pieces = line.split(None, len(names) - 1)
    if len(pieces) < len(names):
        raise RowError(
            "row-unreadable",
            f"{len(pieces)} columns do not make a row of {len(names)}: {line.strip()[:60]!r}",
        )
    return [piece.strip() for piece in pieces]


def read_nodes(lines: Iterable[tuple[int, str]], file: int, into: Collector) -> None:
    """Read sinfo's listing with GRES (``sinfo -N -O NodeList,Gres,GresUsed,StateLong``)."""
    gres_at: int | None = None
    for number, line in lines:
        words = line.split()
        if not words or line.startswith(("#", "$ ")):
            continue
        upper = [word.upper() for word in words]
        if "GRES" in upper and (
            "NODELIST" in upper or "NODES" in upper or "HOSTNAMES" in upper or "NODE" in upper
        ):
            gres_at = upper.index("GRES")
            continue
        try:
            for node in _nodes(words, gres_at):
                into.node(node)
        except (RowError, ValueError) as fault:
            code = fault.code if isinstance(fault, RowError) else "node-unreadable"
            into.skip(number, file, code, str(fault))


def _nodes(words: Sequence[str], gres_at: int | None) -> Iterator[NodeRow]:
    place = (
        gres_at if gres_at is not None else next((i for i, w in enumerate(words) if _GPUS.search(w)), None)
    )
    if place is None or place >= len(words):
        if len(words) > 1 and any(word in _NO_GRES for word in words):
            yield from (NodeRow(name, 0, "", in_service=True) for name in expand(words[0]))
            return
        raise RowError("node-unreadable", f"no GRES in {' '.join(words)[:60]!r}")
    found = count_gpus(words[place])
    rest = [word for i, word in enumerate(words[1:], 1) if i != place]
    serves = in_service([word for word in rest if word.replace("*", "").replace("-", "").isalpha()])
    for name in expand(words[0]):
        yield NodeRow(name, found.total, found.model, serves)
