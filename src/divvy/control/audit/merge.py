"""Rows that tell of the same run: files that overlap, a run seen while it ran and again at its end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from divvy.control.audit.jobs import NUMBERS, TEXTS, UNKNOWN, Fate, Jobs, Warned

_SAME_RUN = "duplicate"


def merge(jobs: Jobs) -> tuple[Jobs, int, list[Warned]]:
    """Return the runs without those that another row tells too, how many those were, and a remark on each.

    Two rows are one run if job, cluster and submission are the same, and the start is, or one of them has not
    started. The row that knows the end is kept. A requeued job has several runs with submissions or starts
    of their own; all are kept.
    """
    dropped: set[int] = set()
    doubts: list[Warned] = []
    for group in _alike(jobs):
        kept: list[int] = []
        for index in sorted(group, key=lambda i: _order(jobs, i)):
            twin = next((other for other in kept if _one_run(jobs, index, other)), None)
            if twin is None:
                kept.append(index)
                continue
            loser, winner = sorted((index, twin), key=lambda i: _rank(jobs, i))
            if winner == index:
                kept[kept.index(twin)] = index
            dropped.add(loser)
            doubts.append(_told(jobs, loser))
    if not dropped:
        return jobs, 0, []
    doubts.sort(key=lambda warned: (warned.file, warned.line))
    return _without(jobs, dropped), len(dropped), doubts


def _alike(jobs: Jobs) -> Iterator[list[int]]:
    """Yield the rows that share job, cluster and a known submission, where there are several."""
    job, cluster, submit = (
        np.asarray(column, dtype=np.int64)
        for column in (jobs.ids["job"], jobs.ids["cluster"], jobs.numbers["submit"])
    )
    if len(job) < 2:
        return
    order = np.lexsort((submit, cluster, job))
    one, other = order[:-1], order[1:]
    same = (job[one] == job[other]) & (cluster[one] == cluster[other])
    same &= (submit[one] == submit[other]) & (submit[one] != UNKNOWN)
    joins = np.flatnonzero(same)
    group: list[int] = []
    for place, following in pairwise([*joins.tolist(), -2]):
        group = group or [int(order[place])]
        group.append(int(order[place + 1]))
        if following != place + 1:
            yield group
            group = []


def _order(jobs: Jobs, index: int) -> tuple[int, int]:
    return jobs.numbers["file"][index], jobs.numbers["line"][index]


def _one_run(jobs: Jobs, one: int, other: int) -> bool:
    start, fate, file = (jobs.numbers[name] for name in ("start", "fate", "file"))
    if UNKNOWN not in (start[one], start[other]):
        return start[one] == start[other]
    if start[one] == start[other] or file[one] != file[other]:
        return True
    # In one file, what waits behind a run that was cut short is the job that waits again.
    return max(fate[one], fate[other]) < Fate.PREEMPTED


def _rank(jobs: Jobs, index: int) -> tuple[int, int, int, int]:
    """Return how much a row knows: over before running before waiting, then the later one."""
    fate = jobs.numbers["fate"][index]
    stage = min(fate, Fate.ENDED)
    return stage, jobs.numbers["seen"][index], *_order(jobs, index)


def _told(jobs: Jobs, index: int) -> Warned:
    file, line = _order(jobs, index)
    return Warned(line, file, _SAME_RUN, "tells again of a run that another row tells; counted once")


def _without(jobs: Jobs, dropped: set[int]) -> Jobs:
    keep = np.ones(len(jobs), dtype=bool)
    keep[list(dropped)] = False
    left = Jobs()
    for name in NUMBERS:
        left.numbers[name].frombytes(np.asarray(jobs.numbers[name], dtype=np.int64)[keep].tobytes())
    for name in TEXTS:
        left.ids[name].frombytes(np.asarray(jobs.ids[name], dtype=np.int64)[keep].tobytes())
        left.words[name] = jobs.words[name]
    left.use.frombytes(np.asarray(jobs.use, dtype=np.float64)[keep].tobytes())
    return left
