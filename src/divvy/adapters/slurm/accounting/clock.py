"""Slurm's times and durations into integers.

sacct prints local time without a zone: the zone is that of the machine, or an option. An hour that a clock
change repeats is meant once; which one, `mend` finds out from Slurm's own elapsed time.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from divvy.control.audit.jobs import UNKNOWN
from divvy.errors import InputError
from divvy.units import DAY, HOUR, MINUTE, SECOND

#: Slurm's words for a time that there is none of.
NO_TIME: Final = frozenset(
    {"", "Unknown", "None", "N/A", "NONE", "n/a", "unknown", "(null)", "null", "0", "INVALID"}
)
NO_LIMIT: Final = frozenset(
    {"UNLIMITED", "Partition_Limit", "INVALID", "NOT_SET", "infinite", "Infinite", "INFINITE"}
)
#: Marks of Slurm for "no value" and "infinite", 16, 32 and 64 bits wide.
NO_VALUES: Final = frozenset({2**w - k for w in (16, 32, 64) for k in (1, 2)})

_DURATION: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?", re.ASCII)
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", re.ASCII)
_TWO_DIGITS: Final = [f"{number:02d}" for number in range(60)]
#: ``:30:05`` and the like; nearly every time and duration is looked up, not computed.
_WITHIN_HOUR: Final = {
    f":{m}:{s}": int(m) * MINUTE + int(s) * SECOND for m in _TWO_DIGITS for s in _TWO_DIGITS
}
_HOURS: Final = {text: int(text) * HOUR for text in _TWO_DIGITS}
_EARLIEST: Final = 631_152_000_000  # 1990
_FIRST_EPOCH: Final = 10**8


class Clock:
    """Reads times in one zone.

    Args:
        zone: IANA name; empty for the zone of this machine.
        latest: Instant (ms) after which no time is believed.

    Raises:
        InputError: If there is no such zone.
    """

    def __init__(self, zone: str = "", latest: int = 2**62) -> None:
        self._zone: ZoneInfo | None = None
        self._hours: dict[str, int] = {}
        self._latest = latest
        if zone:
            try:
                self._zone = ZoneInfo(zone)
            except (KeyError, OSError, ValueError) as error:
                raise InputError.one(
                    "zone-unknown",
                    f"no time zone {zone!r}",
                    path="--tz",
                    allowed="an IANA name, such as Europe/Berlin or UTC",
                ) from error

    def read(self, text: str) -> int:
        """Return the instant (ms) of a time such as ``2024-03-31T01:30:00``, UNKNOWN where there is none.

        Raises:
            ValueError: If it is no time.
        """
        try:
            return self._hours[text[:13]] + _WITHIN_HOUR[text[13:]]
        except KeyError:
            return self._slowly(text)

    def _slowly(self, text: str) -> int:
        if text in NO_TIME:
            return UNKNOWN
        if text.isascii() and text.isdigit():
            return self.epoch(int(text))
        if _ISO.match(text) is None:
            raise ValueError(f"{text!r} is not a time")
        try:
            moment = datetime.fromisoformat(text)
            instant = self._instant(moment)
            if moment.tzinfo is None and len(text) == 19:
                self._hours[text[:13]] = self._instant(moment.replace(minute=0, second=0))
        except (ValueError, OverflowError, OSError) as error:
            raise ValueError(f"{text!r} is not a time") from error
        return self._believed(instant, text)

    def _instant(self, moment: datetime) -> int:
        if moment.tzinfo is None and self._zone is not None:
            moment = moment.replace(tzinfo=self._zone)
        return round(moment.timestamp()) * SECOND

    def epoch(self, seconds: int) -> int:
        """Return the instant of Unix seconds, UNKNOWN for 0 and Slurm's marks for no value.

        Raises:
            ValueError: If no job can be of then.
        """
        if seconds == 0 or seconds in NO_VALUES:
            return UNKNOWN
        if seconds < _FIRST_EPOCH:
            raise ValueError(f"{seconds} is not a time in Unix seconds")
        return self._believed(seconds * SECOND, str(seconds))

    def _believed(self, instant: int, text: str) -> int:
        if not _EARLIEST <= instant <= self._latest:
            raise ValueError(f"{text!r} is not a time at which a job can have been")
        return instant


def mend(start: int, end: int, elapsed: int) -> int:
    """Return the end of a run whose times a clock change has shifted.

    Args:
        start: ms.
        end: ms, as the text reads.
        elapsed: What Slurm itself counted, ms.
    """
    off = end - start - elapsed
    return start + elapsed if abs(off) in (HOUR, HOUR // 2) else end


def duration(text: str) -> int:
    """Return the milliseconds of ``1-02:03:04``, ``02:03:04`` or ``03:04.567``; UNKNOWN where there is none.

    Raises:
        ValueError: If it is no duration.
    """
    try:
        return _HOURS[text[:2]] + _WITHIN_HOUR[text[2:]]
    except KeyError:
        if text in NO_TIME:
            return UNKNOWN
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration")
    parts = [int(part or 0) for part in found.groups()]
    return parts[0] * DAY + parts[1] * HOUR + parts[2] * MINUTE + parts[3] * SECOND


@lru_cache(maxsize=16_384)
def limit(text: str) -> int:
    """Return the milliseconds of a time limit; UNKNOWN for UNLIMITED, Partition_Limit and none.

    Raises:
        ValueError: If it is no limit.
    """
    if text in NO_LIMIT:
        return UNKNOWN
    if text.isascii() and text.isdigit():
        return minutes(int(text))
    return duration(text)


def minutes(number: int) -> int:
    """Return the milliseconds of a limit in minutes; UNKNOWN for Slurm's marks for none."""
    return (
        UNKNOWN
        if number in NO_VALUES or number < 0
        else round(timedelta(minutes=number).total_seconds()) * SECOND
    )
