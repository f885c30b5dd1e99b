"""What a planner that watches would have done, beside what the engine did: read from the journal alone.

In shadow a plan is recorded and not carried out. The first pass that would have started a job is compared
with the start that the engine reported. These are first answers on the engine's own state: what would have
followed from them is a question for `divvy simulate`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from divvy.control.journal import Entry, Step
from divvy.fleet.event import Started, Submitted, Withdrawn
from divvy.fleet.reason import TEXT, Reason

SCHEMA: Final = "divvy.plan.shadow/1"
_NOTE: Final = "first answers on the engine's own state; for what would have followed see divvy simulate"


class _Seen:
    """What is known of one job."""

    __slots__ = ("account", "gpus", "here", "over", "reason", "submitted", "there")

    def __init__(self, account: str, gpus: int, submitted: int | None) -> None:
        self.account, self.gpus, self.submitted = account, gpus, submitted
        self.here: int | None = None
        self.there: int | None = None
        self.over = False
        self.reason = ""


def shadow_report(steps: Iterable[Step], since: int) -> dict[str, Any]:
    """Return ``divvy.plan.shadow/1``: what was proposed since a time (ms), and when the engine did it.

    Args:
        steps: The journal.
        since: Passes before it do not count; what happened before it is known all the same.
    """
    jobs: dict[str, _Seen] = {}
    counts = dict.fromkeys(("passes", "starts", "preemptions", "holds"), 0)
    proposed: set[str] = set()
    victims: set[tuple[str, str | None]] = set()
    slots: set[str] = set()
    for step in steps:
        if not isinstance(step, Entry):
            continue
        _happened(step, jobs)
        if step.at < since or step.plan is None or step.carried_out:
            continue
        counts["passes"] += bool(step.plan["decisions"] or step.plan["slots"])
        for decision in step.plan["decisions"]:
            if decision["do"] == "preempt":
                victims.add((decision["job"], decision["by"]))
                continue
            proposed.add(decision["job"])
            seen = jobs.setdefault(decision["job"], _Seen(decision["account"], decision["gpus"], None))
            if seen.here is None:
                seen.here, seen.reason = step.at, TEXT[Reason[decision["reason"].upper()]]
        slots |= {slot["job"] for slot in step.plan["slots"] if slot["do"] == "hold"}
    counts |= {"starts": len(proposed), "preemptions": len(victims), "holds": len(slots)}
    rows = [_row(name, jobs[name]) for name in sorted(proposed)]
    gaps = sorted(row["sooner_seconds"] for row in rows if row["sooner_seconds"] is not None)
    rows.sort(key=lambda row: (-(row["sooner_seconds"] or 0), row["job"]))
    return {
        "schema": SCHEMA,
        "since": since / 1000,
        **counts,
        "both": len(gaps),
        "sooner_seconds": {f"p{part}": _quantile(gaps, part) for part in (5, 50, 95)} if gaps else None,
        "jobs": rows,
        "note": _NOTE,
    }


def _happened(step: Entry, jobs: dict[str, _Seen]) -> None:
    for event in (*step.happened, *step.carried_out):
        if isinstance(event, Submitted):
            jobs.setdefault(event.spec.id, _Seen(event.spec.account, event.spec.gpus, event.at))
        elif isinstance(event, Started) and event.job in jobs and jobs[event.job].there is None:
            jobs[event.job].there = event.at
        elif isinstance(event, Withdrawn) and event.job in jobs:
            jobs[event.job].over = True


def _row(name: str, seen: _Seen) -> dict[str, Any]:
    gap = None if seen.here is None or seen.there is None else (seen.there - seen.here) / 1000
    return {
        "job": name,
        "account": seen.account,
        "gpus": seen.gpus,
        "submitted": None if seen.submitted is None else seen.submitted / 1000,
        "here": None if seen.here is None else seen.here / 1000,
        "there": None if seen.there is None else seen.there / 1000,
        "withdrawn": seen.over,
        "sooner_seconds": gap,
        "reason": seen.reason,
    }


def _quantile(ordered: list[float], part: int) -> float:
    return ordered[max(0, -(-len(ordered) * part // 100) - 1)]
