"""The policies by name. A new one is a file and a line here."""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from divvy.errors import NotFoundError
from divvy.planners.base import JobPlanner

#: Name of the policy: (module, class). Imported when asked for, so that nobody pays for the others.
PLANNERS: Final[dict[str, tuple[str, str]]] = {
    "budget": ("divvy.planners.jobs.budget", "BudgetPlanner"),
    "fairshare": ("divvy.planners.jobs.fairshare", "FairsharePlanner"),
    "fifo": ("divvy.planners.jobs.fifo", "FifoPlanner"),
}


def create(name: str) -> JobPlanner:
    """Return a fresh planner.

    Raises:
        NotFoundError: If there is no policy of that name; the valid names are listed.
    """
    place = PLANNERS.get(name)
    if place is None:
        raise NotFoundError.one(
            "policy-unknown",
            f"no policy {name!r}",
            path="policy",
            allowed=", ".join(sorted(PLANNERS)),
            fix="choose one of these",
        )
    module, planner = place
    return cast(JobPlanner, getattr(import_module(module), planner)())
