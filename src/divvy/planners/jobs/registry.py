"""The policies by name. A new one is a file and a line here."""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from divvy.errors import NotFoundError
from divvy.planners.base import JobPlanner

#: Label of the policies that others have invented and documented.
BASELINE: Final = "the documented rule, re-implemented"

#: Name of the policy: module, class, and where the rule is documented (empty for our own). Imported when
#: asked for, so that nobody pays for the others.
PLANNERS: Final[dict[str, tuple[str, str, str]]] = {
    "budget": ("divvy.planners.jobs.budget", "BudgetPlanner", ""),
    "fairshare": (
        "divvy.planners.jobs.fairshare",
        "FairsharePlanner",
        "https://slurm.schedmd.com/fair_tree.html",
    ),
    "fifo": ("divvy.planners.jobs.fifo", "FifoPlanner", "https://doi.org/10.1007/3-540-60153-8_35"),
    "kai": (
        "divvy.planners.jobs.kai",
        "KaiPlanner",
        "https://github.com/NVIDIA/KAI-Scheduler/tree/main/docs",
    ),
    "kueue": (
        "divvy.planners.jobs.kueue",
        "KueuePlanner",
        "https://kueue.sigs.k8s.io/docs/concepts/preemption/",
    ),
    "priority": (
        "divvy.planners.jobs.priority",
        "PriorityPlanner",
        'the old system in Ai2, "Impactful scheduling for GPU clusters", 9 October 2026',
    ),
    "static": ("divvy.planners.jobs.static", "StaticPlanner", "https://slurm.schedmd.com/slurm.conf.html"),
}


def documented(name: str) -> dict[str, str]:
    """Return the label of a policy and where its rule is documented; both empty for our own."""
    source = PLANNERS[name][2] if name in PLANNERS else ""
    return {"label": BASELINE if source else "", "source": source}


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
    module, planner, _ = place
    return cast(JobPlanner, getattr(import_module(module), planner)())
