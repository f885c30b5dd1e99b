"""What a new version of the budget changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def budget_changes(before: Mapping[str, Any], after: Mapping[str, Any], at: str = "") -> list[dict[str, Any]]:
    """Return what differs between two budget documents: path, old and new value (None: not there).

    The order in which accounts are written down is no change: nobody is given more or less by it.
    """
    changes: list[dict[str, Any]] = []
    for key in dict.fromkeys((*before, *after)):
        if key == "order" and not at:
            continue
        path = f"{at}.{key}" if at else key
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) or isinstance(new, Mapping):
            sides = [side if isinstance(side, Mapping) else {} for side in (old, new)]
            changes += budget_changes(sides[0], sides[1], path)
        elif old != new:
            changes.append({"path": path, "from": old, "to": new})
    return changes
