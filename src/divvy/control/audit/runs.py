"""The runs as arrays, open ones with an end, in the order of the accounts that pay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from divvy.control.audit.jobs import NUMBERS, TEXTS, UNKNOWN, Fate, Jobs
from divvy.units import DAY

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: A run that nobody has seen for so long after its limit is one that the database forgot to close.
RUNAWAY: Final = DAY


@dataclass(frozen=True, slots=True)
class Runs:
    """Jobs with GPUs, sorted by the row of the tree that pays, then by file and line.

    Attributes:
        number: Column name to numbers (`divvy.control.audit.jobs.NUMBERS`).
        word: Column name to numbers of texts (TEXTS).
        use: Mean use of GPUs, negative where unknown.
        payer: Row of the account tree.
        begin: Since when the job wanted its GPUs: its submission, or its start where that is earlier.
        stop: End of the run, for open ones the last instant known; UNKNOWN where it never started.
        gone: When the job no longer wanted its GPUs.
        runaway: Runs that were open long after their limit; they are taken to have ended at it.
        as_of: The last instant that the files know, ms.
    """

    number: dict[str, Ints]
    word: dict[str, Ints]
    use: Floats
    payer: Ints
    begin: Ints
    stop: Ints
    gone: Ints
    runaway: Flags
    as_of: int

    @property
    def started(self) -> Flags:
        """Return which of them ran."""
        ran: Flags = self.number["start"] != UNKNOWN
        return ran

    def of(self, first: int, last: int) -> slice:
        """Return the place of the runs that the rows from ``first`` up to ``last`` pay for."""
        low, high = np.searchsorted(self.payer, [first, last])
        return slice(int(low), int(high))


def as_of(jobs: Jobs) -> int:
    """Return the last instant that any row knows, UNKNOWN where none knows one."""
    latest = [max(jobs.numbers[name], default=UNKNOWN) for name in ("submit", "start", "end", "seen")]
    return max(latest)


def arrange(jobs: Jobs, payer_of_name: Ints, by: str) -> Runs:
    """Return the jobs that hold or want GPUs.

    Args:
        jobs: All jobs.
        payer_of_name: Row of the tree per number of a name.
        by: Column of the names.
    """
    now = as_of(jobs)
    number = {name: np.asarray(jobs.numbers[name], dtype=np.int64) for name in NUMBERS}
    word = {name: np.asarray(jobs.ids[name], dtype=np.int64) for name in TEXTS}
    chosen = np.flatnonzero(number["gpus"] > 0)
    payer = payer_of_name[word[by][chosen]] if len(chosen) else np.zeros(0, dtype=np.int64)
    order = np.lexsort((number["line"][chosen], number["file"][chosen], payer))
    chosen, payer = chosen[order], payer[order]
    number = {name: column[chosen] for name, column in number.items()}
    word = {name: column[chosen] for name, column in word.items()}
    use = np.asarray(jobs.use, dtype=np.float64)[chosen]
    stop, runaway = _stops(number, now)
    submit, start = number["submit"], number["start"]
    begin = np.where(submit != UNKNOWN, submit, start)
    begin = np.where((start != UNKNOWN) & (begin > start), start, begin)
    gone = np.where(start != UNKNOWN, stop, number["end"])
    gone = np.where(number["fate"] == Fate.WAITING, now, gone)
    return Runs(number, word, use, payer, begin, stop, np.maximum(gone, UNKNOWN), runaway, now)


def _stops(number: dict[str, Ints], now: int) -> tuple[Ints, Flags]:
    start, end, seen, limit = (number[name] for name in ("start", "end", "seen", "limit"))
    running = (number["fate"] == Fate.RUNNING) & (start != UNKNOWN)
    due = start + limit
    runaway = running & (seen == UNKNOWN) & (limit != UNKNOWN) & (due + RUNAWAY < now)
    stop = np.where(running, now, end)
    stop = np.where(running & (seen != UNKNOWN), seen, stop)
    stop = np.where(runaway, due, stop)
    return np.where(start == UNKNOWN, UNKNOWN, stop), runaway
