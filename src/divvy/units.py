"""Units of the house: durations in integer milliseconds, sizes in bytes, shares as exact fractions.

Time and charge are integers everywhere inside, so that twins, replays and machines agree to the bit.
Text is read and written only at the edges, by the functions here.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

_DURATION_UNITS: Final = {"ms": 1, "s": SECOND, "m": MINUTE, "min": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|[smhdw])", re.ASCII)
_BYTE_UNITS: Final = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_BYTES: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b)", re.ASCII | re.IGNORECASE)

_WHOLE: Final = re.compile(r"[+-]?\d{1,15}", re.ASCII)

DURATION_HELP: Final = 'a number and a unit (ms, s, m, h, d, w), such as "90s", "15m", "8h" or "1d12h"; or 0'
BYTES_HELP: Final = 'a number and a unit (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB), such as "1.3GB"'


def parse_duration(text: str) -> int:
    """Return the milliseconds that a duration such as ``"1d12h"`` or ``"0"`` means.

    Raises:
        ValueError: If the text is not a duration; a bare number other than 0 has no unit and is refused.
    """
    stripped = text.strip().lower()
    if stripped == "0":
        return 0
    total = Decimal(0)
    position = 0
    for match in _DURATION_PART.finditer(stripped):
        if stripped[position : match.start()].strip():
            break
        total += Decimal(match.group(1)) * _DURATION_UNITS[match.group(2)]
        position = match.end()
    if position == 0 or position != len(stripped):
        raise ValueError(f"{text!r} is not a duration; write {DURATION_HELP}")
    return int(total.to_integral_value())


def format_duration(milliseconds: int) -> str:
    """Return a duration as at most its two largest units, such as ``"1d 4h"`` or ``"42s"``."""
    if milliseconds < 0:
        return "-" + format_duration(-milliseconds)
    if milliseconds < SECOND:
        return f"{milliseconds}ms" if milliseconds else "0s"
    parts: list[str] = []
    rest = milliseconds
    for unit, size in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def write_duration(milliseconds: int) -> str:
    """Return a duration exactly, in the form that `parse_duration` reads back, such as ``"1d12h"``."""
    rest = milliseconds
    parts: list[str] = []
    for unit, size in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0"


def format_instant(milliseconds: int) -> str:
    """Return a time (ms since the Unix epoch) as UTC text to the minute, ``"2026-10-09 14:20 UTC"``."""
    return datetime.fromtimestamp(milliseconds / SECOND, UTC).strftime("%Y-%m-%d %H:%M UTC")


def parse_bytes(text: str) -> int:
    """Return the bytes that a size such as ``"1.3GB"`` (decimal) or ``"64KiB"`` (binary) means.

    Raises:
        ValueError: If the text is not a size with its unit.
    """
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write {BYTES_HELP}")
    return int((Decimal(match.group(1)) * _BYTE_UNITS[match.group(2).lower()]).to_integral_value())


def parse_decimal(value: object) -> Decimal:
    """Return a number from a file exactly as it was written (33.3 is 333/10, not a binary fraction).

    Raises:
        ValueError: If the value is not a finite number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError(f"{value!r} is not a number")
    try:
        number = Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is not a number") from error
    if not number.is_finite():
        raise ValueError(f"{value!r} is not a finite number")
    return number


def parse_float(text: str) -> float:
    """Return a number as people and programs write it, such as ``"0.005"`` or ``"1e-3"``.

    Raises:
        ValueError: If the text is anything else: infinite, not a number, with ``_`` or foreign digits.
    """
    value = float(text) if text.isascii() and "_" not in text else math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a number")
    return value


def parse_whole(text: str) -> int:
    """Return a whole number of at most 15 digits.

    Raises:
        ValueError: If the text is anything else; ``"1.5"`` and ``"1e3"`` are.
    """
    if _WHOLE.fullmatch(text.strip()) is None:
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def parse_json(text: str) -> Any:
    """Return what a JSON text says, where it can only mean one thing.

    Raises:
        ValueError: If it is not JSON, names a member twice, holds NaN or Infinity, or nests too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} is there twice")
    return document


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def gpu_hours(gpu_milliseconds: int) -> float:
    """Return GPU-milliseconds as GPU-hours."""
    return gpu_milliseconds / HOUR
