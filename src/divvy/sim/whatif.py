"""What if the budget were another one: the same jobs under several budgets, paired job by job.

Accounts are those of the trace, since every budget may have its own. A job that never started counts as
waiting until the replay ended, and is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import numpy as np

from divvy.sim.intervals import interval
from divvy.sim.measures import Window
from divvy.sim.recorder import OPEN
from divvy.sim.replay import Replay
from divvy.sim.report import finite
from divvy.sim.scenario import Scenario
from divvy.sim.steps import Floats, Ints, ints, quantile
from divvy.units import MINUTE, SECOND, gpu_hours

SCHEMA: Final = "divvy.simulate.whatif/1"
SAME: Final = MINUTE
"""Waits that differ by less count as equal."""
_TOLD: Final = 10


@dataclass(frozen=True, slots=True)
class Side:
    """One replay as the comparison needs it, a row per job.

    Attributes:
        wait: From submission to the first start, ms.
        started: Whether it ever started.
        counted: Whether it was submitted in the window.
        paid: Useful charged device-ms in the window.
        free: Useful unallocated device-ms in the window.
    """

    wait: Ints
    started: np.ndarray
    counted: np.ndarray
    paid: Ints
    free: Ints


def side_of(run: Replay, window: Window) -> Side:
    """Return what a finished replay says of every job."""
    record, work = run.record, run.workload
    submit, first = ints(work.submit), ints(record.first_start)
    started = first != OPEN
    counted = np.asarray(record.submitted) & (submit >= window.start) & (submit < window.end)
    job = ints(record.job)
    gpus = ints([spec.gpus for spec in work.spec])[job]
    begin = np.clip(ints(record.start) + ints(record.restore), window.start, window.end)
    end = np.clip(ints(record.end) - ints(record.lost), window.start, window.end)
    useful = np.zeros(len(work.spec), dtype=np.int64)
    np.add.at(useful, job, gpus * np.maximum(end - begin, 0))
    charged = np.asarray([spec.allocated for spec in work.spec])
    return Side(
        np.where(started, first, run.end) - submit,
        started,
        counted,
        np.where(charged, useful, 0),
        np.where(charged, 0, useful),
    )


@dataclass(frozen=True, slots=True)
class Arm:
    """One budget of the question.

    Attributes:
        name: What it is called: its file, ``equal`` or ``by-demand``.
        scenario: What was replayed under it.
        sides: Its replays by policy and seed.
    """

    name: str
    scenario: Scenario
    sides: Mapping[tuple[str, int], Side]


def whatif(arms: Sequence[Arm], policies: Sequence[str], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Return, per policy and budget after the first, what changes for whom against the first."""
    return [finite(_against(arms[0], arm, policy, seeds)) for policy in policies for arm in arms[1:]]


def _against(base: Arm, other: Arm, policy: str, seeds: Sequence[int]) -> dict[str, Any]:
    rows = {seed: _rows_by_account(base.scenario, seed) for seed in seeds}
    names = list(rows[seeds[0]])
    pairs = {seed: (base.sides[policy, seed], other.sides[policy, seed]) for seed in seeds}
    accounts = [
        _account(name, base, other, [(rows[seed][name], *pairs[seed]) for seed in seeds]) for name in names
    ]
    return {
        "policy": policy,
        "accounts": other.name,
        "against": base.name,
        "n": len(seeds),
        "same_within_seconds": SAME / SECOND,
        "by_account": accounts,
        "all": _account("", base, other, [(np.arange(len(p[0].wait)), *p) for p in pairs.values()]),
        **_extremes(base, seeds[0], *pairs[seeds[0]]),
    }


def _rows_by_account(scenario: Scenario, seed: int) -> dict[str, Ints]:
    """Return the rows of every account of the trace, in order of name."""
    rows: dict[str, list[int]] = {}
    for row, job in enumerate(scenario.jobs(seed)):
        rows.setdefault(job.account, []).append(row)
    return {name: ints(rows[name]) for name in sorted(rows)}


def _account(name: str, base: Arm, other: Arm, runs: Sequence[tuple[Ints, Side, Side]]) -> dict[str, Any]:
    """Return what changes for the jobs of an account; means over seeds."""
    told: list[dict[str, Any]] = []
    for rows, one, two in runs:
        mine = rows[one.counted[rows]]
        before, after = one.wait[mine] / SECOND, two.wait[mine] / SECOND
        gap = after - before
        same = np.abs(gap) < SAME / SECOND
        told.append(
            {
                "jobs": float(mine.size),
                "before": _waits(before),
                "after": _waits(after),
                "mean": _mean(gap),
                "median": quantile(gap, 0.5),
                "longer": float((~same & (gap > 0)).sum()),
                "shorter": float((~same & (gap < 0)).sum()),
                "same": float(same.sum()),
                "never": [float((~side.started[mine]).sum()) for side in (one, two)],
                "paid": [gpu_hours(int(side.paid[rows].sum())) for side in (one, two)],
                "free": [gpu_hours(int(side.free[rows].sum())) for side in (one, two)],
            }
        )
    entry: dict[str, Any] = {"account": name} if name else {}
    if name:
        paths = [arm.scenario.claims.paid_by.get(name, "") for arm in (base, other)]
        trees = [arm.scenario.budget.tree for arm in (base, other)]
        entry["paid_by"] = paths
        entry["share"] = [
            float(tree.share[tree.row[path]]) if path in tree.row else 0.0
            for tree, path in zip(trees, paths, strict=True)
        ]
    gains = [one["paid"][1] - one["paid"][0] for one in told]
    return entry | {
        "jobs": _over(told, "jobs"),
        "wait_seconds": {
            key: [fmean(one[when][key] for one in told) for when in ("before", "after")]
            for key in ("p50", "p90", "mean")
        },
        "wait_difference_seconds": {
            "mean": _over(told, "mean"),
            "median": _over(told, "median"),
            "interval": list(interval([one["mean"] for one in told])),
        },
        **{key: _over(told, key) for key in ("longer", "shorter", "same")},
        "never_started": [fmean(one["never"][n] for one in told) for n in (0, 1)],
        "charged_gpu_hours": [fmean(one["paid"][n] for one in told) for n in (0, 1)],
        "unallocated_gpu_hours": [fmean(one["free"][n] for one in told) for n in (0, 1)],
        "charged_gain_gpu_hours": {"mean": fmean(gains), "interval": list(interval(gains))},
    }


def _over(told: Sequence[Mapping[str, Any]], key: str) -> float:
    return fmean(one[key] for one in told)


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else float("nan")


def _waits(values: Floats) -> dict[str, float]:
    return {"p50": quantile(values, 0.5), "p90": quantile(values, 0.9), "mean": _mean(values)}


def _extremes(base: Arm, seed: int, one: Side, two: Side) -> dict[str, Any]:
    """Return the jobs whose wait changes most, of one seed."""
    jobs = base.scenario.jobs(seed)
    gap = np.where(one.counted, two.wait - one.wait, 0)
    order = np.argsort(gap, kind="stable")

    def told(rows: Ints) -> list[dict[str, Any]]:
        return [
            {
                "job": jobs[row].id,
                "account": jobs[row].account,
                "gpus": jobs[row].gpus,
                "wait_seconds": [float(one.wait[row]) / SECOND, float(two.wait[row]) / SECOND],
            }
            for row in map(int, rows)
            if abs(gap[row]) >= SAME
        ]

    return {"waits_much_longer": told(order[::-1][:_TOLD]), "waits_much_shorter": told(order[:_TOLD])}
