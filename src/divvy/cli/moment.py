"""Times as people write them: back from now, or a date or time where they live or with its offset."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final

from divvy.errors import InputError
from divvy.units import SECOND, parse_duration

TIME_HELP: Final = (
    'a duration back from now ("7d"), or a date or time ("2026-10-09", "2026-10-09T18:00", of this time zone '
    'unless it ends with one: "2026-10-09T18:00Z", "+02:00")'
)


def moment(text: str, option: str, now: float) -> float:
    """Return a time in Unix seconds. A date is its first instant where the reader lives.

    Raises:
        InputError: If the text is no time, or one that the clocks of this place never showed or showed twice.
    """
    try:
        return now - parse_duration(text) / SECOND
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text.strip())
        if found.tzinfo is not None:
            return found.timestamp()
        return _local(found, text, option, dated="T" not in text and " " not in text.strip())
    except (ValueError, OverflowError, OSError) as error:
        raise InputError.one(
            "time-format", f"{text!r} is not a time", path=option, allowed=TIME_HELP, fix="correct it"
        ) from error


def _local(found: datetime, text: str, option: str, *, dated: bool) -> float:
    """Return a time of this place; where the clocks are set, a time may not exist or exist twice."""
    one, other = (found.replace(fold=fold).timestamp() for fold in (0, 1))
    if math.isclose(one, other, abs_tol=1e-3):
        return one
    if dated:  # the day begins when its first instant does
        return max(one, other) if one > other else one
    written = [datetime.fromtimestamp(at).astimezone().isoformat(timespec="minutes") for at in (one, other)]
    if one > other:
        raise InputError.one(
            "time-missing",
            f"{text!r} does not exist here: the clocks are set forward over it",
            path=option,
            allowed=f"{written[1]} or {written[0]}",
            fix="write another time, or one with its offset",
        )
    raise InputError.one(
        "time-twice",
        f"{text!r} exists twice here: the clocks are set back over it",
        path=option,
        allowed=f"{written[0]} or {written[1]}",
        fix="write the offset too",
    )
