"""Figures of some runs besides owed and delivered: waits, limits, preemptions, losses, squatting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from divvy.control.audit.jobs import UNKNOWN, Fate
from divvy.control.audit.runs import Flags, Floats, Ints, Runs
from divvy.units import DAY, HOUR, MINUTE, SECOND

#: Sizes of jobs, by GPUs: the last of each.
SIZES: Final = (1, 4, 8, 16, 32, 64)
LONG: Final = 4 * HOUR
LOW_USE: Final = 0.15
REPEATS: Final = 3
#: What Slurm writes for a job without a limit in a partition without one.
ENDLESS: Final = 365 * DAY
PAUSE: Final = 30 * MINUTE


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits of the jobs of one size that started, s.

    Attributes:
        size: GPUs, such as ``5-8``.
        p50: From submission to start; half of the jobs waited no longer.
        p90: Nine of ten waited no longer.
        eligible_p50: From when Slurm might have started it (dependencies and begin times are over).
        eligible_p90: Likewise.
        never: Jobs that were withdrawn before they started.
        waiting: Jobs that still wait.
        of: Which runs started, for their lines.
    """

    size: str
    p50: float | None
    p90: float | None
    eligible_p50: float | None
    eligible_p90: float | None
    never: int
    waiting: int
    of: Ints


@dataclass(frozen=True, slots=True)
class Limits:
    """Declared limit against used time, of runs that are over.

    Attributes:
        declared: Limit x GPUs, GPU-ms.
        used: Time x GPUs of the same runs, GPU-ms.
        p50: Of used/limit; half of the runs used no larger part of their limit.
        p90: Likewise.
        unlimited: Runs that declared none.
        of: Which runs declared one.
    """

    declared: int
    used: int
    p50: float | None
    p90: float | None
    unlimited: int
    of: Ints


@dataclass(frozen=True, slots=True)
class Squatting:
    """GPUs held rather than used, GPU-ms.

    Attributes:
        index: Of long runs (or chains of runs) with low use; of interactive-like ones where use is not known.
        signals: GPU-ms of all runs that show each sign.
        of: Which runs the index is made of.
        weight: What of each of them counts, GPU-ms.
    """

    index: int
    signals: dict[str, int]
    of: Ints
    weight: Ints


@dataclass(frozen=True, slots=True)
class Signs:
    """What can be seen of each run, once for all accounts.

    Attributes:
        held: GPU-ms within the period.
        lost: Whether its work is known to be lost.
        long: Whether it, or the chain that it is part of, is long.
        repeated: Whether it is part of a chain: one user, one name, one size, one after the other.
        interactive: Whether it looks like a session.
        low: Whether its use is known to be low.
    """

    held: Ints
    lost: Flags
    long: Flags
    repeated: Flags
    interactive: Flags
    low: Flags


def quantile(values: Floats, part: float) -> float | None:
    """Return the smallest value that at least ``part`` of the values do not exceed; None without values."""
    if not values.size:
        return None
    place = max(0, int(np.ceil(part * values.size)) - 1)
    return float(np.partition(values, place)[place])


def held(runs: Runs, start: int, end: int) -> Ints:
    """Return the GPU-ms of each run within a period."""
    first = np.maximum(runs.number["start"], start)
    last = np.minimum(runs.stop, end)
    span = np.where(runs.started, np.maximum(last - first, 0), 0)
    result: Ints = span * runs.number["gpus"]
    return result


def signs(runs: Runs, start: int, end: int) -> Signs:
    """Return what can be seen of each run over a period."""
    within = held(runs, start, end)
    length = np.where(runs.started, runs.stop - runs.number["start"], 0)
    chain_length, repeated = _chains(runs, length)
    long = np.maximum(length, chain_length) >= LONG
    low = (runs.use >= 0) & (runs.use < LOW_USE)
    return Signs(within, _lost(runs), long, repeated, runs.number["interactive"] > 0, low)


def _chains(runs: Runs, length: Ints) -> tuple[Ints, Flags]:
    """Return for each run the length of the chain that it is part of, and whether the chain has many runs."""
    count = len(length)
    total, repeated = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=bool)
    ran = np.flatnonzero(runs.started)
    if not len(ran):
        return total, repeated
    user, name, gpus = (column[ran] for column in (runs.word["user"], runs.word["name"], runs.number["gpus"]))
    start, stop = runs.number["start"][ran], runs.stop[ran]
    order = np.lexsort((start, gpus, name, user))
    same = np.ones(len(ran), dtype=bool)
    same[0] = False
    for column in (user, name, gpus):
        same[1:] &= column[order][1:] == column[order][:-1]
    pause = start[order][1:] - stop[order][:-1]
    same[1:] &= (pause >= -SECOND) & (pause <= PAUSE)
    chain = np.cumsum(~same) - 1
    sums = np.bincount(chain, length[ran][order].astype(np.float64)).astype(np.int64)
    many = np.bincount(chain) >= REPEATS
    total[ran[order]] = np.where(many[chain], sums[chain], 0)
    repeated[ran[order]] = many[chain]
    return total, repeated


def _lost(runs: Runs) -> Flags:
    """Return whose work is known to be gone: its node was lost, or it was preempted for good."""
    fate = runs.number["fate"]
    lost: Flags = (fate == Fate.NODE_LOST) & runs.started
    preempted = np.flatnonzero((fate == Fate.PREEMPTED) & runs.started)
    if not len(preempted):
        return lost
    job, cluster = runs.word["job"], runs.word["cluster"]
    last: dict[tuple[int, int], int] = {}
    for place in np.flatnonzero(np.isin(job, job[preempted])):
        key = int(job[place]), int(cluster[place])
        begun = max(int(runs.number["submit"][place]), int(runs.number["start"][place]))
        last[key] = max(last.get(key, UNKNOWN), begun)
    for place in preempted:
        begun = max(int(runs.number["submit"][place]), int(runs.number["start"][place]))
        lost[place] = last[int(job[place]), int(cluster[place])] <= begun
    return lost


def waits(runs: Runs, part: slice, start: int, end: int) -> tuple[Waits, ...]:
    """Return the waits of jobs that started within a period, by size; sizes that have jobs only."""
    gpus, fate = runs.number["gpus"][part], runs.number["fate"][part]
    submit, begun = runs.number["submit"][part], runs.number["start"][part]
    eligible = np.maximum(runs.number["eligible"][part], submit)
    started = runs.started[part]
    counted = started & (submit != UNKNOWN) & (begun >= start) & (begun <= end)
    never = ~started & (fate >= Fate.ENDED)
    waiting = fate == Fate.WAITING
    size = np.searchsorted(np.asarray(SIZES), gpus)
    found: list[Waits] = []
    for number, label in enumerate(size_labels()):
        of_size = size == number
        some = np.flatnonzero(of_size & counted)
        withdrawn, queued = int((of_size & never).sum()), int((of_size & waiting).sum())
        if not len(some) and not withdrawn and not queued:
            continue
        wait = np.maximum(begun[some] - submit[some], 0) / SECOND
        free = np.maximum(begun[some] - eligible[some], 0) / SECOND
        p50, p90, free50, free90 = (quantile(values, at) for values in (wait, free) for at in (0.5, 0.9))
        found.append(Waits(label, p50, p90, free50, free90, withdrawn, queued, some + part.start))
    return tuple(found)


def size_labels() -> tuple[str, ...]:
    """Return the names of the sizes."""
    firsts = (1, *(size + 1 for size in SIZES))
    named = [str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts, SIZES, strict=False)]
    return (*named, f"{SIZES[-1] + 1}+")


def limits(runs: Runs, part: slice, within: Ints) -> Limits:
    """Return declared against used time of the runs that are over and touch the period."""
    over = runs.started[part] & (runs.number["fate"][part] >= Fate.ENDED) & (within[part] > 0)
    limit = runs.number["limit"][part]
    declared = (limit > 0) & (limit < ENDLESS)
    some = np.flatnonzero(over & declared)
    length = runs.stop[part][some] - runs.number["start"][part][some]
    gpus = runs.number["gpus"][part][some]
    ratio = length / np.maximum(limit[some], 1)
    return Limits(
        int((limit[some] * gpus).sum()),
        int((length * gpus).sum()),
        quantile(ratio, 0.5),
        quantile(ratio, 0.9),
        int((over & ~declared).sum()),
        some + part.start,
    )


def squatting(runs: Runs, part: slice, seen: Signs) -> Squatting:
    """Return the GPU time that was held rather than used."""
    within, use = seen.held[part], runs.use[part]
    known = use >= 0
    counted = seen.long[part] & np.where(known, seen.low[part], seen.interactive[part]) & (within > 0)
    some = np.flatnonzero(counted)
    idle = np.where(known, 1.0 - np.clip(use, 0.0, 1.0), 1.0)[some]
    weight = np.rint(within[some] * idle).astype(np.int64)
    signals = {
        "long": seen.long,
        "interactive_like": seen.interactive,
        "repeated": seen.repeated,
        "low_use": seen.low,
    }
    return Squatting(
        int(weight.sum()),
        {name: int(within[flags[part]].sum()) for name, flags in signals.items()},
        some + part.start,
        weight,
    )
