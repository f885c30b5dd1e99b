"""The audit as one HTML page that a principal investigator can read: no script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, Final

from divvy.cli.audit_charts import bar, series, waits
from divvy.cli.audit_style import STYLE
from divvy.cli.render import clean, many, number, percent, seconds
from divvy.units import SECOND, format_instant

_MOST_WARNINGS: Final = 200
_MOST_CARDS: Final = 24
_MOST_UNCLAIMED: Final = 100
_MOST_ACCOUNTS: Final = 500
_GOOD: Final = 0.95
_FAIR: Final = 0.90

Report = dict[str, Any]


def page(report: Report) -> str:
    """Return the page of an audit."""
    accounts = report["accounts"][:_MOST_ACCOUNTS]
    sections = (
        _head(report),
        _owed(accounts),
        _over_time(accounts),
        _waits(accounts),
        _losses(accounts),
        _limits(accounts),
        _squatting(accounts, report),
        _unclaimed(report),
        _sources(report),
    )
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'>"
        f"<title>GPU audit, {_day(report['from_at'])} to {_day(report['to_at'])}</title>"
        f"<style>{STYLE}</style></head><body><main>{''.join(sections)}</main></body></html>\n"
    )


def _text(text: str) -> str:
    """Return text that is safe in a page and can steer nothing."""
    return escape(clean(text))


def _at(at: float) -> str:
    return format_instant(round(at * SECOND))


def _day(at: float) -> str:
    return _at(at)[:10]


def _graded(part: float | None) -> str:
    if part is None:
        return "-"
    grade = "good" if part >= _GOOD else "fair" if part >= _FAIR else "poor"
    return f"<span class='{grade}'>{percent(part, 1)}</span>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int] = ()) -> str:
    """Return a table; columns in ``words`` hold text that may wrap."""
    kinds = ["class='text'" if n in words else "" for n in range(len(head))]
    top = "".join(f"<th {kind} scope='col'>{cell}</th>" for kind, cell in zip(kinds, head, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td {k}>{cell}</td>" for k, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<div class='scroll'><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def _name(account: Report) -> str:
    """Return an account's last part, set in by its depth."""
    *above, last = account["account"].split(".")
    whole = _text(account["account"])
    return f"<span style='padding-left:{14 * len(above)}px' title='{whole}'>{_text(last)}</span>"


def _rows(told: Report) -> str:
    """Return the lines of the files behind a figure."""
    if not told["count"]:
        return ""
    more = " …, all of them with --jobs" if told.get("more_ranges") else ""
    lines = _text(", ".join(told["lines"][:200]))
    rest = "" if len(told["lines"]) <= 200 else " …"
    return f"<details><summary>{told['count']} rows</summary><code>lines {lines}{rest}{more}</code></details>"


def _head(report: Report) -> str:
    capacity, rows = report["capacity"], report["rows"]
    tiles = (
        (number(report["gpu_hours"], 0), "GPU-hours held"),
        (f"{capacity['gpus']}", f"GPUs of capacity ({capacity['source']})"),
        (_occupancy(report), "of it held"),
        (f"{report['jobs_with_gpus']:,}", "jobs with GPUs"),
        (f"{report['rows_read']:,}", f"rows read, {rows['steps']:,} of them steps"),
        (f"{report['rows_skipped']:,}", "rows not understood"),
    )
    shown = "".join(
        f"<div class='tile'><b>{value}</b><span>{_text(what)}</span></div>" for value, what in tiles
    )
    return (
        f"<h1>GPU audit</h1><p class='muted'>{_at(report['from_at'])} to {_at(report['to_at'])}; by "
        f"{report['by']}; {_text(', '.join(report['files'][:6]))}</p>"
        f"<p class='lead'>{_headline(report)}</p><div class='tiles'>{shown}</div>"
    )


def _occupancy(report: Report) -> str:
    whole = report["capacity"]["gpu_hours"]
    return percent(report["gpu_hours"] / whole) if whole else "-"


def _headline(report: Report) -> str:
    """Return the first thing to know, in a sentence or two."""
    parents = {account["account"].rpartition(".")[0] for account in report["accounts"]}
    leaves = [a for a in report["accounts"] if a["account"] not in parents and a["owed"] > 0]
    if not leaves:
        return "No account was owed GPU time in this period."
    served = [a for a in leaves if (a["delivered_over_owed"] or 0) >= _GOOD]
    worst = min(leaves, key=lambda a: a["delivered_over_owed"] or 0)
    told = f"{len(served)} of {len(leaves)} accounts got at least 95% of the GPU time that they were owed."
    if worst not in served:
        told += (
            f" {_text(worst['account'])} got least: {number(worst['delivered'])} of "
            f"{number(worst['owed'])} GPU-hours, {percent(worst['delivered_over_owed'])}."
        )
    hourly = [a["delivered_over_owed_hourly"] for a in leaves if a["delivered_over_owed_hourly"] is not None]
    if hourly and min(hourly) < _GOOD:
        told += f" Counted hour by hour, the least was {percent(min(hourly))}."
    squat = sum(a["squatting_gpu_hours"] for a in leaves)
    if squat and report["gpu_hours"]:
        told += (
            f" {number(squat)} GPU-hours ({percent(squat / report['gpu_hours'])}) look held rather than used."
        )
    return told


def _owed(accounts: Sequence[Report]) -> str:
    most = max([*(a["delivered"] for a in accounts), *(a["owed"] for a in accounts), 0.0])
    rows = [
        (
            _name(a),
            percent(a["share"], 1),
            number(a["demand"]),
            number(a["owed"]),
            number(a["delivered"]),
            bar(a["delivered"], most, "delivered", a["owed"]),
            _graded(a["delivered_over_owed"]),
            _graded(a["delivered_over_owed_hourly"]),
            number(a["unfunded"]),
            _rows(a["rows"]["gpu_hours"]),
        )
        for a in accounts
    ]
    head = (
        "Account",
        "Share",
        "Demand",
        "Owed",
        "Delivered",
        "Bar",
        "Delivered/owed",
        "by hour",
        "Unfunded",
        "Rows",
    )
    return (
        "<h2>What each account was owed, and what it got</h2>"
        "<p>GPU-hours. In every hour an account is owed its share of the capacity, or what it asked for "
        "where that "
        "is less. The bar is what was delivered, its mark what was owed. <em>Unfunded</em> is time "
        "delivered beyond "
        "what was owed: no share pays for it.</p>" + _table(head, rows, (9,))
    )


def _over_time(accounts: Sequence[Report]) -> str:
    wanting = [a for a in accounts if a["hours"] and (a["demand"] > 0)]
    cards = "".join(
        f"<div class='card'><h3>{_text(a['account'])}</h3>{series(a)}</div>" for a in wanting[:_MOST_CARDS]
    )
    if not cards:
        return ""
    more = (
        f"<p class='muted'>and {len(wanting) - _MOST_CARDS} more accounts</p>"
        if len(wanting) > _MOST_CARDS
        else ""
    )
    legend = (("delivered", "delivered"), ("owed", "owed"), ("demand", "demand (cut at the top)"))
    items = "".join(f"<li><i class='{kind}'></i>{what}</li>" for kind, what in legend)
    return f"<h2>Over time, in GPUs</h2><ul class='legend'>{items}</ul><div class='cards'>{cards}</div>{more}"


def _waits(accounts: Sequence[Report]) -> str:
    some = [a for a in accounts if a["waits"]]
    if not some:
        return ""
    cards = "".join(
        f"<div class='card'><h3>{_text(a['account'])}</h3>{waits(a['waits'])}</div>"
        for a in some[:_MOST_CARDS]
    )
    rows = [
        (
            _name(a),
            _text(w["gpus"]),
            str(w["jobs"]),
            seconds(w["p50_s"]),
            seconds(w["p90_s"]),
            seconds(w["eligible_p50_s"]),
            seconds(w["eligible_p90_s"]),
            str(w["waiting"]),
            str(w["never_started"]),
            _rows(w["rows"]),
        )
        for a in some
        for w in a["waits"]
    ]
    head = (
        "Account",
        "GPUs",
        "Jobs",
        "Wait p50",
        "p90",
        "eligible p50",
        "p90",
        "Waiting",
        "Withdrawn",
        "Rows",
    )
    return (
        "<h2>How long jobs waited, by size</h2><p>From submission to start: half of the jobs waited no "
        "longer than "
        "p50 (full dot), nine of ten no longer than p90 (ring). <em>Eligible</em> counts from when "
        "dependencies and "
        f"begin times were over.</p><div class='cards'>{cards}</div>" + _table(head, rows, (9,))
    )


def _losses(accounts: Sequence[Report]) -> str:
    rows = [
        (
            _name(a),
            number(a["preempted_gpu_hours"]),
            _rows(a["rows"]["preempted"]),
            number(a["lost_gpu_hours"]),
            _rows(a["rows"]["lost"]),
        )
        for a in accounts
        if a["preempted_gpu_hours"] or a["lost_gpu_hours"]
    ]
    return _section(
        "Preempted and lost",
        "GPU-hours of runs that ended preempted, and of runs whose work is known to be gone: a node "
        "failed, or the "
        "run was preempted and the job never ran again. Whether the others had checkpoints Slurm does "
        "not know.",
        rows,
        lambda: _table(("Account", "Preempted", "Rows", "Lost", "Rows"), rows, (2, 4)),
        "No run was preempted or lost.",
    )


def _section(title: str, about: str, rows: Sequence[Any], draw: Callable[[], str], otherwise: str) -> str:
    body = f"<p>{about}</p>{draw()}" if rows else f"<p class='muted'>{otherwise}</p>"
    return f"<h2>{title}</h2>{body}"


def _limits(accounts: Sequence[Report]) -> str:
    rows = [
        (
            _name(a),
            str(limit["runs"]),
            number(limit["declared_gpu_hours"]),
            number(limit["used_gpu_hours"]),
            bar(limit["used_over_declared"], 1.0, "delivered"),
            percent(limit["used_over_declared"]),
            percent(limit["used_over_limit_p50"]),
            percent(limit["used_over_limit_p90"]),
            str(limit["runs_without_limit"]),
            _rows(limit["rows"]),
        )
        for a in accounts
        if (limit := a["limits"])["runs"]
    ]
    head = ("Account", "Runs", "Declared", "Used", "Bar", "Used/declared", "p50", "p90", "No limit", "Rows")
    return _section(
        "Declared limits against used time",
        "GPU-hours of runs that are over. A scheduler plans with the limits: what is declared and not "
        "used keeps "
        "others waiting that might have fitted.",
        rows,
        lambda: _table(head, rows, (9,)),
        "No run that is over declared a limit.",
    )


def _squatting(accounts: Sequence[Report], report: Report) -> str:
    rule = report["squatting_rule"]
    most = max([a["squatting_gpu_hours"] for a in accounts] or [0.0])
    rows = [
        (
            _name(a),
            number(a["squatting_gpu_hours"]),
            bar(a["squatting_gpu_hours"], most, "unfunded"),
            percent(a["squatting_gpu_hours"] / a["gpu_hours"]) if a["gpu_hours"] else "-",
            _text(", ".join(f"{u['user']} {number(u['gpu_hours'])}" for u in a["squatting"]["users"][:5])),
            _rows(a["squatting"]["rows"]),
        )
        for a in accounts
        if a["squatting_gpu_hours"]
    ]
    basis = (
        f"with a measured use below {percent(rule['low_use'])}"
        if rule["basis"] == "use"
        else "that look like sessions of a person (no column tells the use of GPUs)"
    )
    about = (
        f"GPU-hours of runs {basis} that lasted {rule['long_hours']:g} h or more, alone or in a chain "
        f"of at least "
        f"{rule['repeats']} runs of one user, name and size with pauses of at most "
        f"{rule['pause_minutes']:g} min. "
        "An index to look at, not a verdict."
    )
    head = ("Account", "GPU-hours", "Bar", "of its time", "Most by", "Rows")
    return _section(
        "Squatting index", about, rows, lambda: _table(head, rows, (4, 5)), "Nothing looks like it."
    )


def _unclaimed(report: Report) -> str:
    rows = [
        (_text(one["name"] or "(no name)"), str(one["jobs"]), number(one["gpu_hours"]), _rows(one["rows"]))
        for one in report["unclaimed"][:_MOST_UNCLAIMED]
    ]
    if not rows:
        return ""
    more = len(report["unclaimed"]) - len(rows)
    rest = f"<p class='muted'>and {more:,} more; --json has all</p>" if more > 0 else ""
    return (
        "<h2>Names that no account claims</h2><p>They are charged to <code>unfunded</code>; add them to a "
        "<code>slurm = [...]</code> list of the budget.</p>"
        + _table((_text(report["by"].capitalize()), "Jobs", "GPU-hours", "Rows"), rows, (3,))
        + rest
    )


def _sources(report: Report) -> str:
    """Return how the figures came about, and every doubt."""
    rows, capacity = report["rows"], report["capacity"]
    equal = " No budget was given: every name has the same share." if report["shares"] == "equal" else ""
    told = (
        f"<h2>How this was counted</h2><p>{report['rows_read']:,} rows read: {rows['jobs']:,} jobs, "
        f"{rows['steps']:,} "
        f"steps (their job has a row of its own), {rows['nodes']:,} nodes, {rows['duplicates']:,} told "
        f"twice, "
        f"{report['rows_skipped']:,} not understood. Times of text in zone "
        f"{_text(report['time_zone'])}.{equal}</p>"
        f"<p>Capacity: {capacity['gpus']} GPUs, {_text(capacity['text'])}.</p>"
    )
    warnings = report["warnings"]
    if not warnings:
        return told
    listed = [
        (
            _text(w["code"]),
            _text(f"{w.get('file', '')}:{w['line']}".lstrip(":")) if w["line"] else "-",
            _text(w["text"]),
        )
        for w in warnings[:_MOST_WARNINGS]
    ]
    more = len(warnings) - len(listed)
    rest = f"<p class='muted'>and {more:,} more; --json has all</p>" if more > 0 else ""
    title = many(len(warnings), "warning")
    return f"{told}<h2>{title}</h2>{_table(('Code', 'Line', 'What'), listed, (1, 2))}{rest}"
