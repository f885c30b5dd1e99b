"""Tiny clusters as drawings: one line per device, one character per hour.

A capital letter is a job at work, its small letter a job that restores, ``!`` work that a preemption
threw away, ``.`` an idle device, ``#`` a device that is not there.
"""

from __future__ import annotations

from decimal import Decimal
from textwrap import dedent

from divvy.fleet.account import AccountSpec, build_tree
from divvy.fleet.budget import Budget, Policy
from divvy.fleet.decision import Plan, Preempt, Start
from divvy.fleet.job import Phase
from divvy.fleet.node import Node
from divvy.fleet.reason import Reason
from divvy.sim.accounts import Claims
from divvy.sim.engine import Pace
from divvy.sim.replay import replay
from divvy.sim.scenario import Scenario
from divvy.sim.traces.trace import Trace, TraceJob
from divvy.units import HOUR


def job(name, submit, runtime, gpus, account="a", limit=None, **fields):
    """Return a job whose times are in hours; its limit is exact unless given."""
    defaults = {"author": "u", "min_runtime": 0, "resumable": True}
    return TraceJob(
        name,
        int(submit * HOUR),
        int(runtime * HOUR),
        gpus,
        account,
        time_limit=int((limit or runtime) * HOUR),
        **(defaults | fields),
    )


def run(planner, nodes, *jobs, capacity=(), checkpoint=0, restore=0):
    """Replay jobs under a planner on nodes of given sizes."""
    accounts = list(dict.fromkeys(one.account for one in jobs))
    budget = Budget(
        Policy(), build_tree([AccountSpec(name, Decimal(100 // len(accounts))) for name in accounts])
    )
    scenario = Scenario(
        Trace(tuple(sorted(jobs, key=lambda one: one.submit)), tuple(capacity)),
        tuple(Node(f"n{row}", size) for row, size in enumerate(nodes)),
        budget,
        Claims({name: name for name in accounts}, {}),
        pace=Pace(int(checkpoint * HOUR), int(restore * HOUR)),
    )
    return replay(scenario, planner)


def draw(done, hours):
    """Return the drawing of a replay, nodes apart by a blank line."""
    record = done.record
    sizes = {}
    for capacity in record.capacity:
        for name, gpus in capacity.nodes:
            sizes[name] = max(gpus, sizes.get(name, 0))
    grid = {name: [["."] * hours for _ in range(gpus)] for name, gpus in sizes.items()}
    for number, capacity in enumerate(record.capacity):
        until = record.capacity[number + 1].at if number + 1 < len(record.capacity) else hours * HOUR
        present = dict(capacity.nodes)
        for name, lines in grid.items():
            for line in lines[present.get(name, 0) :]:
                for hour in range(capacity.at // HOUR, min(hours, until // HOUR)):
                    line[hour] = "#"
    for run_row in sorted(range(len(record.job)), key=lambda r: (record.start[r], r)):
        start, end = record.start[run_row], record.end[run_row]
        letter = done.workload.spec[record.job[run_row]].id[0]
        text = []
        for hour in range(start // HOUR, end // HOUR):
            at = hour * HOUR
            if at < start + record.restore[run_row]:
                text.append(letter.lower())
            else:
                text.append("!" if at >= end - record.lost[run_row] else letter.upper())
        for name, gpus in record.placement[run_row]:
            free = [line for line in grid[name] if all(c == "." for c in line[start // HOUR : end // HOUR])]
            for line in free[:gpus]:
                line[start // HOUR : end // HOUR] = text
    return "\n\n".join("\n".join("".join(line) for line in lines) for lines in grid.values())


class Script:
    """A planner that follows a script: at an hour, (victim or None, job or None)."""

    name = "script"

    def __init__(self, *steps):
        self._steps = list(steps)

    def plan(self, snapshot, context):
        jobs, decisions = snapshot.jobs, []
        free = list(snapshot.nodes.free)
        while self._steps and self._steps[0][0] * HOUR <= context.now:
            _, victim, starter = self._steps.pop(0)
            row = jobs.row[starter] if starter else -1
            if victim:
                gone = jobs.row[victim]
                decisions.append(Preempt(gone, row, Reason.PREEMPTED_RECLAIM, 2.0, 0.5))
                for node, gpus in jobs.placement[gone]:
                    free[node] += gpus
            if starter:
                assert jobs.phase[row] is Phase.QUEUED
                spec = jobs.spec[row]
                node = next(n for n, room in enumerate(free) if room >= spec.gpus)
                free[node] -= spec.gpus
                decisions.append(Start(row, ((node, spec.gpus),), spec.allocated, Reason.STARTED_FREE))
        wake = int(self._steps[0][0] * HOUR) if self._steps else 0
        return Plan(snapshot.version, context.now, tuple(decisions), next_check=wake)


def drawing(text):
    """Return a drawing as a test writes it, without its margin."""
    return dedent(text).strip("\n")
