"""`nvidia-smi topo -m` and `-mp`: devices, labels, affinities; every doubt named by row and column."""

from __future__ import annotations

from divvy.errors import InputError
from divvy.fleet.topology.graph import Kind, Vertex
from divvy.fleet.topology.matrix_rows import ELLIPSIS, Row, Table, read_table
from divvy.fleet.topology.reading import Reading, nvlinks, weaker

_PASTE = "run nvidia-smi topo -m again and save its whole output"


def read_matrix(name: str, text: str) -> Reading:
    """Return what a topology matrix says.

    Args:
        name: The input's name, for provenance and findings.
        text: The output, with or without colour codes, header, legend.

    Raises:
        InputError: If no row of a matrix is in the text.
    """
    table = read_table(text)
    if not table.rows or not table.columns:
        raise InputError.one(
            "unreadable",
            f"{name} holds no row of a topology matrix",
            path=name,
            allowed="the output of nvidia-smi topo -m (GPU0 X NV12 ...)",
            fix=_PASTE,
        )
    reading = Reading(name, "nvidia-smi topo -m")
    for code, where, what, fix in table.notes:
        reading.warn(code, where, what, fix)
    columns = _columns(table, reading)
    for column in columns:
        reading.vertices[column] = _device(column, table, reading)
    _rows(table, columns, reading)
    _pairs(table, columns, reading)
    return reading


def _columns(table: Table, reading: Reading) -> list[str]:
    """Return the devices: columns of the header, then rows that no column names."""
    columns: list[str] = []
    elided = 0
    for column in table.columns:
        if column in ELLIPSIS:
            elided += 1
        elif column in columns:
            reading.warn("column-twice", f"column {column}", "the column is there twice", _PASTE)
        else:
            columns.append(column)
    if elided:
        reading.warn(
            "column-elided", "header", f"{elided} columns have no name; their cells are left out", _PASTE
        )
    for device in table.rows:
        if device not in columns:
            columns.append(device)
            reading.warn("column-missing", f"row {device}", "the header has no column of this name", _PASTE)
    return columns


def _device(column: str, table: Table, reading: Reading) -> Vertex:
    """Return the vertex of one column with its affinity."""
    row = table.rows.get(column)
    tail = row.tail if row else {}
    if column.upper().startswith("GPU"):
        numa = tail.get("NUMA Affinity", "")
        facts = tuple(
            (key, tail[title])
            for key, title in (
                ("cpu_affinity", "CPU Affinity"),
                ("numa_affinity", "NUMA Affinity"),
                ("gpu_numa_id", "GPU NUMA ID"),
            )
            if tail.get(title)
        )
        return Vertex(column, Kind.GPU, numa=int(numa) if numa.isdigit() else None, facts=facts)
    name = table.legend.get(column, "" if column.upper().startswith("NIC") else column)
    if column in table.legend and not name:
        reading.warn("legend-blank", f"NIC legend, {column}", "the legend gives no name", _PASTE)
    return Vertex(column, Kind.NIC, name=name)


def _rows(table: Table, columns: list[str], reading: Reading) -> None:
    """Report rows that are missing or damaged, each with its columns."""
    for column in columns:
        row = table.rows.get(column)
        if row is None:
            unknown = [
                c
                for c in columns
                if c != column and (c not in table.rows or column not in table.rows[c].cells)
            ]
            where = f"row {column}" + (f", columns {', '.join(unknown)}" if unknown else "")
            text = "the row is not there (is the text cut off?); what other rows say about it is used"
            reading.warn(
                "row-missing", where, text + ("; these columns stay unknown" if unknown else ""), _PASTE
            )
            continue
        lost = {c: text for c, text in row.doubtful.items() if c != column and c in columns}
        if lost:
            _report_lost(row, lost, table, reading)
        if row.doubtful.get(column):
            reading.warn(
                "diagonal",
                f"row {column}, column {column}",
                f"the cell reads {row.doubtful[column]!r} where X is expected",
                _PASTE,
            )
        if (
            column.upper().startswith("GPU")
            and "CPU Affinity" in table.titles
            and not row.tail.get("CPU Affinity")
        ):
            reading.warn(
                "affinity-blank",
                f"row {column}, column CPU Affinity",
                "the CPU affinity is blank",
                "run nvidia-smi topo -m on the host, outside a container that hides its CPUs",
            )


def _report_lost(row: Row, lost: dict[str, str], table: Table, reading: Reading) -> None:
    """Report the cells of a row that could not be read or placed."""
    seen = ", ".join(f"{column} ({text!r})" if text else column for column, text in lost.items())
    mirrored = [c for c in lost if c in table.rows and row.device in table.rows[c].cells]
    unknown = [c for c in lost if c not in mirrored]
    text = row.why or "cells cannot be read"
    if mirrored:
        text += f"; taken from the mirrored cell: {', '.join(mirrored)}"
    if unknown:
        text += f"; unknown and left out: {', '.join(unknown)}"
    reading.warn("cell-unreadable", f"row {row.device} (line {row.line}), column {seen}", text, _PASTE)


def _possible(
    label: str | None, row: str, column: str, kinds: tuple[Kind, Kind], reading: Reading
) -> str | None:
    """Return a label unless no two devices of these kinds can have it."""
    if not nvlinks(label) or Kind.NIC not in kinds:
        return label
    text = f"the cell reads {label}, but a NIC has no NVLink (are cells shifted?); it is left out"
    reading.warn("cell-impossible", f"row {row}, column {column}", text, _PASTE)
    return None


def _pairs(table: Table, columns: list[str], reading: Reading) -> None:
    """Fill the labels from both halves of the matrix and report where they disagree."""
    for i, a in enumerate(columns):
        for b in columns[i + 1 :]:
            first = table.rows[a].cells.get(b) if a in table.rows else None
            second = table.rows[b].cells.get(a) if b in table.rows else None
            first, second = (None if label == "X" else label for label in (first, second))
            both = (reading.vertices[a].kind, reading.vertices[b].kind)
            first, second = (
                _possible(label, one, other, both, reading)
                for label, one, other in ((first, a, b), (second, b, a))
            )
            if first and second and first != second:
                label = weaker(first, second)
                reading.warn(
                    "asymmetric",
                    f"row {a}, column {b} and row {b}, column {a}",
                    f"{a} to {b} reads {first} but {b} to {a} reads {second}; {label} is used, which "
                    "promises less",
                    "read the matrix again; if it stays, one side has lost a link: nvidia-smi nvlink "
                    "--status",
                )
                reading.labels[a, b] = label
            elif first or second:
                reading.labels[a, b] = first or second or ""
