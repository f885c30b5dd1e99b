"""The gaps between the time stamps of a recorded trace: CSV (Azure LLM 2023) or JSON lines (Mooncake)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

from divvy.errors import Fault, InputError
from divvy.perf.tables import as_records, read_rows
from divvy.units import parse_float, parse_json

#: Nanoseconds of this century have 19 digits; a number beyond that is no time.
_FAR: Final = 1e19


def read_gaps(text: str, path: str) -> NDArray[np.float64]:
    """Return the gaps between the time stamps of a trace, in its own unit; stamps are put in order first.

    Known traces: CSV with a column ``TIMESTAMP`` (numbers, or dates with a time; all with a zone or none),
    and JSON lines with a number ``timestamp``.

    Raises:
        InputError: With every line that has no time stamp, or if the trace has no two different ones.
    """
    body = text.removeprefix("\ufeff")
    stamps = _json_stamps(body, path) if body.lstrip().startswith("{") else _csv_stamps(body, path)
    gaps = np.diff(np.sort(np.array(stamps, float)))
    if gaps.size == 0 or gaps.mean() <= 0:
        raise InputError.one("arrivals", "the trace has no two different time stamps", path=path)
    return np.asarray(gaps, np.float64)


def _json_stamps(text: str, path: str) -> list[float]:
    stamps, faults = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = parse_json(line)["timestamp"]
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _FAR:
                raise ValueError(f"{value!r} is not a time")  # noqa: TRY301 - one place notes the line
            stamps.append(float(value))
        except (ValueError, KeyError, TypeError):
            faults.append(Fault("arrivals", f"{path}:{number}", "no number `timestamp` in this line"))
    if faults:
        raise InputError(f"{path} is not a trace", faults)
    return stamps


def _csv_stamps(text: str, path: str) -> list[float]:
    rows, faults = read_rows(text, path, "arrivals")
    header = [cell.lower() for cell in rows[0].cells] if rows else []
    if header.count("timestamp") != 1:
        raise InputError.one("arrivals", "not one column TIMESTAMP", path=f"{path}:1")
    stamps: list[float] = []
    zones: set[bool] = set()
    for where, record in as_records(rows[1:], header, path, "arrivals", faults):
        try:
            stamp, zoned = _moment(record["timestamp"])
        except (ValueError, OverflowError):
            faults.append(Fault("arrivals", where, f"{record['timestamp']!r} is not a time stamp"))
            continue
        stamps.append(stamp)
        zones.add(zoned)
        if len(zones) > 1:
            faults.append(Fault("arrivals", where, f"{record['timestamp']!r}: with a zone, others without"))
            zones = {zoned}
    if faults:
        raise InputError(f"{path} is not a trace", faults)
    return stamps


def _moment(text: str) -> tuple[float, bool]:
    """Return a time stamp, and whether it names a zone; fractions are cut to what Python reads."""
    try:
        number = parse_float(text)
    except ValueError:
        whole, dot, fraction = text.partition(".")
        moment = datetime.fromisoformat(whole + dot + fraction[:6])
        zoned = moment.tzinfo is not None
        return (moment if zoned else moment.replace(tzinfo=UTC)).timestamp(), zoned
    if not abs(number) < _FAR:
        raise ValueError(f"{text!r} is not a time")
    return number, False
