"""Reports of replays for people: the table of policies, and what a reader must know before believing it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from divvy.cli.render import Column, Output, Span, number, percent, seconds
from divvy.cli.simulate_files import report_documents

_COLUMNS: Final = (
    Column("POLICY"),
    Column("PERIOD", right=True),
    Column("DAY", right=True, drop=4),
    Column("HOUR", right=True),
    Column("WORST", right=True),
    Column("AT 95%", right=True, drop=5),
    Column("OCCUPANCY", right=True),
    Column("USEFUL", right=True),
    Column("WAIT P50", right=True),
    Column("P90", right=True),
    Column("DEBUG P90", right=True, drop=3),
    Column("LARGE P90", right=True, drop=2),
    Column("PREEMPTED", right=True),
    Column("LOST", right=True),
    Column("SECONDS", right=True, drop=1),
)


def print_all(output: Output, report: dict[str, Any]) -> None:
    """Print a report for people: of one budget, or of several and what changes between them."""
    for label, document in report_documents(report):
        if label:
            output.screen.line(Span(f"accounts: {label}", "bold"))
        _report(output, document)
    for entry in report.get("whatif", ()):
        _whatif(output, entry)


def _whatif(output: Output, entry: dict[str, Any]) -> None:
    """Print who waits longer and who gains."""
    screen = output.screen
    screen.line()
    text = f"what if {entry['accounts']} instead of {entry['against']}, under {entry['policy']}:"
    screen.line(Span(text, "bold"))
    screen.table(_WHATIF, [_change(one) for one in (*entry["by_account"], entry["all"])])
    for words, jobs in (("longer", entry["waits_much_longer"]), ("shorter", entry["waits_much_shorter"])):
        listed = ", ".join(
            f"{one['job']} ({one['account']}) {' -> '.join(seconds(wait) for wait in one['wait_seconds'])}"
            for one in jobs[:3]
        )
        if listed:
            screen.line(f"waits much {words}: {listed}")


def _change(one: dict[str, Any]) -> tuple[str, ...]:
    gain = one["charged_gain_gpu_hours"]["mean"]
    return (
        one.get("account", "all"),
        " -> ".join(percent(part, 1) for part in one.get("share", ())),
        number(one["jobs"], 0),
        " -> ".join(number(hours, 0) for hours in one["charged_gpu_hours"]),
        "-" if gain is None else f"{gain:+,.0f}",
        " -> ".join(seconds(wait) for wait in one["wait_seconds"]["p50"]),
        number(one["longer"], 0),
        number(one["shorter"], 0),
        number(one["same"], 0),
    )


_WHATIF: Final = (
    Column("ACCOUNT"),
    Column("SHARE", right=True),
    Column("JOBS", right=True),
    Column("CHARGED GPU-H", right=True),
    Column("GAIN", right=True),
    Column("WAIT P50", right=True),
    Column("LONGER", right=True),
    Column("SHORTER", right=True),
    Column("SAME", right=True),
)


def _report(output: Output, report: dict[str, Any]) -> None:
    """Print the report of one budget."""
    trace, fleet, screen = report["trace"], report["fleet"], output.screen
    demand = trace["demand_over_supply"]
    asked = "all submitted at once" if demand is None else f"{demand:.1f}x demand"
    screen.line(
        f"{trace['jobs']} jobs over {trace['days']:.1f} days on {fleet['gpus']} GPUs in {fleet['nodes']} "
        f"node(s), {asked}; contracts {report['contract']}, "
        f"{len(report['seeds'])} seed(s)"
    )
    for text in _warnings(report):
        screen.line(Span(text, "yellow"))
    for fault in trace["faults"]:
        screen.line(f"  {fault}")
    screen.table(_COLUMNS, [_row(entry) for entry in report["policies"]])
    screen.line(
        Span(
            "PERIOD, DAY, HOUR: delivered over owed, capped so. OCCUPANCY, USEFUL: while contended. "
            "More with --json.",
            "dim",
        )
    )
    for entry in report["policies"]:
        if entry["start_interval"] is not None:
            screen.line(f"{entry['policy']}: {_foretold(entry['start_interval'])}")
        if "reclaim" in entry:
            found = entry["reclaim"]
            got, least = (percent(found[key], 1) for key in ("delivered_over_entitlement", "others_minimum"))
            screen.line(
                f"{entry['policy']}: the idle account got {got} of its week; no other held less than {least} "
                "of its share in any hour"
            )


def _warnings(report: dict[str, Any]) -> Iterator[str]:
    """Yield what a reader must know before believing the figures."""
    trace = report["trace"]
    yield from (f"note: {note}" for note in trace["notes"])
    if trace["declared_above_cap"]:
        yield f"{trace['declared_above_cap']} jobs declare more than the cap on minimum runtimes; it was cut"
    if report["unclaimed"]:
        listed = ", ".join(f"{name} ({count} jobs)" for name, count in report["unclaimed"].items())
        yield f"no account claims: {listed}; they were run unfunded"
    if report["overlay"] != "none" and not report["policies"][0]["wait_seconds"]["overlay"]["n"]:
        yield "no gang of the overlay was submitted in the window; the fleet or the trace is too small for it"
    for entry in report["policies"]:
        name, left = entry["policy"], entry["never_started"]
        if left and "reclaim" not in entry:
            yield f"{name}: {left:g} jobs never started; too large, or of a model that the fleet lacks?"
        if entry["refused"]:
            yield f"{name}: the state refused {len(entry['refused'])} events: {entry['refused'][0]}"
    if trace["skipped"]:
        yield f"{trace['skipped']} malformed row{'s were' if trace['skipped'] > 1 else ' was'} left out:"


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    owed, waits = entry["delivered_over_owed"], entry["wait_seconds"]
    return (
        entry["policy"],
        number(owed["period"], 3),
        number(owed["day"], 3),
        number(owed["hour"], 3),
        number(entry["worst_account"]["period"], 3),
        "{}/{}".format(*entry["accounts_at_95"]),
        number(entry["occupancy_while_contended"], 3),
        number(entry["useful_occupancy_while_contended"], 3),
        seconds(waits["all"]["p50"]),
        seconds(waits["all"]["p90"]),
        seconds(waits["debug"]["p90"]),
        seconds(waits["ge_32gpu"]["p90"]),
        number(entry["preemptions"], 0),
        percent(entry["lost_fraction"], 2),
        number(entry["wall_seconds"], 1),
    )


def _foretold(found: dict[str, Any]) -> str:
    width, plain = found["median_width_seconds"], found["mean_wait"]["width_at_same_coverage_seconds"]
    return (
        f"of {found['n']:g} starts foretold {percent(found['coverage'], 1)} came by their p90; median width "
        f"{seconds(width)}, against {seconds(plain)} that submission + mean wait needs to hold as often"
    )
