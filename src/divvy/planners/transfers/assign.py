"""From paths to a plan: which bytes in which window on which path, with start-up and deadlines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from divvy.perf.transfer import KINDS, KindCost, overhead
from divvy.planners.transfers.columns import GB, Column
from divvy.planners.transfers.plan import Transfer
from divvy.planners.transfers.program import Program

Floats = NDArray[np.float64]

#: Of equally fast plans the one with plainer routes: cost of a byte by kind of route.
PLAINNESS: Final = {
    "nvlink": 0.0,
    "pcie-p2p": 1.0,
    "rdma-affine": 2.0,
    "nvlink-relay": 3.0,
    "host-staged": 4.0,
    "rdma-other": 5.0,
    "rdma-staged": 6.0,
    "rdma-relay": 6.0,
    "relay": 7.0,
    "tcp": 8.0,
}
_SIMPLER: Final = 1e-4
_LATE: Final = 10.0
_SETTLED: Final = 0.01
_TURNS: Final = 5
_UNUSED: Final = 1e-5


@dataclass(slots=True)
class Assignment:
    """Bytes (1e9) by column and window, and when all has arrived."""

    gigabytes: Floats
    makespan_s: float


def delays_of(
    transfers: Sequence[Transfer],
    columns: Sequence[Column],
    kinds: Sequence[str],
    costs: Mapping[str, KindCost],
) -> Floats:
    """Return the overhead of each column, as if it carried the whole transfer (its share carries less)."""
    return np.array(
        [
            overhead(kind, transfers[c.transfer].size_bytes, transfers[c.transfer].descriptors, costs).seconds
            for c, kind in zip(columns, kinds, strict=True)
        ]
    )


def assign(
    capacity: Floats,
    transfers: Sequence[Transfer],
    columns: Sequence[Column],
    kinds: Sequence[str],
    windows: Sequence[float],
    guess_s: float,
    costs: Mapping[str, KindCost] = KINDS,
) -> Assignment | None:
    """Return the plan over some paths that ends first; None if they cannot carry it.

    A path that starts `d` late in a window of length `w` needs `w / (w - d)` times the rate, so the program
    is solved again with the length `m` that it found; a late path ends `d (1 - m / w)` after a shorter one.

    Args:
        capacity: GB/s by resource, numbered as in the columns' paths.
        transfers: What to move.
        columns: The paths to choose from.
        kinds: Kind of each path.
        windows: Begins of the windows.
        guess_s: Expected end of everything.
        costs: What each kind of route costs besides its bytes.
    """
    delays = delays_of(transfers, columns, kinds, costs)
    owner = np.array([c.transfer for c in columns])
    need = np.array([t.size_bytes / GB for t in transfers])
    ready = np.array([t.release_s for t in transfers])[owner]
    program = Program([c.path for c in columns], owner, need, capacity)
    result: Assignment | None = None
    closed = [float(x) for x in np.diff(windows)]
    for _ in range(_TURNS):
        last = max(guess_s - windows[-1], 1e-9)
        is_open, factors = [], []
        for begin, length in zip(windows, [*closed, last], strict=True):
            late, opened, factor = _late(ready, delays, begin, length)
            is_open.append(opened)
            factors.append(factor)
        cost = _cost(transfers, owner, kinds, windows, last, need)
        answer = program.solve([*closed, None], is_open, factors, cost)
        if answer is None:
            guess_s = windows[-1] + 2 * max(last, float(delays.max()))
            continue
        over = float(late[answer.amounts[:, -1] > _UNUSED * need[owner]].max(initial=0.0))
        makespan = windows[-1] + answer.last_s + over * max(0.0, 1.0 - answer.last_s / last)
        if result is None or makespan <= result.makespan_s:
            result = Assignment(answer.amounts, makespan)
        if abs(answer.last_s - last) <= _SETTLED * answer.last_s:
            break
        guess_s = windows[-1] + answer.last_s
    return result


def _late(ready: Floats, delays: Floats, begin: float, length: float) -> tuple[Floats, Any, Floats]:
    """Return how late in a window each path starts, whether it is open, and the room that a byte takes."""
    late = np.maximum(ready + delays - begin, 0.0)
    is_open = (ready <= begin + 1e-12) & (late < 0.98 * length)
    return late, is_open, 1.0 / np.clip(1.0 - late / length, 0.02, 1.0)


def _cost(
    transfers: Sequence[Transfer],
    owner: NDArray[np.int64],
    kinds: Sequence[str],
    windows: Sequence[float],
    last_s: float,
    need: Floats,
) -> Floats:
    """Return the costs of bytes by window and path: lateness is dear, plainness cheap."""
    count, span = len(windows), len(owner)
    cost = np.zeros(span * count)
    plain = np.array([PLAINNESS[k] for k in kinds]) * _SIMPLER * last_s / max(float(need.sum()), 1e-12)
    deadline = np.array([t.deadline_s if t.deadline_s is not None else np.inf for t in transfers])[owner]
    dated = np.isfinite(deadline)
    for window, begin in enumerate(windows):
        late = dated & (begin >= deadline - 1e-12)
        cost[window * span : (window + 1) * span] = plain + np.where(late, _LATE * last_s / need[owner], 0.0)
    return cost
