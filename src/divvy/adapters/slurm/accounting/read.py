"""Any file of Slurm's accounting into rows: what kind of file it is, and which reader reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, BinaryIO, Final

from divvy.adapters.slurm.accounting import blocks, objects
from divvy.adapters.slurm.accounting.clock import Clock
from divvy.adapters.slurm.accounting.collect import Collector
from divvy.adapters.slurm.accounting.guess import SAMPLE_ROWS, guess
from divvy.adapters.slurm.accounting.layout import Layout, column_names, is_aside
from divvy.adapters.slurm.accounting.listing import is_queue_header, read_nodes, read_queue, tells_gres
from divvy.adapters.slurm.accounting.notes import RowError
from divvy.adapters.slurm.accounting.rows import Raw, finish
from divvy.adapters.slurm.accounting.source import Source
from divvy.adapters.slurm.accounting.stream import Broken, records
from divvy.adapters.slurm.accounting.table import TableReader
from divvy.control.audit.jobs import Accounting
from divvy.errors import Fault, InputError

_SEPARATOR: Final = re.compile(r"\s*[A-Za-z]\w*(?:%\d+)?([^\w\s%]+|[\t\x1f])")
_HEADER_LINES: Final = 50
_ALLOWED: Final = (
    "sacct --parsable2 or --json; squeue, scontrol show job, scontrol show node, sinfo as text or --json"
)
_ODD_BYTES: Final = "bytes that are no UTF-8; read as Latin-1"


class Form(StrEnum):
    """What a file is taken for."""

    AUTO = "auto"
    PARSABLE2 = "parsable2"
    JSON = "json"


def read_accounting(
    files: Iterable[tuple[str, BinaryIO]],
    form: Form,
    clock: Clock,
    claims: Callable[[str], bool] = lambda _name: False,
) -> Accounting:
    """Return all that files tell of jobs and nodes.

    Args:
        files: Names and bytes.
        form: What all of them are taken for.
        clock: Reads their times.
        claims: Whether the budget claims a name; tells the account where a table has no header.

    Raises:
        InputError: If a file is nothing that is known; with all such files.
    """
    reader = _Reader(form, clock, claims)
    names: list[str] = []
    for number, (name, stream) in enumerate(files):
        names.append(name)
        stray = partial(_stray, reader.into, number)
        try:
            reader.read(Source(name, stream, stray), number)
        except (OSError, EOFError, UnicodeError) as error:
            reader.faults.append(Fault("file-unreadable", name, f"cannot be read: {error}"))
    if reader.faults:
        raise InputError("some files cannot be audited", reader.faults)
    return reader.into.finish(tuple(names))


def _stray(into: Collector, file: int, line: int) -> None:
    into.notes.remark(line, file, "encoding", _ODD_BYTES)


class _Reader:
    """Reads files one after another into one collector."""

    def __init__(self, form: Form, clock: Clock, claims: Callable[[str], bool]) -> None:
        self._form, self._clock, self._claims = form, clock, claims
        self._header: Layout | None = None
        self.into = Collector()
        self.faults: list[Fault] = []

    def read(self, source: Source, file: int) -> None:
        """Read one file."""
        lines = [line for line in _head_lines(source) if not is_aside(line)]
        if not lines:
            self._refuse(source, "file-empty", "holds no row")
        elif self._form is Form.JSON or (self._form is Form.AUTO and lines[0].lstrip()[:1] in ("{", "[")):
            self._json(source, file, lines)
        elif self._form is Form.AUTO and any(blocks.BEGINS.match(line) for line in lines[:5]):
            self._blocks(source, file)
        elif self._form is Form.AUTO and any(map(is_queue_header, lines[:5])):
            read_queue(source.lines(), file, self._clock, self.into)
        elif (layout := self._layout(lines, file)) is not None:
            TableReader(layout, file, self._clock, self.into).read(source.lines())
        elif self._form is Form.AUTO and any(map(tells_gres, lines[:SAMPLE_ROWS])):
            read_nodes(source.lines(), file, self.into)
        else:
            self._refuse(source, "format-unknown", f"is nothing of Slurm that is known: {lines[0][:60]!r}")

    def _refuse(self, source: Source, code: str, text: str) -> None:
        self.faults.append(Fault(code, source.name, text, _ALLOWED, "give --format where you know better"))

    def _layout(self, lines: Sequence[str], file: int) -> Layout | None:
        """Return the columns of a table, None where the file is none."""
        for line in lines[:_HEADER_LINES]:
            found = _SEPARATOR.match(line)
            separator = found.group(1) if found is not None else "|"
            names = column_names([piece.strip() for piece in line.split(separator)])
            if names is not None:
                self._header = Layout(names, separator)
                return self._header
        separator = "\x1f" if any("\x1f" in line for line in lines[:_HEADER_LINES]) else "|"
        known = self._header
        if known is not None and known.separator == separator:
            rows = [line.split(separator) for line in lines[:SAMPLE_ROWS]]
            fitting = sum(
                known.fits(row[:-1] if len(row) > len(known.names) and not row[-1] else row) for row in rows
            )
            if fitting * 10 >= len(rows) * 9:
                self.into.notes.remark(
                    1, file, "header-missing", "no header; columns as in the file before it"
                )
                return known
        layout = guess(lines, separator, self._claims)
        if layout is not None:
            told = "|".join(name or "?" for name in layout.names)
            self.into.notes.remark(1, file, "header-missing", f"no header; columns taken for {told}")
        return layout

    def _json(self, source: Source, file: int, lines: Sequence[str]) -> None:
        first = _parsed(lines[0])
        if isinstance(first, dict) and {"job_id", "id"} & set(first):
            self._json_lines(source, file)
            return
        some = False
        for found in records(_without_comments(source)):
            if isinstance(found, Broken):
                if some:
                    self.into.skip(found.line, file, "json-broken", found.text)
                else:
                    self._refuse(source, "format-unknown", found.text)
                return
            some = True
            bare = not found.kind and isinstance(found.value, dict)
            if found.kind in ("nodes", "sinfo") or (bare and "job_id" not in found.value):
                self._nodes(found.kind, found.value, found.line, file)
            else:
                self._job(
                    found.line, file, partial(objects.job_of, found.value, found.line, file, self._clock)
                )

    def _json_lines(self, source: Source, file: int) -> None:
        for number, line in source.lines():
            if is_aside(line):
                continue
            record = _parsed(line)
            if record is None:
                self.into.skip(number, file, "row-unreadable", f"not a JSON object: {line[:60]!r}")
            else:
                self._job(number, file, partial(objects.job_of, record, number, file, self._clock))

    def _blocks(self, source: Source, file: int) -> None:
        for line, fields in blocks.blocks(source.lines()):
            if "JobId" in fields:
                self._job(line, file, partial(blocks.job_of, fields, line, file, self._clock))
            elif "NodeName" in fields:
                try:
                    for node in blocks.nodes_of(fields):
                        self.into.node(node)
                except RowError as fault:
                    self.into.skip(line, file, fault.code, str(fault))
            else:
                kind = next(iter(fields), "?")
                self.into.skip(
                    line,
                    file,
                    "record-unused",
                    f"a record {kind}={fields.get(kind, '')[:40]} tells no job or node",
                )

    def _job(self, line: int, file: int, make: Callable[[], Raw]) -> None:
        def remark(code: str, text: str) -> None:
            self.into.notes.remark(line, file, code, text)

        try:
            self.into.job(finish(make(), remark))
        except RowError as fault:
            self.into.skip(line, file, fault.code, str(fault))

    def _nodes(self, kind: str, record: Any, line: int, file: int) -> None:
        try:
            for node in objects.nodes_of(kind, record):
                self.into.node(node)
        except RowError as fault:
            self.into.skip(line, file, fault.code, str(fault))


def _head_lines(source: Source) -> list[str]:
    """Return the whole lines at the beginning of a file."""
    lines = [line.rstrip("\r") for line in re.split(r"\r?\n|\r(?!\n)", source.head.removeprefix("\ufeff"))]
    return lines if source.whole_head or len(lines) == 1 else lines[:-1]


def _parsed(line: str) -> Any:
    """Return the value of a line of JSON, None where it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _without_comments(source: Source) -> Callable[[int], str]:
    """Return the characters of a JSON document in which comment lines before it are blank."""
    read = source.characters()
    begun = False

    def some(count: int) -> str:
        nonlocal begun
        text = read(count)
        if not begun:
            begun = True
            text = "\n".join(_blanked(text.split("\n")))
        return text

    return some


def _blanked(lines: Sequence[str]) -> Iterator[str]:
    before = True
    for line in lines:
        before = before and is_aside(line)
        yield "" if before else line
