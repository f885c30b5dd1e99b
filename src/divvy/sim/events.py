"""What happened in a replay, one JSON object per line: enough to recompute every figure elsewhere.

The keys are documented in docs/reference/simulate.md. Times are seconds from the first submission.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from divvy.fleet.account import AccountTree
from divvy.fleet.job import JobSpec, StopCause
from divvy.sim.recorder import Entry, Recorder
from divvy.sim.replay import Replay
from divvy.units import SECOND

_PREEMPTED = (StopCause.PREEMPTED, StopCause.DRAINED, StopCause.NODE_LOST)


def file_name(name: str, policy: str, seed: int, *, only: bool) -> str:
    """Return where the events of one replay go: the name as given if it is the only one."""
    return name if only else f"{name}.{policy}.{seed}"


def event_lines(replay: Replay) -> Iterator[str]:
    """Yield the events of a replay in the order in which they happened."""
    record, spec = replay.record, replay.workload.spec
    known = [_subject(job) for job in spec]
    for place, (entry, subject) in enumerate(record.log):
        if entry is Entry.CAPACITY:
            capacity = record.capacity[subject]
            line = _line(capacity.at, "capacity", {"gpus": capacity.gpus, "nodes": dict(capacity.nodes)})
            if len(capacity.models) > 1:
                line["models"] = dict(capacity.models)
            if place == 0:
                line |= {"shares": _shares(replay.budget.tree)}
        elif entry is Entry.SHARES:
            at, tree = record.trees[subject]
            line = _line(at, "shares", {"shares": _shares(tree)})
        elif entry is Entry.SUBMIT:
            line = _line(replay.workload.submit[subject], "submit", known[subject])
            line["runtime"] = replay.workload.runtime[subject] / SECOND
            line["model"] = spec[subject].model
            line["debug"] = replay.workload.debug[subject]
        else:
            job = known[record.job[subject]]
            if record.payer[subject]:
                job = {**job, "account": record.payer[subject]}
            line = _started(record, subject, job) if entry is Entry.START else _ended(record, subject, job)
        yield json.dumps(line)


def _line(at: int, event: str, rest: dict[str, Any]) -> dict[str, Any]:
    return {"t": at / SECOND, "event": event, **rest}


def _subject(job: JobSpec) -> dict[str, Any]:
    """Return what every line about a job says of it."""
    return {
        "job": job.id,
        "account": job.account,
        "author": job.author,
        "gpus": job.gpus,
        "kind": "allocated" if job.allocated else "unallocated",
        "min_runtime": job.min_runtime / SECOND,
    }


def _started(record: Recorder, run: int, job: dict[str, Any]) -> dict[str, Any]:
    line = _line(record.start[run], "start", job)
    line["protected"] = record.protected[run]
    line["nodes"] = dict(record.placement[run])
    line["restore"] = record.restore[run] / SECOND
    return line


def _ended(record: Recorder, run: int, job: dict[str, Any]) -> dict[str, Any]:
    cause = record.cause[run]
    taken = cause in _PREEMPTED
    line = _line(record.end[run], "preempt" if taken else "finish", job)
    line["protected"] = record.protected[run]
    line["nodes"] = dict(record.placement[run])
    if taken:
        line["by"] = record.by[run] or None
        line["requeued"] = record.requeued[run]
    line["cause"] = cause.name.lower()
    line["lost"] = record.lost[run] / SECOND
    line["restore"] = record.restore[run] / SECOND
    return line


def _shares(tree: AccountTree) -> dict[str, float]:
    return {tree.paths[leaf]: float(tree.share[leaf]) for leaf in tree.leaves}
