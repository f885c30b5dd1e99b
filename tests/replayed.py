"""What a finished replay says of every run, as tests of policies read it."""

from __future__ import annotations

import json

from divvy.fleet.budget import parse_budget
from divvy.planners.jobs.budget import BudgetPlanner
from divvy.sim.accounts import claim
from divvy.sim.engine import Pace
from divvy.sim.replay import replay
from divvy.sim.scenario import Scenario, build_fleet
from divvy.sim.traces.jsonlines import read_jsonlines
from divvy.units import HOUR


def job(name, account, submit, runtime, gpus=4, least=1.0, **more):
    """Return a resumable job of a trace; times in hours."""
    fields = {"min_runtime": f"{round(least * 60)}m" if least else 0, "resumable": True, "author": "u"}
    shape = {"runtime": f"{round(runtime * 60)}m", "gpus": gpus, "account": account, "time_limit": 0}
    return {"id": name, "submit": round(submit * 3600), **shape, **fields, **more}


def replayed(*rows, policy="", nodes="1x8", shares=None):
    """Return the replay of some lines of a trace under the budget policy, without checkpoints to lose."""
    trace = read_jsonlines("".join(json.dumps(row) + "\n" for row in rows).encode(), "t")
    shares = shares or {"a": 50, "b": 50}
    accounts = "".join(f"[accounts.{name}]\nshare = {share}\n" for name, share in shares.items())
    budget, claims = claim(trace, parse_budget(f"[policy]\n{policy}\n{accounts}"))
    return replay(Scenario(trace, build_fleet(None, nodes), budget, claims, pace=Pace(0, 0)), BudgetPlanner())


def play(*rows, **how):
    """Return (job, begin, end, protected, taken by) per run, times in hours."""
    return runs_of(replayed(*rows, **how), "by")


def runs_of(done, last):
    """Return (job, begin, end, protected, and one column of the record more) per run, times in hours."""
    assert not done.refused
    record, spec = done.record, done.workload.spec
    more = getattr(record, last)
    return [
        (spec[row].id, record.start[run] / HOUR, record.end[run] / HOUR, record.protected[run], more[run])
        for run, row in enumerate(record.job)
    ]
