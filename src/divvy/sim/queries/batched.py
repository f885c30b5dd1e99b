"""Replay of servers that batch: queries of size 1 wait in one queue, a free process runs what waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divvy.errors import InputError
from divvy.perf.latency import INFEASIBLE, LatencyProfile
from divvy.sim.queries.kernel import compile_kept

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Process:
    """One server process.

    Attributes:
        slice: Index of its slice.
        limit: Most queries in one run.
        times_us: Time of a run by number of queries (row 0 unused).
    """

    slice: int
    limit: int
    times_us: tuple[int, ...]


def processes_of(profile: LatencyProfile, index: int, size: int, processes: int, batch: int) -> list[Process]:
    """Return the processes of a slice; a run of n queries takes the time of the least batch >= n that fits.

    Raises:
        InputError: If the profile has no such batch on that slice with so many processes.
    """
    times = [0] + [profile.latency_us(size, n, processes) for n in range(1, batch + 1)]
    if batch < 1 or times[-1] == INFEASIBLE:
        raise InputError.one(
            "pack-batch", f"{profile.model}: batch {batch} with {processes} processes does not run on {size}g"
        )
    for n in range(batch - 1, 0, -1):
        if times[n] == INFEASIBLE:
            times[n] = times[n + 1]
    return [Process(index, batch, tuple(times))] * processes


def _run(arrivals: Any, limits: Any, times: Any, order: Any, full: Any, finish: Any, ran: Any) -> None:
    """Serve in order of arrival: the process that can start first, among idle ones the first in `order`."""
    n, head = arrivals.shape[0], 0
    free_at = np.zeros(limits.shape[0], np.int64)
    while head < n:
        now = arrivals[head]
        best, soon = -1, 0
        for i in range(order.shape[0]):
            p = order[i]
            begin = max(free_at[p], now)
            if full:  # a process waits until its batch is full, or no more queries come
                last = min(head + limits[p], n) - 1
                begin = max(begin, arrivals[last])
            if best < 0 or begin < soon:
                best, soon = p, begin
        taken = 0
        while taken < limits[best] and head + taken < n and arrivals[head + taken] <= soon:
            taken += 1
        done = soon + times[best, taken]
        for q in range(head, head + taken):
            finish[q] = done
            ran[q] = best
        free_at[best] = done
        head += taken


_fast_run = compile_kept(_run)


def serve(arrivals: Ints, processes: Sequence[Process], *, full: bool = False) -> tuple[Ints, Ints]:
    """Return the end and the process of every query.

    Args:
        arrivals: Microseconds, ascending.
        processes: The server processes.
        full: Whether a run waits until its batch is full (fixed batches); else it takes what waits.
    """
    widest = max(process.limit for process in processes)
    times = np.zeros((len(processes), widest + 1), np.int64)
    for i, process in enumerate(processes):
        times[i, : process.limit + 1] = process.times_us
    limits = np.array([process.limit for process in processes], np.int64)
    order = np.argsort(times[:, 1] if not full else times[np.arange(len(processes)), limits], kind="stable")
    finish, ran = np.empty_like(arrivals), np.empty_like(arrivals)
    _fast_run(arrivals, limits, times, order, full, finish, ran)
    return finish, ran


def serve_plainly(arrivals: Ints, processes: Sequence[Process]) -> tuple[Ints, Ints]:
    """Return what `serve` returns, told event by event: the plain twin of the kernel."""
    key = [process.times_us[1] for process in processes]
    free = [0] * len(processes)
    waiting = list(enumerate(arrivals.tolist()))
    finish, ran = np.empty_like(arrivals), np.empty_like(arrivals)
    while waiting:
        start = {p: max(free[p], waiting[0][1]) for p in range(len(processes))}
        first = min(start, key=lambda p: (start[p], key[p], p))
        batch = [q for q in waiting[: processes[first].limit] if q[1] <= start[first]]
        free[first] = start[first] + processes[first].times_us[len(batch)]
        for q, _ in batch:
            finish[q], ran[q] = free[first], first
        waiting = waiting[len(batch) :]
    return finish, ran
