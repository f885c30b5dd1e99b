"""Reads latency profiles from CSV: the columns of published tables, and the house's own format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from divvy.errors import Fault, InputError
from divvy.perf.latency import INFEASIBLE, Cell, LatencyProfile
from divvy.perf.tables import Row, as_records, read_rows
from divvy.units import parse_float

#: Our column to the names under which it is found, in lower case without units and blanks.
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "slice": ("slice", "miginstance", "instancesize", "gpcs", "profile", "slicesize"),
    "batch": ("batch", "batchsize"),
    "processes": ("processes", "workloadnumber", "numproc", "procs"),
    "latency": ("latency", "latencyseconds", "latencys", "latencyms"),
    "throughput": ("throughput", "throughputqps", "throughputpersecond"),
    "utilisation": ("utilisation", "utilization", "util"),
}
#: Brackets hold no brackets: a header of opening ones alone is read once, not once from each of them.
_UNIT: Final = re.compile(r"[\[(]([^\[\]()]*)[\])]")
#: Seconds in the units that a latency may have; a plain ``Latency`` is in seconds, as published tables are.
_SECONDS: Final[Mapping[str, float]] = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6}
_SLICE: Final = re.compile(r"(?:MIG\s+)?(\d{1,2})(?:g(?:\.\d+gb\S*)?)?", re.ASCII | re.IGNORECASE)
HELP: Final = "slice, batch, [processes,] latency_seconds (or latency_ms) [, throughput] [, utilisation]"

#: What a cell may hold: a batch is a row of a table in the replay, and no server has more processes.
MOST_ITEMS: Final = 16_384
MOST_PROCESSES: Final = 1_024
#: A run of over an hour, or under a microsecond, is a wrong unit.
LONGEST_SECONDS: Final = 3_600.0
_SHORTEST_SECONDS: Final = 1e-6
#: Latency over what the throughput implies: beyond this factor in the middle of a table, a unit is wrong.
_UNIT_FACTOR: Final = 100.0


def slice_size(text: str) -> int:
    """Return the compute slices that ``3`` or ``3g.40gb`` means; 0 for what is neither."""
    size = _SLICE.fullmatch(text)
    return 0 if size is None else int(size[1])


def _key(name: str) -> str:
    return re.sub(r"\[[^\[\]]*\]|\([^()]*\)|[\s_\-]", "", name.lower())


def read_profile(text: str, model: str, path: str = "") -> LatencyProfile:
    """Return the profile in a CSV text.

    A zero latency (or an empty one) means that the batch does not fit in memory. Slices are compute slices
    (``3``) or profile names (``3g.40gb``). Lines that begin with ``#`` are comments.

    Raises:
        InputError: With every fault, each with its line.
    """
    rows, faults = read_rows(text, path, "profile-row")
    if not rows and not faults:
        raise InputError.one("profile-empty", "the profile is empty", path=path, allowed=HELP)
    names, unit = _columns(rows[0], f"{path}:{rows[0].line}") if rows else ((), 1.0)
    cells: dict[tuple[int, int, int], Cell] = {}
    for where, record in as_records(rows[1:], names, path, "profile-row", faults):
        cell = _cell(record, unit, where, faults)
        if cell is None:
            continue
        key = (cell.gpcs, cell.batch, cell.processes)
        if key in cells and cells[key] != cell:
            faults.append(
                Fault("profile-duplicate", where, f"slice {key[0]}, batch {key[1]}, {key[2]} processes again")
            )
        cells[key] = cell
    if not faults and not any(cell.latency_us != INFEASIBLE for cell in cells.values()):
        faults.append(Fault("profile-empty", path, "no cell of this profile has a latency"))
    if not faults:
        faults += _unit_faults(list(cells.values()), path)
    if faults:
        raise InputError(f"{path or 'the profile'} has {len(faults)} faults", faults)
    return LatencyProfile(model, tuple(cells[key] for key in sorted(cells)), path)


def _columns(header: Row, where: str) -> tuple[tuple[str, ...], float]:
    """Return our name of every column (its own where it is not ours), and the seconds in a latency.

    Raises:
        InputError: If a column is missing or there twice, or the latency has an unknown unit.
    """
    known = {name: ours for ours, names in _COLUMNS.items() for name in names}
    names = tuple(known.get(_key(cell), f"?{i}") for i, cell in enumerate(header.cells))
    faults = [
        Fault("profile-column", where, f"no column {name}", HELP)
        for name in ("slice", "batch", "latency")
        if name not in names
    ]
    faults += [
        Fault("profile-column", where, f"{names.count(name)} columns for the {name}", "one")
        for name in _COLUMNS
        if names.count(name) > 1
    ]
    if faults:
        raise InputError("this is not a latency profile", faults)
    written = header.cells[names.index("latency")]
    said = _UNIT.search(written)
    unit = said[1].strip().lower() if said is not None else "ms" if _key(written) == "latencyms" else "s"
    if unit.replace("\u00b5", "u") not in _SECONDS:
        raise InputError.one("profile-unit", f"{written!r}", path=where, allowed=", ".join(_SECONDS))
    return names, _SECONDS[unit.replace("\u00b5", "u")]


def _unit_faults(cells: Sequence[Cell], path: str) -> list[Fault]:
    """Return a fault if the latencies are far from what the throughputs imply: then a unit is wrong."""
    ratios = [
        cell.latency_us * cell.throughput / (cell.batch * 1e6)
        for cell in cells
        if cell.throughput > 0 and cell.latency_us != INFEASIBLE
    ]
    middle = median(ratios) if ratios else 1.0
    if 1 / _UNIT_FACTOR < middle < _UNIT_FACTOR:
        return []
    text = f"the latencies are {middle:.3g} times what the throughputs imply: one of them has another unit"
    return [Fault("profile-unit", path, text, "latency in seconds, or a column latency_ms; items per second")]


def _cell(record: Mapping[str, str], unit: float, where: str, faults: list[Fault]) -> Cell | None:
    before = len(faults)
    size = slice_size(record["slice"])
    if size == 0:
        text = f"slice {record['slice']!r}"
        faults.append(Fault("profile-slice", where, text, "compute slices or a MIG profile"))
    batch = _count(record, "batch", where, faults, MOST_ITEMS)
    processes = _count(record, "processes", where, faults, MOST_PROCESSES)
    seconds = _number(record, "latency", where, faults, LONGEST_SECONDS / unit) * unit
    throughput = _number(record, "throughput", where, faults)
    use = _number(record, "utilisation", where, faults, 100.0) if record.get("utilisation") else -1.0
    if seconds == 0 and throughput > 0:
        seconds = batch / throughput
    if 0 < seconds < _SHORTEST_SECONDS:
        text = f"a run of {seconds:.3g} s: is this another unit?"
        faults.append(Fault("profile-number", where, text, f"0, or at least {_SHORTEST_SECONDS:g} s"))
    if len(faults) > before:
        return None
    latency = round(seconds * 1e6) if seconds > 0 else INFEASIBLE
    share = None if use < 0 else use / 100 if use > 1 else use
    return Cell(size, batch, processes, latency, throughput, share)


def _count(record: Mapping[str, str], name: str, where: str, faults: list[Fault], most: int) -> int:
    """Return a whole number of a row; a wrong one is noted. Floats without a fraction (``8.0``) will do."""
    text = record.get(name) or ("1" if name == "processes" else "")
    try:
        value = parse_float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= most or value != int(value):
        faults.append(Fault("profile-number", where, f"{name} {text!r}", f"a whole number of 1 to {most}"))
        return 1
    return int(value)


def _number(
    record: Mapping[str, str], name: str, where: str, faults: list[Fault], most: float = 1e15
) -> float:
    """Return a number of a row, 0 where it is absent or empty; a wrong one is noted."""
    text = record.get(name, "")
    if text == "":
        return 0.0
    try:
        value = parse_float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        faults.append(Fault("profile-number", where, f"{name} {text!r}", f"a number of 0 to {most:g}"))
        return 0.0
    return value
