"""The slice planners by name: a new planner is one file and one line here."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from divvy.errors import InputError, NotFoundError
from divvy.planners.slices.base import SlicePlanner
from divvy.planners.slices.exhaustive import Exhaustive
from divvy.planners.slices.homogeneous import make_homogeneous
from divvy.planners.slices.paris import make_paris
from divvy.planners.slices.randomly import Randomly
from divvy.planners.slices.search import Search


def _plain(make: Callable[[], SlicePlanner]) -> Callable[[str], SlicePlanner]:
    """Return what makes a planner that has no options: text behind its name is refused."""

    def read(text: str) -> SlicePlanner:
        if text:
            raise InputError.one("planner-option", f"{text!r}: this planner has no options", path="--planner")
        return make()

    return read


#: Name to what makes the planner from the text behind the colon.
PLANNERS: Final = MappingProxyType[str, Callable[[str], SlicePlanner]](
    {
        "paris": make_paris,
        "homogeneous": make_homogeneous,
        "random": _plain(Randomly),
        "divvy": _plain(Search),
        "exhaustive": _plain(Exhaustive),
    }
)


def find_planner(text: str) -> SlicePlanner:
    """Return a planner from a text such as ``divvy``, ``homogeneous:3`` or ``paris:knee=marginal``.

    Raises:
        NotFoundError: If there is none of that name; the fault lists them.
        InputError: If what stands behind the colon is not understood.
    """
    name, _, rest = text.partition(":")
    make = PLANNERS.get(name)
    if make is None:
        raise NotFoundError.one(
            "unknown-planner", f"no planner {name!r}", path="--planner", allowed=", ".join(PLANNERS)
        )
    return make(rest)


def split_names(text: str) -> tuple[str, ...]:
    """Return the entries of a list such as ``paris:knee=marginal,rounding=floor,divvy``.

    A comma ends an entry unless what follows is a parameter (``name=value``).
    """
    return tuple(part.strip() for part in re.split(r",(?!\s*[\w-]+=)", text) if part.strip())
