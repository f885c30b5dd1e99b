"""What a replay looks like: series and rectangles for pictures and traces, from the record alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np

from divvy.fleet.job import StopCause
from divvy.sim.columns import Columns, owed_by_leaf
from divvy.sim.measures import Window
from divvy.sim.recorder import OPEN
from divvy.sim.replay import Replay
from divvy.sim.steps import Floats, Ints, Steps, cells, ints
from divvy.units import DAY, HOUR, SECOND

#: Classes of gangs by devices: name, least, most.
SIZES: Final = (
    ("1", 1, 1),
    ("2", 2, 2),
    ("3-4", 3, 4),
    ("5-8", 5, 8),
    ("9-16", 9, 16),
    ("17-32", 17, 32),
    ("over 32", 33, 1 << 30),
)


@dataclass(frozen=True, slots=True)
class Holdings:
    """Devices over time, averaged over cells.

    Attributes:
        edges: Borders of the cells, ms.
        charged: Per account, in order of the tree.
        free: Unallocated work of all accounts.
        capacity: Devices there are.
        demand: Devices that all jobs in the system ask for.
    """

    edges: Ints
    charged: dict[str, Floats]
    free: Floats
    capacity: Floats
    demand: Floats


def holdings(replay: Replay, window: Window, most: int = 400) -> Holdings:
    """Return what every account held over the window, in at most ``most`` cells of whole hours."""
    span = window.end - window.start
    width = max(HOUR, -(-span // most // HOUR) * HOUR)
    grid = cells(window.start, window.end, width)
    record, spec = replay.record, replay.workload.spec
    job, start, end = ints(record.job), ints(record.start), ints(record.end)
    sizes = ints([one.gpus for one in spec])
    gpus = sizes[job]
    paid = np.asarray([one.account for one in spec])[job]
    charged = np.asarray([one.allocated for one in spec])[job]
    length = np.diff(grid).astype(np.float64)

    def mean(chosen: np.ndarray) -> Floats:
        found: Floats = Steps.of_intervals(start[chosen], end[chosen], gpus[chosen]).between(grid) / length
        return found

    tree = replay.budget.tree
    counts = ints([capacity.gpus for capacity in record.capacity])
    fleet = Steps(ints([capacity.at for capacity in record.capacity]), np.diff(counts, prepend=0))
    there = np.asarray(record.submitted)
    over = ints(record.over)
    over = np.where(over == OPEN, replay.end, over)
    asked = Steps.of_intervals(ints(replay.workload.submit)[there], over[there], sizes[there])
    return Holdings(
        grid,
        {tree.paths[leaf]: mean((paid == tree.paths[leaf]) & charged) for leaf in tree.leaves},
        mean(~charged),
        fleet.between(grid) / length,
        asked.between(grid) / length,
    )


class Due(NamedTuple):
    """Owed and delivered device-ms of an account, day by day."""

    owed: Floats
    delivered: Floats


def by_day(replay: Replay, window: Window) -> dict[str, Due]:
    """Return what every account was owed and delivered per day of the window, hour by hour underneath."""
    grid = cells(window.start, window.end, HOUR)
    day = (grid[:-1] - window.start) // DAY
    columns, tree = Columns(replay), replay.budget.tree
    result: dict[str, Due] = {}
    for place, (leaf, owed) in enumerate(zip(tree.leaves, owed_by_leaf(replay, columns, grid), strict=True)):
        got = columns.useful((columns.run_account == place) & columns.run_allocated, grid)
        owes, gets = (np.bincount(day, each).astype(np.float64) for each in (owed, got))
        result[tree.paths[leaf]] = Due(owes, gets)
    return result


def waits_by_size(replay: Replay, window: Window) -> dict[str, Floats]:
    """Return the waits, s, of the jobs submitted in the window by size; infinite if never started."""
    work, record = replay.workload, replay.record
    submit, first = ints(work.submit), ints(record.first_start)
    gpus = ints([one.gpus for one in work.spec])
    there = np.asarray(record.submitted) & (submit >= window.start) & (submit < window.end)
    wait = np.where(first == OPEN, np.inf, (first - submit) / SECOND)
    classes = {name: wait[there & (gpus >= low) & (gpus <= high)] for name, low, high in SIZES}
    return {name: values for name, values in classes.items() if values.size}


class Block(NamedTuple):
    """A run on one device.

    Attributes:
        run: Row of the run.
        node: Where.
        lane: Which of the node's devices; the engine does not say, so the lowest that is free.
    """

    run: int
    node: str
    lane: int


def blocks(replay: Replay, window: Window) -> list[Block]:
    """Return the runs that touch a window, device by device, in order of their start."""
    record = replay.record
    order = sorted(range(len(record.job)), key=lambda run: (record.start[run], run))
    free: dict[str, list[int]] = {}
    width: dict[str, int] = {}
    busy: list[tuple[int, str, list[int]]] = []
    found: list[Block] = []
    for run in order:
        start, end = record.start[run], record.end[run]
        while busy and busy[0][0] <= start:
            _, node, lanes = heappop(busy)
            for lane in lanes:
                heappush(free[node], lane)
        for node, gpus in record.placement[run]:
            spare, lanes = free.setdefault(node, []), []
            for _ in range(gpus):
                if spare:
                    lanes.append(heappop(spare))
                else:
                    lanes.append(width.get(node, 0))
                    width[node] = lanes[-1] + 1
            heappush(busy, (end, node, lanes))
            if end > window.start and start < window.end:
                found += [Block(run, node, lane) for lane in lanes]
    return found


def busiest(replay: Replay, window: Window, length: int) -> Window:
    """Return the part of a window, of a length in whole days, in which most runs begin or end."""
    starts = range(window.start, max(window.end - length, window.start) + 1, DAY)
    moments = np.sort(np.concatenate([ints(replay.record.start), ints(replay.record.end)]))
    changes = [int(np.searchsorted(moments, at + length) - np.searchsorted(moments, at)) for at in starts]
    start = starts[int(np.argmax(changes))]
    return Window(start, min(start + length, window.end))


def outcome(replay: Replay, run: int) -> str:
    """Return how a run ended, in one word."""
    cause: StopCause = replay.record.cause[run]
    if cause is StopCause.FINISHED and replay.record.over[replay.record.job[run]] == OPEN:
        return "still running"
    return cause.name.lower().replace("_", " ")


def accounts_in_order(replay: Replay, window: Window) -> Sequence[str]:
    """Return the leaf accounts, those that held most in the window first."""
    held = holdings(replay, window).charged
    return sorted(held, key=lambda name: (-float(held[name].sum()), name))
