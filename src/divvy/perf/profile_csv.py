"""Reads latency profiles from CSV: the columns of published tables, and the house's own format."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from typing import Final

from divvy.errors import Fault, InputError
from divvy.perf.latency import INFEASIBLE, Cell, LatencyProfile

#: Our column to the names under which it is found, in lower case without units and blanks.
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "slice": ("slice", "miginstance", "instancesize", "gpcs", "profile", "slicesize"),
    "batch": ("batch", "batchsize"),
    "processes": ("processes", "workloadnumber", "numproc", "procs"),
    "latency_seconds": ("latencyseconds", "latency", "latencys"),
    "latency_ms": ("latencyms",),
    "throughput": ("throughput", "throughputqps", "throughputpersecond"),
    "utilisation": ("utilisation", "utilization", "util"),
}
_SLICE: Final = re.compile(r"(?:MIG\s+)?(\d+)(?:g(?:\.\d+gb\S*)?)?", re.ASCII | re.IGNORECASE)
HELP: Final = "slice, batch, [processes,] latency_seconds (or latency_ms) [, throughput] [, utilisation]"


def _key(name: str) -> str:
    return re.sub(r"\[.*?\]|\(.*?\)|[\s_\-]", "", name.lower())


def read_profile(text: str, model: str, path: str = "") -> LatencyProfile:
    """Return the profile in a CSV text.

    A zero latency (or an empty one) means that the batch does not fit in memory. Slices are compute slices
    (``3``) or profile names (``3g.40gb``). Lines that begin with ``#`` are comments.

    Raises:
        InputError: With every fault, each with its line.
    """
    lines = text.lstrip("\ufeff").splitlines()
    first = next((i for i, line in enumerate(lines) if line.strip() and not line.startswith("#")), None)
    if first is None:
        raise InputError.one("profile-empty", "the profile is empty", path=path, allowed=HELP)
    header = next(csv.reader([lines[first]]))
    found = _columns(header, f"{path}:{first + 1}")
    faults: list[Fault] = []
    cells: dict[tuple[int, int, int], Cell] = {}
    for number, line in enumerate(lines[first + 1 :], start=first + 2):
        if not line.strip() or line.startswith("#"):
            continue
        row = next(csv.reader(io.StringIO(line)))
        where = f"{path}:{number}"
        if len(row) != len(header):
            faults.append(
                Fault("profile-row", where, f"{len(row)} columns", f"{len(header)} as in the header")
            )
            continue
        cell = _cell({name: row[index].strip() for name, index in found.items()}, where, faults)
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
    if faults:
        raise InputError(f"{path or 'the profile'} has {len(faults)} faults", faults)
    return LatencyProfile(model, tuple(cells[key] for key in sorted(cells)), path)


def _columns(header: list[str], where: str) -> dict[str, int]:
    keys = [_key(name) for name in header]
    found = {
        ours: next(keys.index(name) for name in names if name in keys)
        for ours, names in _COLUMNS.items()
        if any(name in keys for name in names)
    }
    missing = [name for name in ("slice", "batch") if name not in found]
    if "latency_seconds" not in found and "latency_ms" not in found:
        missing.append("latency_seconds")
    if missing:
        raise InputError(
            "this is not a latency profile",
            [Fault("profile-column", where, f"no column {name}", HELP) for name in missing],
        )
    return found


def _cell(row: Mapping[str, str], where: str, faults: list[Fault]) -> Cell | None:
    before = len(faults)
    size = _SLICE.fullmatch(row["slice"])
    if size is None or int(size[1]) == 0:
        text = f"slice {row['slice']!r}"
        faults.append(Fault("profile-slice", where, text, "compute slices or a MIG profile"))
    batch = _number(row, "batch", where, faults, default=None, least=1, whole=True)
    processes = _number(row, "processes", where, faults, default=1, least=1, whole=True)
    seconds = _number(row, "latency_seconds", where, faults)
    seconds = seconds or _number(row, "latency_ms", where, faults) / 1e3
    throughput = _number(row, "throughput", where, faults)
    use = _number(row, "utilisation", where, faults, default=-1)
    if len(faults) > before or size is None:
        return None
    if seconds == 0 and throughput > 0:
        seconds = batch / throughput
    latency = round(seconds * 1e6) if seconds > 0 else INFEASIBLE
    share = None if use < 0 else use / 100 if use > 1 else use
    return Cell(int(size[1]), int(batch), int(processes), latency, throughput, share)


def _number(
    row: Mapping[str, str],
    name: str,
    where: str,
    faults: list[Fault],
    *,
    default: float | None = 0.0,
    least: float = 0.0,
    whole: bool = False,
) -> float:
    """Return a number of a row, the default where it is absent or empty; a wrong one is noted."""
    text = row.get(name, "")
    if text == "" and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value < float("inf") or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        faults.append(Fault("profile-number", where, f"{name} {text!r}", f"{kind} >= {least:g}"))
        return 1.0
    return value
