"""The audit as a document, ``divvy.audit/1``; GPU-hours, Unix seconds, and the rows behind each figure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from divvy.control.audit.audit import AccountAudit, Audit
from divvy.control.audit.figures import LONG, LOW_USE, PAUSE, REPEATS, Limits, Squatting, Waits
from divvy.control.audit.jobs import UNKNOWN, Jobs, Warned
from divvy.control.audit.runs import Ints
from divvy.control.hourly import Hours
from divvy.units import HOUR, SECOND, gpu_hours

SCHEMA: Final = "divvy.audit/1"
#: Ranges of lines that stand behind one figure; ``--jobs`` has every row.
MOST_RANGES: Final = 1_000
#: Hours of all accounts together; a longer period is left out and said so.
MOST_HOURS: Final = 2_000_000
_TOP: Final = 10
_DIGITS: Final = 6


def document(audited: Audit, zone: str) -> dict[str, Any]:
    """Return the whole audit.

    Args:
        audited: The audit.
        zone: Time zone in which times of the files were read.
    """
    statement, tally = audited.statement, audited.read.tally
    hours = len(statement.hours) * len(audited.accounts) <= MOST_HOURS
    warnings = list(audited.warnings)
    if not hours:
        text = "more than 2,000,000 hours over all accounts; they are left out, ask for a shorter period"
        warnings.append(Warned(0, 0, "hours-left-out", text))
    return {
        "schema": SCHEMA,
        "from_at": statement.start / SECOND,
        "to_at": statement.end / SECOND,
        "as_of": None if audited.runs.as_of == UNKNOWN else audited.runs.as_of / SECOND,
        "time_zone": zone,
        "by": audited.by.value,
        "shares": "budget" if audited.attribution.given else "equal",
        "files": list(audited.read.files),
        "rows_read": tally.read,
        "rows_skipped": tally.skipped,
        "rows": {name: getattr(tally, name) for name in tally._fields if name not in ("read", "skipped")},
        "jobs_with_gpus": len(audited.runs.payer),
        "gpu_hours": _hours(audited.held),
        "gpu_hours_by_model": _models(audited),
        "shard_hours": _shards(audited),
        "capacity": _capacity(audited),
        "unclaimed": _unclaimed(audited),
        "squatting_rule": {
            "basis": "use" if audited.read.measured else "names",
            "long_hours": LONG / HOUR,
            "low_use": LOW_USE,
            "repeats": REPEATS,
            "pause_minutes": PAUSE / (HOUR / 60),
        },
        "warnings": [_warning(warned, audited) for warned in warnings],
        "accounts": [_account(account, audited, hours=hours) for account in audited.accounts],
    }


def _hours(gpu_milliseconds: int) -> float:
    return round(gpu_hours(gpu_milliseconds), _DIGITS)


def _sum(column: Hours) -> float:
    return _hours(int(column.sum()))


def _warning(warned: Warned, audited: Audit) -> dict[str, Any]:
    """Return a warning; the file is named where there are several."""
    files = audited.read.files
    told: dict[str, Any] = {"line": warned.line or None, "code": warned.code, "text": warned.text}
    if len(files) > 1 and warned.line:
        told["file"] = files[warned.file]
    return told


def _models(audited: Audit) -> dict[str, float]:
    """Return GPU-hours per type; what has none is under the empty name."""
    runs = audited.runs
    texts = audited.read.jobs.words["gpu_model"].texts
    if not len(runs.payer):
        return {}
    sums = np.bincount(runs.word["gpu_model"], audited.signs.held, len(texts))
    return {texts[number]: _hours(int(total)) for number, total in enumerate(sums) if total > 0}


def _shards(audited: Audit) -> float:
    """Return the hours of parts of shared GPUs, which count as no GPU."""
    jobs, statement = audited.read.jobs, audited.statement
    shards = np.asarray(jobs.numbers["shards"], dtype=np.int64)
    some = np.flatnonzero(shards > 0)
    start = np.asarray(jobs.numbers["start"], dtype=np.int64)[some]
    end = np.asarray(jobs.numbers["end"], dtype=np.int64)[some]
    end = np.where(end == UNKNOWN, statement.end, end)
    span = np.maximum(np.minimum(end, statement.end) - np.maximum(start, statement.start), 0)
    return _hours(int((np.where(start == UNKNOWN, 0, span) * shards[some]).sum()))


def _capacity(audited: Audit) -> dict[str, Any]:
    supply = audited.supply
    return {
        "gpus": supply.gpus,
        "source": supply.source,
        "text": supply.text,
        "gpu_hours": _hours(supply.gpus * (audited.statement.end - audited.statement.start)),
        "nodes": supply.nodes,
        "gpus_out_of_service": supply.out_of_service,
        "most_held_at_once": supply.peak,
    }


def _unclaimed(audited: Audit) -> list[dict[str, Any]]:
    """Return the names that no account claims, those with most GPU time first."""
    runs, jobs = audited.runs, audited.read.jobs
    column = audited.by.value
    numbers = {text: number for number, text in enumerate(jobs.words[column].texts)}
    found = []
    for name in audited.attribution.unclaimed:
        some = np.flatnonzero(runs.word[column] == numbers[name])
        found.append(
            {
                "name": name,
                "jobs": len(some),
                "gpu_hours": _hours(int(audited.signs.held[some].sum())),
                "rows": rows_behind(some, audited),
            }
        )
    return sorted(found, key=lambda one: (-float(one["gpu_hours"]), one["name"]))


def _account(account: AccountAudit, audited: Audit, *, hours: bool) -> dict[str, Any]:
    row = account.row
    owed, delivered = int(row.owed.sum()), int(row.delivered.sum())
    return {
        "account": row.account,
        "share": float(row.entitled.sum() / row.capacity.sum()) if row.capacity.any() else 0.0,
        "capacity": _sum(row.capacity),
        "entitled": _sum(row.entitled),
        "demand": _sum(row.demand),
        "owed": _hours(owed),
        "owed_as_one": _sum(row.as_one),
        "delivered": _hours(delivered),
        "unfunded": _sum(account.unfunded),
        "gpu_hours": _hours(account.held),
        "delivered_over_owed": row.capped / owed if owed else None,
        "delivered_over_owed_hourly": row.capped_by_hour / owed if owed else None,
        "preempted_gpu_hours": _hours(account.preempted),
        "lost_gpu_hours": _hours(account.lost),
        "waits": [_wait(wait, audited) for wait in account.waits],
        "limits": _limits(account.limits, audited),
        "squatting_gpu_hours": _hours(account.squatting.index),
        "squatting": _squatting(account.squatting, audited),
        "rows": {
            "demand": rows_behind(account.wanting, audited),
            "gpu_hours": rows_behind(account.runs, audited),
            "preempted": rows_behind(account.preempted_runs, audited),
            "lost": rows_behind(account.lost_runs, audited),
        },
        "hours": _hourly(account, audited) if hours else None,
    }


def _wait(wait: Waits, audited: Audit) -> dict[str, Any]:
    return {
        "gpus": wait.size,
        "jobs": len(wait.of),
        "p50_s": wait.p50,
        "p90_s": wait.p90,
        "eligible_p50_s": wait.eligible_p50,
        "eligible_p90_s": wait.eligible_p90,
        "never_started": wait.never,
        "waiting": wait.waiting,
        "rows": rows_behind(wait.of, audited),
    }


def _limits(limit: Limits, audited: Audit) -> dict[str, Any]:
    return {
        "runs": len(limit.of),
        "declared_gpu_hours": _hours(limit.declared),
        "used_gpu_hours": _hours(limit.used),
        "used_over_declared": limit.used / limit.declared if limit.declared else None,
        "used_over_limit_p50": limit.p50,
        "used_over_limit_p90": limit.p90,
        "runs_without_limit": limit.unlimited,
        "rows": rows_behind(limit.of, audited),
    }


def _squatting(squat: Squatting, audited: Audit) -> dict[str, Any]:
    runs, texts = audited.runs, audited.read.jobs.words["user"].texts
    users = runs.word["user"][squat.of]
    by_user = []
    for user in np.unique(users):
        mine = users == user
        total = int(squat.weight[mine].sum())
        by_user.append({"user": texts[user], "gpu_hours": _hours(total), "runs": int(mine.sum())})
    by_user.sort(key=lambda one: (-float(str(one["gpu_hours"])), str(one["user"])))
    return {
        "runs": len(squat.of),
        "signals": {f"{name}_gpu_hours": _hours(total) for name, total in squat.signals.items()},
        "users": by_user[:_TOP],
        "rows": rows_behind(squat.of, audited),
    }


def _hourly(account: AccountAudit, audited: Audit) -> list[dict[str, float]]:
    row = account.row
    share = row.entitled / np.maximum(row.capacity, 1)
    columns = (row.capacity, row.demand, row.owed, row.delivered, account.unfunded)
    in_hours = (np.round(column / HOUR, _DIGITS).tolist() for column in columns)
    return [
        {
            "at": at / SECOND,
            "share": part,
            "capacity": capacity,
            "demand": demand,
            "owed": owed,
            "delivered": delivered,
            "unfunded": unfunded,
        }
        for at, part, capacity, demand, owed, delivered, unfunded in zip(
            audited.statement.hours, np.round(share, _DIGITS).tolist(), *in_hours, strict=True
        )
    ]


def rows_behind(of: Ints, audited: Audit) -> dict[str, Any]:
    """Return the rows of some runs: how many, and their lines as ranges (``file:3-7`` with several files)."""
    runs, files = audited.runs, audited.read.files
    line, file = runs.number["line"][of], runs.number["file"][of]
    if not len(of):
        return {"count": 0, "lines": []}
    order = np.lexsort((line, file))
    line, file = line[order], file[order]
    breaks = np.flatnonzero((np.diff(line) > 1) | (np.diff(file) != 0)) + 1
    firsts = np.concatenate([[0], breaks])
    lasts = np.concatenate([breaks - 1, [len(line) - 1]])
    told = []
    for first, last in zip(firsts[:MOST_RANGES].tolist(), lasts[:MOST_RANGES].tolist(), strict=True):
        low, high = int(line[first]), int(line[last])
        place = f"{files[file[first]]}:" if len(files) > 1 else ""
        told.append(f"{place}{low}" if low == high else f"{place}{low}-{high}")
    rest = len(firsts) - len(told)
    return {"count": len(of), "lines": told, **({"more_ranges": rest} if rest > 0 else {})}


def job_lines(jobs: Jobs, files: tuple[str, ...]) -> Iterator[str]:
    """Yield one line of JSON for each job understood, in the order in which they were read."""
    columns = [jobs.numbers[name] for name in ("gpus", "submit", "start", "end", "limit", "line", "file")]
    texts = [
        (jobs.ids[name], _encoded(jobs.words[name].texts, empty="null" if name == "gpu_model" else '""'))
        for name in ("job", "account", "user", "gpu_model", "state")
    ]
    names = [json.dumps(name) for name in files]
    (job_ids, job), (account_ids, account), (user_ids, user), (model_ids, model), (state_ids, state) = texts
    none = UNKNOWN  # written out below and not called: it is asked four times a row
    for index, (gpus, submit, start, end, limit, line, file) in enumerate(zip(*columns, strict=True)):
        where = f', "file": {names[file]}' if len(files) > 1 else ""
        yield (
            f'{{"job": {job[job_ids[index]]}, "account": {account[account_ids[index]]}, '
            f'"user": {user[user_ids[index]]}, "gpus": {gpus}, "gpu_model": {model[model_ids[index]]}, '
            f'"submit": {"null" if submit == none else submit // SECOND}, '
            f'"start": {"null" if start == none else start // SECOND}, '
            f'"end": {"null" if end == none else end // SECOND}, "state": {state[state_ids[index]]}, '
            f'"limit_s": {"null" if limit == none else limit // SECOND}, "line": {line}{where}}}\n'
        )


def _encoded(texts: list[str], empty: str) -> list[str]:
    return [json.dumps(text) if text else empty for text in texts]
