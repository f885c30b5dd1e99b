"""From the text of `nvidia-smi topo -m` to cells: which label stands in which row and column.

A cell is kept only where its column is certain. Terminals wrap lines, editors fuse and drop cells, and
tools colour the header; a row that lost a cell has two possible alignments, and the wrong one would be
a wrong link. The diagonal ``X`` and the affinity columns are the anchors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from divvy.fleet.topology.reading import clean_label

_ANSI: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|(?<![\w])\[[0-9;]{1,5}m")
_DEVICE: Final = re.compile(
    r"GPU\d+|NIC\d+|(?:mlx|irdma|bnxt_re|hfi|efa|rdmap|roce|ib|qedr|erdma|hns|cxi|mana|vmw|i40iw|xeth)[\w.\-]*",
    re.ASCII | re.IGNORECASE,
)
_FUSED: Final = re.compile(r"(?:NV\d{1,2}|SYS|SOC|NODE|PHB|PXB|PIX|X)+", re.ASCII | re.IGNORECASE)
_PIECE: Final = re.compile(r"NV\d{1,2}|SYS|SOC|NODE|PHB|PXB|PIX|X", re.ASCII | re.IGNORECASE)
_NAME: Final = re.compile(r"(?:GPU|NIC|mlx5_)\d+", re.ASCII)
_AFFINITY: Final = re.compile(r"\d[\d,\-]*|N/A", re.ASCII | re.IGNORECASE)
_TITLES: Final = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_QUOTE: Final = re.compile(r"^\s*(?:>\s?)+|\|")  # mail and chat quotes, bars of a table
_NIC_LEGEND: Final = re.compile(r"\s*(NIC\d+)\s*:\s*(\S*)\s*", re.ASCII)
_HALF: Final = re.compile(r"NV\d\s*$", re.ASCII)  # the text ends in it: it may be the half of NV12
ELLIPSIS: Final = frozenset({"...", "…", ".."})


@dataclass(slots=True)
class Row:
    """One device's line.

    Attributes:
        device: Name in the first column.
        line: Line number in the text.
        cells: Column name to label; columns that are not certain are absent.
        doubtful: Columns whose cell was lost or cannot be placed, with what stood there.
        tail: CPU affinity, NUMA affinity, GPU NUMA ID where the header has them.
        why: What is wrong with the line, empty when nothing is.
    """

    device: str
    line: int
    cells: dict[str, str] = field(default_factory=dict)
    doubtful: dict[str, str] = field(default_factory=dict)
    tail: dict[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass(slots=True)
class Table:
    """The columns, rows and legend of a matrix."""

    columns: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    rows: dict[str, Row] = field(default_factory=dict)
    legend: dict[str, str] = field(default_factory=dict)
    notes: list[tuple[str, str, str, str]] = field(default_factory=list)


@dataclass(slots=True)
class _Header:
    """The header line with the place of each column in it, and how many cells most rows have."""

    columns: list[str]
    titles: list[str]
    starts: list[int]
    tabbed: bool
    common: int = 0


def plain(text: str) -> list[str]:
    """Return the lines without colour codes and carriage returns."""
    lines = [_ANSI.sub("", line).rstrip("\r\n") for line in text.replace("\r\n", "\n").split("\n")]
    return [_QUOTE.sub("", line) if _QUOTE.search(line) else line for line in lines]


def read_table(text: str) -> Table:
    """Return every certain cell of the first matrix in the text."""
    table = Table()
    header: _Header | None = None
    lines = _joined(plain(text))
    has_header = any(_header(line) is not None for _, line in lines)
    end = max((number for number, line in lines if line.strip()), default=0)
    common = _common(lines)
    for number, line in lines:
        if (legend := _NIC_LEGEND.fullmatch(line)) is not None:
            table.legend[legend.group(1)] = legend.group(2)
            continue
        if "=" in line or line.lstrip().startswith("#"):
            continue
        found = _header(line)
        if found is None and header is not None and not table.rows:
            found = _rest(line)
        if found is not None:
            if header is not None and table.rows:
                where = f"line {number}"
                table.notes.append(
                    (
                        "second-matrix",
                        where,
                        "a second matrix begins here; it is not read",
                        "give it as its own file",
                    )
                )
                break
            header = found if header is None else _widened(header, found)
            header.common = common
            continue
        if header is None:
            header = None if has_header else _headless(lines, table)
            if header is None:
                continue
        _take(line, number, header, table, is_end=number == end)
    if header is not None:
        table.columns, table.titles = header.columns, header.titles
    return table


def _take(line: str, number: int, header: _Header, table: Table, *, is_end: bool) -> None:
    """Add the row of a line, if it is one."""
    words = line.split()
    if words and words[0] in table.rows:
        where = f"row {words[0]}, line {number}"
        table.notes.append(("row-twice", where, "the row is there twice; the first is used", "keep one"))
    elif len(words) > 1 and not _DEVICE.fullmatch(words[1]) and _is_name(words[0], header):
        table.rows[words[0]] = _row(line, number, header, cut=is_end)


def _common(lines: list[tuple[int, str]]) -> int:
    """Return how many cells most rows have, 0 without rows: a header with fewer names has lost some."""
    counts: list[int] = []
    for _, line in lines:
        words = line.split()
        pieces = [len(_PIECE.findall(w)) if _FUSED.fullmatch(w) else 0 for w in words[1:]]
        if len(words) > 1 and _DEVICE.fullmatch(words[0]) and sum(pieces) > 0 and "=" not in line:
            counts.append(sum(pieces))
    return max(set(counts), key=lambda n: (counts.count(n), n)) if counts else 0


def _is_name(word: str, header: _Header) -> bool:
    """Return whether a word names a device."""
    return word in header.columns or _DEVICE.fullmatch(word) is not None


def _joined(lines: list[str]) -> list[tuple[int, str]]:
    """Return numbered lines, with rows that a narrow terminal wrapped put together again."""
    out: list[tuple[int, str]] = []
    for number, line in enumerate(lines, start=1):
        words = line.split()
        is_rest = (
            bool(words)
            and "=" not in line
            and all(_FUSED.fullmatch(word) or _AFFINITY.fullmatch(word) for word in words)
        )
        if is_rest and out and out[-1][1].split() and _DEVICE.fullmatch(out[-1][1].split()[0]):
            out[-1] = (out[-1][0], out[-1][1].rstrip("\n") + " " + line.strip())
        else:
            out.append((number, line))
    return out


def _header(line: str) -> _Header | None:
    """Return the columns if this line is a header: device names and titles, no label."""
    cut = re.search(r"\bCPU\b|\bNUMA\b|\bGPU NUMA\b", line)
    head = line[: cut.start()] if cut else line
    names = _names(head)
    devices = [name for name, _ in names if _DEVICE.fullmatch(name)]
    if not devices or any(_FUSED.fullmatch(name) for name, _ in names) or ":" in head:
        return None
    if not any(name.upper().startswith("GPU") for name in devices):
        return None
    if len(names) == 1 and not line[:1].isspace() and cut is None:
        return None
    if cut is None and len(names) > len(devices) + 1 and len(names) >= 2 * len(devices):
        return None
    titles, starts = [], [start for _, start in names]
    for title in _TITLES:
        at = line.find(title)
        if at >= 0:
            titles.append(title)
            starts.append(at)
    return _Header([name for name, _ in names], titles, starts, "\t" in line)


def _rest(line: str) -> _Header | None:
    """Return the columns of a line that continues a wrapped header: devices, then (parts of) titles."""
    words = line.split()
    names = [w for w in words if _DEVICE.fullmatch(w)]
    if not names or words[: len(names)] != names or not all(w.isalpha() for w in words[len(names) :]):
        return None
    if any(_FUSED.fullmatch(w) for w in words):
        return None
    titles = [title for title in _TITLES if title in line]
    return _Header(names, titles, [], tabbed=False)


def _names(head: str) -> list[tuple[str, int]]:
    """Return the column names with their places; a blank tabbed cell and fused names keep their columns."""
    cells = head.lstrip(" ").split("\t")[1:]
    if len(cells) > 1 and not any(len(cell.split()) > 1 for cell in cells):
        while cells and not cells[-1].strip():
            cells.pop()
        names = [(cell.strip() or "...", 0) for cell in cells]
    else:
        names = [(m.group(0), m.start()) for m in re.finditer(r"\S+", head)]
    out: list[tuple[str, int]] = []
    for name, start in names:
        parts = _NAME.findall(name)
        is_fused = len(parts) > 1 and "".join(parts) == name
        out.extend((part, start) for part in parts) if is_fused else out.append((name, start))
    return out


def _headless(lines: list[tuple[int, str]], table: Table) -> _Header | None:
    """Return the columns of a matrix without a header: the rows in their order, then unnamed NICs."""
    rows: list[tuple[str, int]] = []
    for _, line in lines:
        words = line.split()
        if len(words) > 1 and _DEVICE.fullmatch(words[0]) and _FUSED.fullmatch(words[1]):
            rows.append((words[0], sum(1 for w in words[1:] if _FUSED.fullmatch(w))))
    if not rows or len({name for name, _ in rows}) != len(rows):
        return None
    width = max(count for _, count in rows)
    columns = [name for name, _ in rows]
    extra = max(0, width - len(columns))
    text = "there is no header line; the columns are taken to be the rows in their order"
    if extra:
        text += f"; {extra} more columns have no name and are left out"
    table.notes.append(("header-missing", "header", text, "paste the whole output of nvidia-smi topo -m"))
    return _Header([*columns, *["..."] * extra], [], [], tabbed=False)


def _widened(header: _Header, more: _Header) -> _Header:
    """Return a header that a narrow terminal wrapped, put together; places no longer count."""
    return _Header([*header.columns, *more.columns], header.titles + more.titles, [], tabbed=False)


def _row(line: str, number: int, header: _Header, *, cut: bool) -> Row:
    """Return the row of one line; `cut` says that the text ends here."""
    if cut:
        line = _HALF.sub("NV?", line)
    words = line.split()
    row = Row(words[0], number)
    body = line.lstrip()[len(words[0]) :]
    cells = _by_tabs(body, header) if header.common <= len(header.columns) else None
    if cells is None:
        cells = _by_words(body, line, row, header, cut=cut)
    _check_diagonal(row, cells, header)
    row.tail = {title: cells[title] for title in header.titles if cells.get(title)}
    for column in header.columns:
        text = cells.get(column)
        label = clean_label(text) if text else None
        if column in ELLIPSIS:
            continue
        if label is not None:
            row.cells[column] = label
        else:
            row.doubtful[column] = text or ""
    return row


def _by_tabs(body: str, header: _Header) -> dict[str, str] | None:
    """Return cells and tail by tabs, or None where the line is not cleanly tabbed."""
    if body.count("\t") < len(header.columns) or any(
        len(_PIECE.findall(cell)) > 1 or len(cell.split()) > 1 for cell in body.split("\t")
    ):
        return None
    parts = [part.strip() for part in body.split("\t")[1:]]
    cells = dict(zip(header.columns, parts, strict=False))
    rest = parts[len(header.columns) :]
    if len(header.titles) == 3 and len(rest) == 4 and not rest[2]:
        rest = [rest[0], rest[1], rest[3]]  # nvidia-smi pads NUMA Affinity with a second tab
    cells.update(dict(zip(header.titles, rest, strict=False)))
    return cells


def _by_words(body: str, line: str, row: Row, header: _Header, *, cut: bool) -> dict[str, str]:
    """Return cells and tail by counting words, and by their place where the count is short."""
    words: list[str] = []
    fused = False
    for word in body.split():
        pieces = _PIECE.findall(word) if _FUSED.fullmatch(word) else [word]
        fused = fused or len(pieces) > 1
        words.extend(pieces)
    wanted = len(header.columns)
    most = len(header.titles) or 3
    ends = (i for i in range(1, len(words)) if len(words) - i <= most and _is_tail(words[i:]))
    end = next(ends, len(words))
    matrix, tail = words[:end], words[end:]
    if len(matrix) > wanted and all(_PIECE.fullmatch(w) is None for w in matrix[wanted:]):
        matrix, tail = matrix[:wanted], [*matrix[wanted:], *tail]
    cells: dict[str, str] = {}
    if header.common > wanted:
        row.why = f"most rows have {header.common} cells, the header names {wanted} columns"
        cells = _around_diagonal(row.device, matrix, header)
    elif len(matrix) == wanted and not (cut and header.titles and not tail and row.device.startswith("GPU")):
        cells = dict(zip(header.columns, matrix, strict=True))
    else:
        row.why = (
            "the text ends in this row"
            if len(matrix) == wanted
            else f"{len(matrix)} cells for {wanted} columns"
        )
        placed = None if fused else _by_place(line, row.device, header, len(matrix) + len(tail), cut=cut)
        cells = placed if placed is not None else _around_diagonal(row.device, matrix, header)
    cells.update(_tail(line, tail, header))
    return cells


def _is_tail(words: list[str]) -> bool:
    """Return whether only affinity words follow."""
    return all(_AFFINITY.fullmatch(word) for word in words)


def _by_place(line: str, device: str, header: _Header, count: int, *, cut: bool) -> dict[str, str] | None:
    """Return cells by their place under the header, None where the places prove nothing.

    A row that still has its affinity under the affinity title has lost cells without moving the others.
    A row without it is trusted up to the diagonal, and beyond only if the text ends in it.
    """
    if header.tabbed or "\t" in line or not header.starts:
        return None
    found = [(m.group(0), m.start()) for m in re.finditer(r"\S+", line)][1 : count + 1]
    names = [*header.columns, *header.titles]
    cells: dict[str, str] = {}
    for word, start in found:
        at = [i for i, s in enumerate(header.starts) if 0 <= start - s <= 1]
        if not at or word in ELLIPSIS or names[at[0]] in cells:
            return None
        cells[names[at[0]]] = word
    if device not in header.columns or cells.get(device, "").upper() != "X":
        return None
    if header.titles and _AFFINITY.fullmatch(cells.get(header.titles[0], "")):
        return {column: cells[column] for column in header.columns if column in cells}
    diagonal = header.columns.index(device)
    out = {column: cells[column] for column in header.columns[: diagonal + 1] if column in cells}
    for column in header.columns[diagonal + 1 :] if cut else []:
        if column not in cells:
            break
        out[column] = cells[column]
    return out


def _around_diagonal(device: str, matrix: list[str], header: _Header) -> dict[str, str]:
    """Return the cells left of the diagonal where the ``X`` stands at its place; the rest is uncertain."""
    marks = [i for i, word in enumerate(matrix) if word.upper() == "X"]
    if device not in header.columns or len(marks) != 1 or marks[0] != header.columns.index(device):
        return {}
    return dict(zip(header.columns[: marks[0] + 1], matrix[: marks[0] + 1], strict=True))


def _check_diagonal(row: Row, cells: dict[str, str], header: _Header) -> None:
    """Drop every cell of a row whose ``X`` is not on the diagonal: the cells have moved."""
    marks = [c for c in header.columns if cells.get(c, "").upper() == "X"]
    if marks and marks != [row.device]:
        row.why = f"the X stands in column {', '.join(marks)}, not in {row.device}: the cells have moved"
        for column in header.columns:
            cells.pop(column, None)


def _tail(line: str, words: list[str], header: _Header) -> dict[str, str]:
    """Return the affinity columns; a single word under several titles goes to the nearest one."""
    if not header.titles or not words:
        return {}
    if len(words) >= len(header.titles) or header.tabbed or not header.starts:
        return dict(zip(header.titles, words, strict=False))
    starts = dict(zip(header.titles, header.starts[len(header.columns) :], strict=False))
    out: dict[str, str] = {}
    place = len(line)
    for word in reversed(words):
        place = line.rfind(word, 0, place)
        free = [title for title in header.titles if title not in out]
        if not free:
            break
        out[min(free, key=lambda title: abs(starts[title] - place))] = word
    return out
