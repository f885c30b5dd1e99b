"""How this Divvy was built: as plain Python, or with the planner compiled (`make compiled`)."""

from __future__ import annotations

import importlib.util
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

#: The module whose kind says it; all that are compiled are compiled together.
_PLANNER: Final = "divvy.planners.jobs.budget"


def compiled() -> bool:
    """Return whether the budget planner that runs here is compiled."""
    spec = importlib.util.find_spec(_PLANNER)
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))
