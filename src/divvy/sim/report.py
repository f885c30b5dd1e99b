"""The report of a comparison: `divvy.simulate/1`, from the figures of every policy and seed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from divvy.planners.jobs.registry import documented
from divvy.sim.intervals import interval
from divvy.sim.measures import MATTERS, SERVED, AccountFigures, Figures, Waits

SCHEMA: Final = "divvy.simulate/1"
_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one replay gave.

    Attributes:
        policy: Name of the planner.
        seed: Seed of the workload.
        figures: The measures.
        wall_seconds: Time of the replay and its measures.
        extra: Further figures of a built-in scenario, by name.
        refused: Events that the state refused.
    """

    policy: str
    seed: int
    figures: Figures
    wall_seconds: float
    extra: Mapping[str, Mapping[str, Any]]
    refused: tuple[str, ...] = ()


def policies(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return the figures per policy, in order of first appearance; means over seeds, with intervals."""
    entries: list[dict[str, Any]] = []
    for policy in dict.fromkeys(outcome.policy for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.policy == policy]
        runs = [_run(outcome) for outcome in mine]
        if len(runs) == 1:
            entries.append({"policy": policy, "documented": documented(policy), **runs[0]})
            continue
        entry = {"policy": policy, "documented": documented(policy), **_mean(runs)}
        entry["intervals"] = {
            name: [_plain(bound) for bound in interval([_flat(run)[name] for run in runs])]
            for name in _flat(runs[0])
        }
        entry["runs"] = [{"seed": outcome.seed, **run} for outcome, run in zip(mine, runs, strict=True)]
        entries.append(entry)
    return [finite(entry) for entry in entries]


def paired(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return the differences of every policy to the first one, seed by seed on the same workload."""
    by_policy: dict[str, dict[int, dict[str, float]]] = {}
    for outcome in outcomes:
        by_policy.setdefault(outcome.policy, {})[outcome.seed] = _flat(_run(outcome))
    names = list(by_policy)
    rows: list[dict[str, Any]] = []
    for policy in names[1:]:
        base, other = by_policy[names[0]], by_policy[policy]
        for measure in next(iter(other.values())):
            gaps = [other[seed][measure] - base[seed][measure] for seed in other]
            rows.append(
                {
                    "policy": policy,
                    "against": names[0],
                    "measure": measure,
                    "difference": fmean(gaps),
                    "interval": list(interval(gaps)),
                    "n": len(gaps),
                }
            )
    return [finite(row) for row in rows]


def flat_figures(outcome: Outcome) -> dict[str, float]:
    """Return the figures of one replay that exist, under dotted names; `accounts_at_95` as a part of 1."""
    numbers = _flat(_run(outcome))
    served, judged = _served(outcome.figures.accounts)
    numbers["accounts_at_95"] = served / judged if judged else math.nan
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _run(outcome: Outcome) -> dict[str, Any]:
    """Return the document of one replay; figures that do not exist are nan here."""
    figures = outcome.figures
    return {
        "occupancy": figures.occupancy,
        "occupancy_while_contended": figures.occupancy_while_contended,
        "useful_occupancy_while_contended": figures.useful_occupancy_while_contended,
        "contended_fraction": figures.contended,
        "delivered_over_owed": {"period": figures.period, "day": figures.day, "hour": figures.hour},
        "worst_account": _worst(figures.accounts),
        "accounts_at_95": _served(figures.accounts),
        "accounts": [_account(account) for account in figures.accounts],
        "unallocated_share": figures.unallocated_share,
        "wait_seconds": {name: _waits(waits) for name, waits in figures.waits.items()},
        "preemptions": figures.preemptions,
        "node_losses": figures.node_losses,
        "lost_gpu_hours": figures.lost,
        "lost_allocated_gpu_hours": figures.lost_allocated,
        "lost_fraction": figures.lost_fraction,
        "occupied_gpu_hours": figures.occupied,
        "capacity_gpu_hours": figures.capacity,
        "jobs": figures.jobs,
        "finished": figures.finished,
        "never_started": figures.never_started,
        "start_interval": None,
        **{name: dict(values) for name, values in outcome.extra.items()},
        "refused": list(outcome.refused[:20]),
        "wall_seconds": outcome.wall_seconds,
        "events": figures.events,
    }


def _judged(accounts: Sequence[AccountFigures]) -> list[AccountFigures]:
    return [account for account in accounts if account.owed >= MATTERS]


def _worst(accounts: Sequence[AccountFigures]) -> dict[str, Any]:
    """Return the account that got the least of what it was owed, and the least figure by the hour."""
    judged = _judged(accounts)
    if not judged:
        return {"account": None, "period": math.nan, "hour": math.nan, "hour_account": None}
    period = min(judged, key=lambda account: account.period)
    hour = min(judged, key=lambda account: account.hour)
    return {
        "account": period.account,
        "period": period.period,
        "hour": hour.hour,
        "hour_account": hour.account,
    }


def _served(accounts: Sequence[AccountFigures]) -> list[int]:
    judged = _judged(accounts)
    return [sum(1 for account in judged if account.period >= SERVED), len(judged)]


def _account(account: AccountFigures) -> dict[str, Any]:
    return {
        "account": account.account,
        "share": account.share,
        "owed_gpu_hours": account.owed,
        "delivered_gpu_hours": account.delivered,
        "unallocated_gpu_hours": account.unallocated,
        "delivered_over_owed": {"period": account.period, "day": account.day, "hour": account.hour},
    }


def _waits(waits: Waits) -> dict[str, float]:
    return {"p50": waits.p50, "p90": waits.p90, "n": waits.n}


_UNMEASURED: Final = ("accounts", "accounts_at_95", "refused")


def _flat(run: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers of a run under dotted names; lists and names are left out."""
    numbers: dict[str, float] = {}
    for name, value in run.items():
        if name in _UNMEASURED:
            continue
        if isinstance(value, Mapping):
            numbers |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float):
            numbers[prefix + name] = float(value)
    return numbers


def _mean(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean of several runs, key by key.

    Of accounts the worst name that occurs most is kept; of ``accounts_at_95`` the worst run.
    """
    mean: dict[str, Any] = {}
    for name, first in runs[0].items():
        values = [run[name] for run in runs]
        if name == "accounts":
            mean[name] = [_mean(same) for same in zip(*values, strict=True)]
        elif name == "accounts_at_95":
            mean[name] = min(values, key=lambda pair: (pair[0] - pair[1], pair))
        elif name == "refused":
            mean[name] = [text for value in values for text in value][:20]
        elif isinstance(first, Mapping):
            mean[name] = _mean(values)
        elif isinstance(first, int | float):
            mean[name] = first if all(value == first for value in values) else fmean(values)
        else:
            mean[name] = Counter(values).most_common(1)[0][0]
    return mean


def _plain(number: float) -> float | None:
    """Return a number as JSON can hold it; null stands for infinite and for not defined."""
    if not math.isfinite(number):
        return None
    return number if isinstance(number, int) else round(number, _DIGITS)


def finite(value: Any) -> Any:
    """Return a document as JSON can hold it: null for what is infinite or not defined, rounded."""
    if isinstance(value, Mapping):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return _plain(value) if isinstance(value, float) else value
