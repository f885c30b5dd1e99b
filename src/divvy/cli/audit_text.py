"""The audit on a terminal: what a PI asks first, and what was doubtful."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

from divvy.cli.render import NONE, Cell, Column, Screen, Span, number, path, percent, seconds
from divvy.units import SECOND, format_instant

_COLUMNS: Final = (
    Column("Account"),
    Column("Share", right=True),
    Column("Demand", right=True, drop=5),
    Column("Owed", right=True),
    Column("Delivered", right=True),
    Column("Del./owed", right=True),
    Column("By hour", right=True, drop=7),
    Column("Unfunded", right=True, drop=6),
    Column("Preempted", right=True, drop=2),
    Column("Lost", right=True, drop=3),
    Column("Limit used", right=True, drop=1),
    Column("Squatting", right=True, drop=4),
)
_WAITS: Final = (
    Column("Account"),
    Column("GPUs", right=True),
    Column("Jobs", right=True),
    Column("Wait p50", right=True),
    Column("p90", right=True),
    Column("Eligible p50", right=True, drop=2),
    Column("p90", right=True, drop=1),
    Column("Waiting", right=True, drop=3),
    Column("Withdrawn", right=True, drop=4),
)
_MOST_WARNINGS: Final = 12
_MOST_WAITS: Final = 40


def show(screen: Screen, report: dict[str, Any], jobs: Path | None, html: Path | None) -> None:
    """Write the audit."""
    _head(screen, report)
    screen.table(_COLUMNS, [_row(account) for account in report["accounts"]])
    screen.line()
    waits = [(account["account"], wait) for account in report["accounts"] for wait in account["waits"]]
    if waits:
        shown = _few(waits)
        screen.table(_WAITS, [_wait(name, wait) for name, wait in shown])
        if len(shown) < len(waits):
            screen.line(Span("waits of the other accounts: --json, --html", "dim"))
        screen.line()
    for one in report["unclaimed"][:_MOST_WARNINGS]:
        name = one["name"] or "(no name)"
        screen.line(
            Span("unclaimed ", "yellow"),
            f"{name}: {one['jobs']} jobs, {number(one['gpu_hours'])} GPU-hours, charged to unfunded",
        )
    if len(report["unclaimed"]) > _MOST_WARNINGS:
        screen.line(f"and {len(report['unclaimed']) - _MOST_WARNINGS} more unclaimed names (--json)")
    _warnings(screen, report)
    for out, what in ((jobs, "jobs"), (html, "report")):
        if out is not None:
            screen.line(f"{what}: {out}")


def _few(waits: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the waits that fit on a screen: those of the highest levels of the tree."""
    levels = sorted({name.count(".") for name, _ in waits})
    for most in reversed(levels):
        some = [wait for wait in waits if wait[0].count(".") <= most]
        if len(some) <= _MOST_WAITS:
            return some
    return waits[:_MOST_WAITS]


def _head(screen: Screen, report: dict[str, Any]) -> None:
    rows, capacity = report["rows"], report["capacity"]
    screen.line(
        Span(f"{number(report['gpu_hours'])} GPU-hours", "bold"),
        f" from {format_instant(round(report['from_at'] * SECOND))} to "
        f"{format_instant(round(report['to_at'] * SECOND))}, {report['jobs_with_gpus']} jobs with GPUs",
    )
    parts = [
        f"{rows[name]} {word}" for name, word in (("jobs", "jobs"), ("steps", "steps"), ("nodes", "nodes"))
    ]
    parts.append(f"{rows['duplicates']} told twice")
    skipped = Span(f"{report['rows_skipped']} not understood", "red" if report["rows_skipped"] else "")
    screen.line(f"{report['rows_read']} rows read: {', '.join(parts)}, ", skipped)
    screen.line(f"capacity {capacity['gpus']} GPUs ({capacity['source']}): {capacity['text']}")
    if report["shares"] == "equal":
        screen.line(Span("no budget: every name has the same share (--budgets FILE)", "yellow"))
    screen.line(Span("GPU-hours; owed is min(share x capacity, demand), hour by hour", "dim"))


def _row(account: dict[str, Any]) -> tuple[Cell, ...]:
    return (
        path(account["account"]),
        percent(account["share"], 1),
        number(account["demand"]),
        number(account["owed"]),
        number(account["delivered"]),
        _ratio(account["delivered_over_owed"]),
        _ratio(account["delivered_over_owed_hourly"]),
        number(account["unfunded"]),
        number(account["preempted_gpu_hours"]),
        number(account["lost_gpu_hours"]),
        percent(account["limits"]["used_over_declared"]),
        number(account["squatting_gpu_hours"]),
    )


def _ratio(part: float | None) -> Span:
    if part is None:
        return Span(NONE)
    return Span(percent(part, 1), "red" if part < 0.9 else "yellow" if part < 0.95 else "")


def _wait(name: str, wait: dict[str, Any]) -> tuple[Cell, ...]:
    return (
        path(name),
        wait["gpus"],
        str(wait["jobs"]),
        seconds(wait["p50_s"]),
        seconds(wait["p90_s"]),
        seconds(wait["eligible_p50_s"]),
        seconds(wait["eligible_p90_s"]),
        str(wait["waiting"]),
        str(wait["never_started"]),
    )


def _warnings(screen: Screen, report: dict[str, Any]) -> None:
    """Write the first warnings, and how many there are of each code."""
    warnings = report["warnings"]
    for warning in warnings[:_MOST_WARNINGS]:
        place = f"{warning['file']}:" if "file" in warning else "line "
        where = f"{place}{warning['line']}: " if warning["line"] else ""
        screen.line(Span(f"{warning['code']}  ", "yellow"), f"{where}{warning['text']}")
    if len(warnings) > _MOST_WARNINGS:
        counts = Counter(warning["code"] for warning in warnings)
        told = ", ".join(f"{code} {count}" for code, count in counts.most_common())
        screen.line(f"{len(warnings)} warnings in all (--json has them): {told}")
