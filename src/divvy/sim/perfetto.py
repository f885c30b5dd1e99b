"""A replay as a trace for ui.perfetto.dev (Chrome trace events): nodes as processes, devices as threads.

Only what touches a window is written, and at most so many events, the longest runs first: a trace that
nobody can open tells nothing. What was left out is counted in the trace itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from divvy.sim.measures import Window
from divvy.sim.replay import Replay
from divvy.sim.series import Block, blocks, holdings, outcome
from divvy.units import SECOND

MOST_EVENTS: Final = 200_000
_FLEET: Final = 1
_MICRO: Final = 1_000
"""Microseconds per ms."""


def trace_of(replay: Replay, window: Window, most: int = MOST_EVENTS) -> dict[str, Any]:
    """Return the trace of a window as a document.

    Args:
        replay: What happened.
        window: The part to show.
        most: Most slices to write.
    """
    every = blocks(replay, window)
    record = replay.record
    kept = every
    if len(every) > most:
        by_length = sorted(every, key=lambda block: record.start[block.run] - record.end[block.run])
        chosen = set(by_length[:most])
        kept = [block for block in every if block in chosen]
    return {
        "traceEvents": [*_names(kept), *_counters(replay, window), *_slices(replay, kept, window)],
        "displayTimeUnit": "ms",
        "otherData": {
            "policy": replay.policy,
            "seed": replay.seed,
            "from_seconds": window.start / SECOND,
            "to_seconds": window.end / SECOND,
            "slices": len(kept),
            "left_out": len(every) - len(kept),
        },
    }


def _pid(number: int) -> int:
    return _FLEET + 1 + number


def _numbers(kept: list[Block]) -> dict[str, int]:
    return {node: number for number, node in enumerate(sorted({block.node for block in kept}))}


def _names(kept: list[Block]) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": _FLEET, "name": "process_name", "args": {"name": "fleet: GPUs by account"}}
    numbers = _numbers(kept)
    for node, number in numbers.items():
        yield {"ph": "M", "pid": _pid(number), "name": "process_name", "args": {"name": node}}
    for node, lane in sorted({(block.node, block.lane) for block in kept}):
        yield {
            "ph": "M",
            "pid": _pid(numbers[node]),
            "tid": lane,
            "name": "thread_name",
            "args": {"name": f"device {lane}"},
        }


def _counters(replay: Replay, window: Window) -> Iterator[dict[str, Any]]:
    held = holdings(replay, window)
    for place, at in enumerate(held.edges[:-1].tolist()):
        values = {name: round(float(series[place]), 2) for name, series in held.charged.items()}
        values["(unallocated)"] = round(float(held.free[place]), 2)
        yield {"ph": "C", "pid": _FLEET, "name": "GPUs held", "ts": at * _MICRO, "args": values}
        asked = {
            "asked for": round(float(held.demand[place]), 2),
            "there": round(float(held.capacity[place]), 2),
        }
        yield {"ph": "C", "pid": _FLEET, "name": "GPUs", "ts": at * _MICRO, "args": asked}


def _slices(replay: Replay, kept: list[Block], window: Window) -> Iterator[dict[str, Any]]:
    record, work = replay.record, replay.workload
    numbers = _numbers(kept)
    for block in kept:
        run = block.run
        row = record.job[run]
        spec = work.spec[row]
        start, end = max(record.start[run], window.start), min(record.end[run], window.end)
        yield {
            "ph": "X",
            "pid": _pid(numbers[block.node]),
            "tid": block.lane,
            "name": f"{spec.account}: {spec.id}",
            "cat": "charged" if spec.allocated else "unallocated",
            "ts": start * _MICRO,
            "dur": (end - start) * _MICRO,
            "args": {
                "job": spec.id,
                "account": spec.account,
                "author": spec.author,
                "gpus": spec.gpus,
                "protected": record.protected[run],
                "minimum_seconds": spec.min_runtime / SECOND,
                "waited_seconds": (record.first_start[row] - work.submit[row]) / SECOND,
                "lost_seconds": record.lost[run] / SECOND,
                "restore_seconds": record.restore[run] / SECOND,
                "ended": outcome(replay, run),
                "by": record.by[run] or None,
            },
        }
