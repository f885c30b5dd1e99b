"""The policies by name. A new one is a file and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from divvy.errors import NotFoundError
from divvy.planners.base import JobPlanner
from divvy.planners.jobs.budget import BudgetPlanner
from divvy.planners.jobs.fairshare import FairsharePlanner
from divvy.planners.jobs.fifo import FifoPlanner

PLANNERS: Final[dict[str, Callable[[], JobPlanner]]] = {
    "budget": BudgetPlanner,
    "fairshare": FairsharePlanner,
    "fifo": FifoPlanner,
}


def create(name: str) -> JobPlanner:
    """Return a fresh planner.

    Raises:
        NotFoundError: If there is no policy of that name; the valid names are listed.
    """
    factory = PLANNERS.get(name)
    if factory is None:
        raise NotFoundError.one(
            "policy-unknown",
            f"no policy {name!r}",
            path="policy",
            allowed=", ".join(sorted(PLANNERS)),
            fix="choose one of these",
        )
    return factory()
