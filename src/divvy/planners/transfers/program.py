"""The linear program that both the bound and the plan solve: bytes by path and window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from divvy.planners.transfers.roads import Path

Floats = NDArray[np.float64]

_SPREAD: Final = 0xBF58476D1CE4E5B9


class Answer(NamedTuple):
    """A solved program.

    Attributes:
        amounts: Bytes (1e9) by path and window.
        last_s: Length of the last window.
        prices: By window and resource: what one more GB of capacity would save.
        worth: By transfer: what one more GB costs.
    """

    amounts: Floats
    last_s: float
    prices: Floats
    worth: Floats


def _tightest(
    columns: NDArray[np.int64], rows: NDArray[np.int64], times: NDArray[np.int64], capacity: Floats
) -> NDArray[np.int64]:
    """Return the rows that can bind: of those that the same paths use alike, the one with least capacity."""
    weight = (np.arange(int(columns.max()) + 1, dtype=np.uint64) + np.uint64(1)) * np.uint64(_SPREAD)
    weight = (weight ^ (weight >> np.uint64(29))) * np.uint64(_SPREAD)
    mark = np.zeros(len(capacity), dtype=np.uint64)
    np.add.at(mark, rows, weight[columns] * times.astype(np.uint64))
    order = np.lexsort((np.arange(len(capacity)), capacity, mark))
    first = np.concatenate([[True], mark[order][1:] != mark[order][:-1]])
    return np.sort(order[first])


class Program:
    """Bytes of paths in windows under the capacities of resources.

    Variables are the bytes of each path in each window, then the length of the last window.

    Args:
        paths: The paths.
        owner: Index of the transfer of each path.
        need: Bytes (1e9) of each transfer.
        capacity: GB/s of every resource.
    """

    def __init__(
        self, paths: Sequence[Path], owner: NDArray[np.int64], need: Floats, capacity: Floats
    ) -> None:
        self.span, self.owner, self.need = len(paths), owner, need
        self.total = len(capacity)
        flat = np.array([use for path in paths for use in path.uses], dtype=np.int64)
        columns = np.repeat(np.arange(self.span), [len(path.uses) for path in paths])
        used, rows = np.unique(flat[:, 0], return_inverse=True)
        kept = _tightest(columns, rows, flat[:, 1], capacity[used])
        place = np.full(len(used), -1)
        place[kept] = np.arange(len(kept))
        inside = place[rows] >= 0
        self.used = used[kept]
        self.columns, self.rows = columns[inside], place[rows][inside]
        self.times = flat[inside, 1].astype(np.float64)
        self.capacity = capacity[self.used]

    def solve(
        self,
        lengths: Sequence[float | None],
        is_open: Sequence[NDArray[np.bool_]],
        factor: Sequence[Floats],
        cost: Floats,
    ) -> Answer | None:
        """Return the cheapest way, None where there is none.

        Args:
            lengths: Of each window in seconds; None for the last one, whose length is a variable of cost 1.
            is_open: By window and path, whether it may carry anything.
            factor: By window and path, capacity that a byte takes (more than 1 where it starts late).
            cost: Of each variable except the last one, window by window.
        """
        from scipy.optimize import linprog  # noqa: PLC0415 - scipy takes 0.2 s; parsers do without it

        minimise: Any = linprog
        windows, width = len(lengths), self.span * len(lengths) + 1
        bounds = np.zeros((width, 2))
        bounds[:, 1] = np.append(np.where(np.concatenate(list(is_open)), np.inf, 0.0), np.inf)
        answer = minimise(
            np.append(cost, 1.0),
            A_ub=self._limits(windows, factor, width),
            b_ub=np.concatenate([self.capacity * (length or 0.0) for length in lengths]),
            A_eq=self._needs(windows, width),
            b_eq=self.need,
            bounds=bounds,
            method="highs",
        )
        if answer.status != 0:
            return None
        prices = np.zeros((windows, self.total))
        prices[:, self.used] = np.maximum(0.0, -np.asarray(answer.ineqlin.marginals).reshape(windows, -1))
        amounts = np.asarray(answer.x[:-1]).reshape(windows, self.span).T
        return Answer(amounts, float(answer.x[-1]), prices, np.asarray(answer.eqlin.marginals))

    def _limits(self, windows: int, factor: Sequence[Floats], width: int) -> Any:
        """Return the rows of the resources; the last window's length enters with their capacity."""
        from scipy.sparse import csr_matrix  # noqa: PLC0415 - scipy takes 0.2 s; parsers do without it

        sparse: Any = csr_matrix
        count = len(self.used)
        rows = [self.rows + w * count for w in range(windows)] + [np.arange(count) + (windows - 1) * count]
        cols = [self.columns + w * self.span for w in range(windows)] + [np.full(count, width - 1)]
        data = [self.times * factor[w][self.columns] for w in range(windows)] + [-self.capacity]
        where = (np.concatenate(rows), np.concatenate(cols))
        return sparse((np.concatenate(data), where), shape=(count * windows, width))

    def _needs(self, windows: int, width: int) -> Any:
        """Return the rows of the transfers: all windows and paths together carry their bytes."""
        from scipy.sparse import csr_matrix  # noqa: PLC0415 - scipy takes 0.2 s; parsers do without it

        sparse: Any = csr_matrix
        where = (np.tile(self.owner, windows), np.arange(self.span * windows))
        return sparse((np.ones(self.span * windows), where), shape=(len(self.need), width))
