"""A statement as a page for whoever answers for a budget: one file, no scripts, light and dark, printable."""

from __future__ import annotations

import time
from html import escape
from typing import Any, Final

from divvy.cli.statement_chart import chart, legend, meter

_STYLE: Final = """
:root{--paper:#fbfaf7;--ink:#1c1b19;--soft:#6b675f;--line:#e2ded5;--card:#fff;--owed:#b4541a;--got:#2f6f8f;
--free:#b9c4c2;--good:#2e7d4f;--warn:#9a6700;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--paper:#16171a;--ink:#ece9e2;--soft:#a09b90;--line:#33353a;
--card:#1e2024;--owed:#f0a06a;--got:#7cc0de;--free:#4a5556;--good:#7fd1a0;--warn:#e0b04c;--bad:#f28b82}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:66rem;padding:2.5rem 1.25rem 4rem;background:var(--paper);color:var(--ink);
font:16px/1.55 Georgia,"Iowan Old Style",Cambria,serif}
h1{font-size:2rem;line-height:1.15;margin:0 0 .25rem}h2{font-size:1.3rem;margin:2.5rem 0 .5rem}
.when,.fine,caption,th,legend,.key{color:var(--soft);font-family:system-ui,sans-serif;font-size:.82rem}
.lead{font-size:1.15rem;max-width:46rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.75rem;margin:1.5rem 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.75rem .9rem}
.tile b{display:block;font-size:1.5rem;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-family:system-ui,sans-serif;font-size:.86rem;
font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.35rem .5rem;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}
tr.inner td{font-weight:600}
tfoot td{border-top:2px solid var(--ink);font-weight:600}
.good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad)}
svg{display:block;width:100%;height:auto;margin:.5rem 0}
svg text{fill:var(--soft);font:11px system-ui,sans-serif}
.grid{stroke:var(--line);stroke-width:1}.got{fill:var(--got)}.free{fill:var(--free)}
.due{fill:none;stroke:var(--owed);stroke-width:1.8}
.key span{display:inline-block;width:.85rem;height:.85rem;border-radius:.15rem;margin:0 .3rem 0 1rem;
vertical-align:-.1rem}.key span:first-child{margin-left:0}
details{margin:.75rem 0}summary{cursor:pointer;font-family:system-ui,sans-serif;font-size:.9rem}
.note{border-left:3px solid var(--warn);padding:.1rem .9rem;margin:1rem 0}
@media print{details{display:none}body{padding:0;max-width:none}}
"""

_NONE: Final = "&#8211;"
_COLUMNS: Final = (
    ("Account", ""),
    ("Share", "Part of the whole fleet"),
    ("Asked for", "Demand: what ran and what waited, charged jobs only"),
    ("Owed", "min(share x capacity, demand), hour by hour"),
    ("Delivered", "Useful charged time"),
    ("Delivered / owed", "Counted up to what was owed, over the period"),
    ("By the hour", "The same, counted up to what was owed in every single hour"),
    ("Carried", "Owed and not delivered; negative: more than owed"),
    ("Protected", "Inside a minimum runtime"),
    ("Unallocated", "Free of charge, on devices nobody claimed"),
    ("Lost", "Work known to be gone"),
    ("Adjusted", "Refunds and prices"),
    ("Declared used", "How much of the declared minimum runtimes was really used"),
)
#: Figures of an hour, in the order of the columns; GPU-hours, except the share (0 to 1 of the fleet).
FIGURES: Final = (
    "share",
    "capacity",
    "demand",
    "owed",
    "delivered",
    "carried",
    "unallocated",
    "protected",
    "lost",
    "adjustments",
)


def page(statement: dict[str, Any], *, unix: bool) -> str:
    """Return a statement with its hours as one HTML file.

    Args:
        statement: With its hours.
        unix: Whether times are Unix seconds; otherwise they count from the first submission of a replay.
    """
    scope = statement["account"] or "all accounts"
    rows = statement["rows"]
    parts = [
        f"<h1>GPU time of {escape(scope)}</h1>",
        f'<p class="when">{_period(statement["from_at"], statement["to_at"], unix=unix)}</p>',
        f'<p class="lead">{_lead(statement)}</p>',
        _tiles(statement["totals"]),
        *(f'<p class="note">{escape(note)}</p>' for note in statement["notes"]),
        "<h2>Owed and delivered, hour by hour</h2>",
        legend(),
        *_charts(rows, unix=unix),
        "<h2>Account by account</h2>",
        _table(rows, statement["totals"]),
        _adjustments(rows, unix=unix),
        "<h2>How to read this</h2>",
        _READING,
        "<h2>Every hour</h2>",
        *(_hours(row, unix=unix) for row in rows),
    ]
    title = f"GPU time of {escape(scope)}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{title}</title><style>{_STYLE}</style></head>'
        f"<body>\n{chr(10).join(parts)}\n</body></html>\n"
    )


def _period(start: float, end: float, *, unix: bool) -> str:
    days = (end - start) / 86_400
    return f"{_when(start, unix=unix)} to {_when(end, unix=unix)}, {days:.1f} days"


def _lead(statement: dict[str, Any]) -> str:
    """Return the statement in two sentences."""
    totals = statement["totals"]
    ratio = totals["delivered_over_owed"]
    if ratio is None:
        return "Nothing was owed in this period: nobody asked for charged time, or there was no capacity."
    leaves = [row for row in statement["rows"] if row["leaf"] and row["delivered_over_owed"] is not None]
    served = sum(row["delivered_over_owed"] >= 0.95 for row in leaves)
    worst = min(leaves, key=lambda row: row["delivered_over_owed"])
    text = (
        f"Of {totals['owed_gpu_hours']:,.0f} GPU-hours that were owed, <b>{ratio:.1%}</b> were delivered; "
        f"{served} of {len(leaves)} accounts with demand got at least 95%."
    )
    if worst["delivered_over_owed"] < 0.95:
        text += f" {escape(worst['account'])} got least: {worst['delivered_over_owed']:.1%}."
    return text


def _tiles(totals: dict[str, Any]) -> str:
    tiles = (
        ("Capacity", totals["capacity_gpu_hours"]),
        ("Asked for", totals["demand_gpu_hours"]),
        ("Owed", totals["owed_gpu_hours"]),
        ("Delivered", totals["delivered_gpu_hours"]),
        ("Unallocated, free", totals["unallocated_gpu_hours"]),
        ("Known to be lost", totals["lost_gpu_hours"]),
    )
    listed = "".join(
        f'<div class="tile"><span class="key">{name}</span><b>{_figure(value)}</b>'
        '<span class="fine">GPU-hours</span></div>'
        for name, value in tiles
    )
    return f'<div class="tiles">{listed}</div>'


def _charts(rows: list[dict[str, Any]], *, unix: bool) -> list[str]:
    """Return a chart per account with demand, the largest owed first; many of them are folded away."""
    shown = sorted(
        (row for row in rows if row["leaf"] and row["hours"] and (row["owed_gpu_hours"] or _got(row))),
        key=lambda row: -row["owed_gpu_hours"],
    )
    made = [chart(row, unix=unix) for row in shown]
    if len(made) <= 6:
        return made
    rest = "".join(made[6:])
    return [*made[:6], f"<details><summary>{len(made) - 6} more accounts</summary>{rest}</details>"]


def _got(row: dict[str, Any]) -> float:
    return float(row["delivered_gpu_hours"] + row["unallocated_gpu_hours"])


def _table(rows: list[dict[str, Any]], totals: dict[str, Any]) -> str:
    head = "".join(f'<th scope="col" title="{escape(tip)}">{escape(name)}</th>' for name, tip in _COLUMNS)
    body = "".join(_account(row) for row in rows)
    sums = _cells({**totals, "account": "Together", "share": None, "declared_gpu_hours": 0}, meter_of=None)
    return (
        '<div class="scroll"><table><caption>GPU-hours. An account above others shows the sums of its '
        f"children.</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        f"<tfoot><tr>{sums}</tr></tfoot></table></div>"
    )


def _account(row: dict[str, Any]) -> str:
    kind = "leaf" if row["leaf"] else "inner"
    return f'<tr class="{kind}">{_cells(row, meter_of=row["delivered_over_owed"])}</tr>'


def _cells(row: dict[str, Any], *, meter_of: float | None) -> str:
    depth = row["account"].count(".")
    name = escape(row["account"].rpartition(".")[2])
    declared = row["declared_gpu_hours"]
    cells = (
        f'<td style="padding-left:{0.5 + depth * 1.1:.1f}rem" title="{escape(row["account"])}">{name}</td>',
        f"<td>{_percent(row['share'])}</td>",
        *(f"<td>{_figure(row[f'{key}_gpu_hours'])}</td>" for key in ("demand", "owed", "delivered")),
        f"<td>{_judged(row['delivered_over_owed'])}{meter(meter_of)}</td>",
        f"<td>{_judged(row['delivered_over_owed_hourly'])}</td>",
        *(
            f"<td>{_figure(row[f'{key}_gpu_hours'])}</td>"
            for key in ("carried", "protected", "unallocated", "lost", "adjustments")
        ),
        f"<td>{_percent(row['declared_used_gpu_hours'] / declared) if declared else _NONE}</td>",
    )
    return "".join(cells)


def _judged(ratio: float | None) -> str:
    if ratio is None:
        return _NONE
    mood = "good" if ratio >= 0.95 else "warn" if ratio >= 0.9 else "bad"
    return f'<span class="{mood}">{ratio:.1%}</span>'


def _adjustments(rows: list[dict[str, Any]], *, unix: bool) -> str:
    entries = [(row["account"], entry) for row in rows if row["leaf"] for entry in row["entries"]]
    if not entries:
        return ""
    lines = "".join(
        f"<tr><td>{escape(account)}</td><td>{_when(entry['at'], unix=unix)}</td>"
        f"<td>{entry['gpu_hours']:+,.2f}</td><td>{escape(entry['cause'])}</td>"
        f"<td>{entry['id'] or _NONE}</td></tr>"
        for account, entry in entries
    )
    return (
        "<h2>Adjustments</h2><div class='scroll'><table><thead><tr><th>Account</th><th>When</th>"
        f"<th>GPU-hours</th><th>Cause</th><th>Ledger</th></tr></thead><tbody>{lines}</tbody></table></div>"
    )


_READING: Final = """\
<p>An account is <b>owed</b> its share of what there was, hour by hour, but never more than it asked for: time
that nobody asked for is lent to others and is not owed later. <b>Delivered</b> is useful charged time; work
known to be lost does not count. An hour in which an account got more than it was owed does not make up for
another in the column <b>by the hour</b>; over the period it does. <b>Carried</b> is what is owed and was not
delivered; the scheduler gives it back as the window allows. <b>Unallocated</b> time is free: it keeps the
fleet full and may be taken at any moment. <b>Declared used</b> says how much of the minimum runtimes people
declared they really used: far less than 100% means that devices were protected for longer than needed.</p>
<p class="fine">Every figure is made of ledger entries; the last column of the hours names the first and the
last of them. <code>divvy statement --trace --json</code> gives all of them.</p>"""


def _hours(row: dict[str, Any], *, unix: bool) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("hour", *FIGURES, "ledger"))
    lines = "".join(
        f"<tr><td>{_when(hour['at'], unix=unix)}</td><td>{_percent(hour['share'])}</td>"
        + "".join(f"<td>{_figure(hour[name])}</td>" for name in FIGURES[1:])
        + f"<td>{_entries(hour['ledger'])}</td></tr>"
        for hour in row["hours"] or ()
    )
    return (
        f"<details><summary>{escape(row['account'])}</summary><div class='scroll'><table>"
        f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div></details>"
    )


def _entries(ledger: dict[str, Any]) -> str:
    if not ledger["count"]:
        return _NONE
    first, last = ledger["first"], ledger["last"]
    return str(first) if first == last else f"{first} to {last} ({ledger['count']})"


def _figure(value: float) -> str:
    if not value:
        return "0"
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.0f}"


def _percent(part: float | None) -> str:
    return _NONE if part is None else f"{part:.1%}"


def _when(at: float, *, unix: bool) -> str:
    if not unix:
        return f"day {at / 86_400:.2f}"
    return time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(at))
