"""The record of a replay as arrays, and what follows from them hour by hour."""

from __future__ import annotations

import numpy as np

from divvy.control.owed import owed_in_cells
from divvy.sim.overlay import PREFIX
from divvy.sim.recorder import OPEN, Recorder
from divvy.sim.replay import Replay
from divvy.sim.steps import Floats, Ints, Steps, ints


class Columns:
    """The record as arrays."""

    def __init__(self, replay: Replay) -> None:
        record: Recorder = replay.record
        spec = replay.workload.spec
        paths = replay.budget.tree.paths
        row = {paths[leaf]: place for place, leaf in enumerate(replay.budget.tree.leaves)}
        there = np.asarray(record.submitted, dtype=bool)
        self.gpus = ints([job.gpus for job in spec])
        self.account = ints([row[job.account] for job in spec])
        self.min_runtime = ints([job.min_runtime for job in spec])
        self.model = [job.model for job in spec]
        self.overlay = np.asarray([job.id.startswith(PREFIX) for job in spec], dtype=bool)
        self.runtime = ints(replay.workload.runtime)
        self.submit = ints(replay.workload.submit)
        self.first_start = ints(record.first_start)
        self.there = there
        self.end = replay.end
        over = ints(record.over)
        self.finished = over != OPEN
        self.over = np.where(self.finished, over, replay.end)
        self.run_job = ints(record.job)
        self.run_start = ints(record.start)
        self.run_end = ints(record.end)
        self.run_restore = ints(record.restore)
        self.run_lost = ints(record.lost)
        self.run_gpus = self.gpus[self.run_job]
        self.run_account = self.account[self.run_job]
        for run, payer in enumerate(record.payer):
            if payer:
                self.run_account[run] = row[payer]
        self.wanting = self.account.copy()
        for job, payer in record.payers().items():
            self.wanting[job] = row[payer]
        self.run_allocated = self.min_runtime[self.run_job] > 0
        self.run_cause = ints(record.cause)
        sizes = ints([capacity.gpus for capacity in record.capacity])
        self.capacity = Steps(ints([capacity.at for capacity in record.capacity]), np.diff(sizes, prepend=0))

    def useful(self, runs: np.ndarray, grid: Ints) -> Floats:
        """Return the useful device-ms of some runs per cell of a grid."""
        start = self.run_start[runs] + self.run_restore[runs]
        end = self.run_end[runs] - self.run_lost[runs]
        return Steps.of_intervals(start, end, self.run_gpus[runs]).between(grid).astype(np.float64)


def owed_by_leaf(replay: Replay, columns: Columns, grid: Ints) -> list[Floats]:
    """Return the device-ms that each leaf account was owed per cell of a grid."""
    tree, places = replay.budget.tree, range(len(replay.budget.tree.leaves))
    counted = (columns.min_runtime > 0) & columns.there
    names = np.asarray(columns.model)
    demand: list[dict[str, Ints]] = []
    for place in places:
        mine = counted & (columns.wanting == place)
        demand.append({})
        for model in np.unique(names[mine]).tolist():
            jobs = mine & (names == model)
            asked = Steps.of_intervals(columns.submit[jobs], columns.over[jobs], columns.gpus[jobs])
            demand[place][model] = asked.between(grid)
    entitled = [_entitled(replay, columns, tree.paths[leaf], grid) for leaf in tree.leaves]
    return owed_in_cells(entitled, demand, _by_model(replay, grid))


def _entitled(replay: Replay, columns: Columns, path: str, grid: Ints) -> Floats:
    """Return share x capacity of an account per cell, over changes of the shares."""
    trees = [(int(grid[0]), replay.budget.tree), *replay.record.trees]
    total = np.zeros(len(grid) - 1)
    for place, (since, tree) in enumerate(trees):
        until = trees[place + 1][0] if place + 1 < len(trees) else int(grid[-1])
        leaf = tree.row.get(path)
        if leaf is not None and until > since:
            total += float(tree.share[leaf]) * columns.capacity.between(np.clip(grid, since, until))
    return total


def _by_model(replay: Replay, grid: Ints) -> dict[str, Ints]:
    """Return the devices of each model, integrated per cell; nothing where there is but one."""
    steps = replay.record.capacity
    models = sorted({model for step in steps for model, _ in step.models})
    if len(models) < 2:
        return {}
    at, sizes = ints([step.at for step in steps]), [dict(step.models) for step in steps]
    return {
        model: Steps(at, np.diff(ints([size.get(model, 0) for size in sizes]), prepend=0)).between(grid)
        for model in models
    }
