"""What really ran as a trace for ui.perfetto.dev: accounts as processes, lanes of runs as threads."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from divvy.control.facts import Stint
from divvy.fleet.ledger import OCCUPANCY
from divvy.service.ports import LedgerLine, Reader
from divvy.units import SECOND

#: Most runs in one trace: the longest are kept, and what was left out is counted in it.
MOST: Final = 50_000
_MICRO: Final = 1_000
_FLEET: Final = 1


class _Run(NamedTuple):
    start: int
    end: int
    account: str
    job: str
    attempt: int
    gpus: int
    allocated: bool
    open: bool


def trace(reader: Reader, start: int, end: int) -> dict[str, Any]:
    """Return the runs that touch a period (ms) as a document; names of jobs are not in it, only their ids."""
    stints = reader.stints(start, end)
    every = [*_closed(reader.ledger(since=start, until=end)), *_open(stints, end)]
    every.sort(key=lambda run: run.start - run.end)
    kept = sorted(every[:MOST])
    numbers = {account: place for place, account in enumerate(sorted({run.account for run in kept}), start=2)}
    return {
        "traceEvents": [*_names(numbers), *_slices(kept, numbers, start, end), *_counters(kept, start, end)],
        "displayTimeUnit": "ms",
        "otherData": {
            "from_seconds": start / SECOND,
            "to_seconds": end / SECOND,
            "runs": len(kept),
            "left_out": len(every) - len(kept),
        },
    }


def _closed(ledger: Iterable[LedgerLine]) -> Iterator[_Run]:
    for line in ledger:
        if line.cause == OCCUPANCY and line.job:
            yield _Run(
                line.started,
                line.ended,
                line.account,
                line.job,
                line.attempt,
                line.gpus,
                line.allocated,
                open=False,
            )


def _open(stints: Iterable[Stint], end: int) -> Iterator[_Run]:
    for stint in stints:
        if stint.rate and stint.started is not None and stint.stopped is None:
            yield _Run(
                stint.started,
                end,
                stint.account,
                stint.job,
                stint.attempt,
                stint.gpus,
                stint.min_runtime > 0,
                open=True,
            )


def _names(numbers: dict[str, int]) -> Iterator[dict[str, Any]]:
    for name, number in {"fleet": _FLEET, **numbers}.items():
        yield {"ph": "M", "pid": number, "name": "process_name", "args": {"name": name}}


def _slices(runs: list[_Run], numbers: dict[str, int], start: int, end: int) -> Iterator[dict[str, Any]]:
    """Yield each run in a lane of its account where nothing else is at that time."""
    free: dict[str, list[int]] = {}
    busy: dict[str, list[tuple[int, int]]] = {}
    used: dict[str, int] = {}
    for run in runs:
        ending, lanes = busy.setdefault(run.account, []), free.setdefault(run.account, [])
        while ending and ending[0][0] <= run.start:
            heapq.heappush(lanes, heapq.heappop(ending)[1])
        lane = heapq.heappop(lanes) if lanes else used.setdefault(run.account, 0)
        used[run.account] = max(used.get(run.account, 0), lane + 1)
        heapq.heappush(ending, (run.end, lane))
        begin, until = max(run.start, start), min(run.end, end)
        yield {
            "ph": "X",
            "pid": numbers[run.account],
            "tid": lane + 1,
            "name": f"{run.job}: {run.gpus} device{'s' if run.gpus > 1 else ''}",
            "cat": "charged" if run.allocated else "unallocated",
            "ts": begin * _MICRO,
            "dur": max(until - begin, 0) * _MICRO,
            "args": {"job": run.job, "attempt": run.attempt, "gpus": run.gpus, "still_runs": run.open},
        }


def _counters(runs: list[_Run], start: int, end: int) -> Iterator[dict[str, Any]]:
    steps: dict[int, dict[str, int]] = {}
    for run in runs:
        for at, sign in ((max(run.start, start), 1), (min(run.end, end), -1)):
            change = steps.setdefault(at, {})
            change[run.account] = change.get(run.account, 0) + sign * run.gpus
    held = dict.fromkeys(sorted({run.account for run in runs}), 0)
    for at in sorted(steps):
        for account, gpus in steps[at].items():
            held[account] += gpus
        yield {"ph": "C", "pid": _FLEET, "name": "devices held", "ts": at * _MICRO, "args": dict(held)}
