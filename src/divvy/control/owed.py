"""What accounts are owed per cell of time: min(share x capacity, demand), of models that are there.

Where a fleet has several device models an account that asks for one of them cannot be owed another, and all
accounts together no more of a model than there is. Then what is owed is the weighted max-min fair flow from
accounts to models that the planner goes by too (`planners/jobs/feasible.py`), cell by cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from divvy.planners.jobs.feasible import feasible

Cells = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Amounts = npt.NDArray[np.float64]


def owed_in_cells(
    entitled: Sequence[Cells], demand: Sequence[Mapping[str, Cells]], capacity: Mapping[str, Cells]
) -> list[Amounts]:
    """Return what each account is owed in each cell, in device-ms.

    Args:
        entitled: Share x capacity of each account per cell.
        demand: What each account asks for per cell, by model; an empty name is any model.
        capacity: Devices of each model, integrated per cell. With none or one, all is one model.
    """
    owed = [
        np.minimum(due, sum(each.values(), start=np.zeros(len(due))))
        for due, each in zip(entitled, demand, strict=True)
    ]
    if len(capacity) < 2 or not any(model for each in demand for model in each):
        return owed
    for cell in np.flatnonzero(_may_be_short(owed, demand, capacity)).tolist():
        _share_out(cell, owed, entitled, demand, capacity)
    return owed


def _may_be_short(
    owed: Sequence[Amounts], demand: Sequence[Mapping[str, Cells]], capacity: Mapping[str, Cells]
) -> npt.NDArray[np.bool_]:
    """Return the cells in which those who cannot use every model are owed more than the scarcest one has."""
    bound = np.zeros(len(owed[0]))
    for due, each in zip(owed, demand, strict=True):
        free = each.get("")
        bound += due if free is None else np.where(free > 0, 0, due)
    short: npt.NDArray[np.bool_] = bound > np.min(list(capacity.values()), axis=0)
    return short


def _share_out(
    cell: int,
    owed: Sequence[Amounts],
    entitled: Sequence[Cells],
    demand: Sequence[Mapping[str, Cells]],
    capacity: Mapping[str, Cells],
) -> None:
    """Cut what accounts are owed in a cell to what is feasible together."""
    there = {model: int(devices[cell]) for model, devices in capacity.items() if devices[cell] > 0}
    every = frozenset(there)
    supply = {row: float(due[cell]) for row, due in enumerate(entitled) if owed[row][cell] > 0}
    wants, most = {}, {}
    for row in supply:
        asked = {model: float(amount[cell]) for model, amount in demand[row].items() if amount[cell] > 0}
        wants[row] = every if "" in asked else every.intersection(asked)
        most[row] = sum(
            min(amount, there.get(model, 0)) if model else amount for model, amount in asked.items()
        )
    for row, amount in feasible(supply, wants, there, most).items():
        owed[row][cell] = amount
