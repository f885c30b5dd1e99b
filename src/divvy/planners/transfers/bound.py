"""The time that no plan can beat: linear programming over the whole graph, with the unavoidable start-up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.columns import GB, Split, solve
from divvy.planners.transfers.plan import Transfer
from divvy.planners.transfers.roads import Roads

_MOST_WINDOWS = 8


def windows_of(transfers: Sequence[Transfer], *, early: bool) -> tuple[list[float], list[Transfer]]:
    """Return window begins and the transfers with releases moved onto them.

    Up to eight release times are kept as they are. More are gathered into eight groups: moved to the
    first of the group for a bound (`early`), to the last of it for a plan.
    """
    times = sorted({t.release_s for t in transfers})
    if len(times) <= _MOST_WINDOWS:
        return times, list(transfers)
    groups = np.array_split(np.array(times), _MOST_WINDOWS)
    moved = {float(t): float(g[0] if early else g[-1]) for g in groups for t in g}
    out = [
        Transfer(t.id, t.source, t.target, t.size_bytes, moved[t.release_s], t.deadline_s, t.descriptors)
        for t in transfers
    ]
    return sorted(set(moved.values())), out


def least_startup(finder: Finder, transfer: Transfer) -> float:
    """Return the least start-up that any kind of route between the ends has.

    Descriptors are not in it: divided among enough routes they cost as little as one likes.
    """
    found = finder.between(transfer.source, transfer.target)
    return min((c.cost.startup_s for c in found), default=0.0)


def bound(ways: Roads, finder: Finder, transfers: Sequence[Transfer], split: Split | None = None) -> float:
    """Return the bound in seconds.

    Args:
        ways: The roads.
        finder: Knows which kinds of routes exist (for the start-up).
        transfers: What to move; each has a way.
        split: The program's solution if it is known already.
    """
    if not transfers:
        return 0.0
    if split is None:
        windows, moved = windows_of(transfers, early=True)
        split = solve(ways, moved, windows)
    starts = [least_startup(finder, t) for t in transfers]
    alone = max(
        t.release_s + start + t.size_bytes / GB / _cut(ways, t)
        for t, start in zip(transfers, starts, strict=True)
    )
    return max(min(starts) + split.bound_s, alone)


def _cut(ways: Roads, transfer: Transfer) -> float:
    """Return the most that can leave the source or enter the target, GB/s."""
    out_state, in_state = ways.sources[transfer.source], ways.sinks[transfer.target]
    leave = {r for a in ways.arcs if a.tail == out_state for r in a.resources[:1]}
    enter = {r for a in ways.arcs if a.head == in_state for r in a.resources[:1]}
    return min(float(ways.capacity[sorted(leave)].sum()), float(ways.capacity[sorted(enter)].sum()))
