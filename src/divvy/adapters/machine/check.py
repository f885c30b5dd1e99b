"""One look at a machine: what was found, whether that will do, what needs it and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    """It works, but not as well as it could."""
    MISSING = "missing"
    """Optional and not there: what needs it is not to be had."""
    FAIL = "fail"
    """Needed, and not there or broken."""
    UNKNOWN = "unknown"
    """It could not be found out."""


class Check(NamedTuple):
    """The result of one look.

    Attributes:
        name: Stable word.
        state: How it ended.
        found: What was seen.
        needed_for: What uses it.
        fix: What to do; empty where nothing.
    """

    name: str
    state: State
    found: str
    needed_for: str
    fix: str = ""


#: Looks at one thing.
Look = Callable[[], Check]


def look_at(looks: Iterable[tuple[str, str, Look]]) -> Iterator[Check]:
    """Yield the result of every look; one that cannot be finished is unknown, whatever went wrong.

    Args:
        looks: Name, what needs it, and the look.
    """
    for name, needed_for, look in looks:
        try:
            yield look()
        except Exception as error:  # noqa: BLE001 - an odd machine is what a check is for
            text = str(error).strip() or type(error).__name__
            yield Check(
                name, State.UNKNOWN, text[:300], needed_for, "look at this by hand; the rest was checked"
            )
