"""The report for readers who run no scheduler: who got what, who waits, what was lost; Markdown, HTML."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from divvy.cli.render import number, percent, seconds
from divvy.cli.simulate_files import Files, report_documents, write_bytes

OPTION: Final = "--report"
PICTURES: Final = "pictures"
_CAPTIONS: Final = {
    "gpus": "Who held how many GPUs over time. Grey is unallocated work.",
    "owed": "What every account was owed and what it got; and how much of each day's debt was met.",
    "waits": "How long jobs waited until their first start, by size.",
    "gantt": "Every device for the two liveliest days: who was on it, and what preemptions threw away.",
}
_WAITS: Final = ("Wait, half", "Wait, 9 of 10", "Debug, 9 of 10", "Preempted", "Lost")
_CSS: Final = """
body{font:16px/1.5 system-ui,sans-serif;color:#263238;max-width:1080px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.7rem}h2{margin-top:2.2rem;border-bottom:1px solid #cfd8dc}
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}
th,td{padding:.3rem .7rem;border-bottom:1px solid #eceff1;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{background:#f5f7f8}
img{max-width:100%}figcaption{color:#546e7a;font-size:.9rem}code{background:#f5f7f8;padding:0 .2rem}
"""


class Block(NamedTuple):
    """A piece of the report.

    Attributes:
        kind: ``h1``, ``h2``, ``p``, ``list``, ``table`` or ``picture``.
        text: Heading, paragraph, or caption.
        rows: Items of a list; header and rows of a table.
        place: Path of a picture without its ending, from the report.
        image: The picture as PNG.
    """

    kind: str
    text: str = ""
    rows: tuple[tuple[str, ...], ...] = ()
    place: str = ""
    image: bytes = b""


def write_report(directory: Path, report: Mapping[str, Any], files: Files, command: str) -> None:
    """Write ``report.md``, ``report.html`` and the pictures.

    Args:
        directory: Where; it is made if need be.
        report: The document that ``--json`` prints.
        files: Holds the pictures.
        command: What repeats it.

    Raises:
        InputError: If a file cannot be written.
    """
    for title, drawn in files.pictures.items():
        for name, endings in drawn.items():
            for ending, data in endings.items():
                write_bytes(directory / f"{_place(title, name)}.{ending}", data, OPTION)
    blocks = list(_blocks(dict(report), files, command))
    write_bytes(directory / "report.md", _markdown(blocks).encode(), OPTION)
    write_bytes(directory / "report.html", _html(blocks).encode(), OPTION)


def _place(title: str, name: str) -> str:
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in title.replace(", ", "-"))
    return f"{PICTURES}/{name}-{safe}"


# -- content ----------------------------------------------------------------------------------------------


def _blocks(report: dict[str, Any], files: Files, command: str) -> Iterator[Block]:
    documents = report_documents(report)
    first = documents[0][1]
    trace, fleet = first["trace"], first["fleet"]
    yield Block("h1", f"Who got what: {Path(report['name']).name} on {fleet['gpus']} GPUs")
    nodes = f"{fleet['nodes']} node{'s' if fleet['nodes'] > 1 else ''}"
    demand = trace["demand_over_supply"]
    asked = (
        "all were submitted at once"
        if demand is None
        else f"together they ask for {demand:.1f} times what the fleet has"
    )
    text = (
        f"{trace['jobs']:,} jobs of {len(first['shares'])} accounts over {trace['days']:.0f} days were "
        f"replayed on {fleet['gpus']} GPUs in {nodes}; {asked}. Contracts: {first['contract']}; "
        f"{len(first['seeds'])} draw(s) of what users would have declared. The first "
        f"{seconds(first['warmup_seconds'])} count for nothing."
    )
    yield Block("p", text)
    for label, document in documents:
        yield from _in_short(document, label)
    for label, document in documents:
        yield from _policies(document, label)
        yield from _accounts(document["policies"][0], label)
    for entry in report.get("whatif", ()):
        yield from _changes(entry)
    for title, drawn in files.pictures.items():
        yield Block("h2", f"Pictures: {title}")
        for name, endings in drawn.items():
            yield Block("picture", _CAPTIONS[name], (), _place(title, name), endings["png"])
    yield from _caveats(first, command)


def _in_short(document: dict[str, Any], label: str) -> Iterator[Block]:
    entry = document["policies"][0]
    owed, worst, waits = entry["delivered_over_owed"], entry["worst_account"], entry["wait_seconds"]
    served, judged = entry["accounts_at_95"]
    least = f"; the least served, {worst['account']}, got {percent(worst['period'], 1)}" if judged else ""
    debug, lost = waits["debug"], number(entry["lost_gpu_hours"], 0)
    items = [
        (
            f"Accounts got {percent(owed['period'], 1)} of what they were owed over the whole time, "
            f"{percent(owed['hour'], 1)} if every hour is judged alone. An account is owed its share, or "
            f"what it asks for if that is less."
        ),
        f"{served:g} of {judged:g} accounts that were owed 100 GPU-hours or more got at least 95%{least}.",
        (
            f"While more was asked for than there is, {percent(entry['occupancy_while_contended'], 1)} of "
            f"the GPUs were occupied; {percent(entry['lost_fraction'], 1)} of the occupied time ({lost} "
            f"GPU-hours) was lost to preemptions."
        ),
        (
            f"Half of all jobs started within {seconds(waits['all']['p50'])}, nine of ten within "
            f"{seconds(waits['all']['p90'])}; of the jobs declared as debug jobs within "
            f"{seconds(debug['p50'])} and {seconds(debug['p90'])}."
        ),
        (
            f"{percent(entry['unallocated_share'], 1)} of the useful time was work that declared no minimum "
            f"runtime: unallocated, which budgets do not charge and take back first."
        ),
    ]
    for other in document["policies"][1:]:
        gap = (other["delivered_over_owed"]["hour"] or 0) - (owed["hour"] or 0)
        items.append(
            f"Under {other['policy']} accounts would have got {100 * abs(gap):.1f} points "
            f"{'more' if gap > 0 else 'less'} of what they were owed, hour by hour."
        )
    yield Block("h2", f"In short: {entry['policy']}{f', {label}' if label else ''}")
    yield Block("list", rows=tuple((item,) for item in items))


def _policies(document: dict[str, Any], label: str) -> Iterator[Block]:
    head = (
        "Policy",
        "Period",
        "Day",
        "Hour",
        "Worst account",
        "At 95%",
        "Occupied",
        "Useful",
        *_WAITS,
        "Rule",
    )
    rows = [
        (
            entry["policy"],
            *(percent(entry["delivered_over_owed"][key], 1) for key in ("period", "day", "hour")),
            percent(entry["worst_account"]["period"], 1),
            "{:g} of {:g}".format(*entry["accounts_at_95"]),
            percent(entry["occupancy_while_contended"], 1),
            percent(entry["useful_occupancy_while_contended"], 1),
            seconds(entry["wait_seconds"]["all"]["p50"]),
            seconds(entry["wait_seconds"]["all"]["p90"]),
            seconds(entry["wait_seconds"]["debug"]["p90"]),
            number(entry["preemptions"], 0),
            percent(entry["lost_fraction"], 1),
            entry["documented"]["label"] or "our own",
        )
        for entry in document["policies"]
    ]
    yield Block("h2", f"Policies side by side{f': {label}' if label else ''}")
    yield Block("table", rows=(head, *rows))
    text = (
        "Period, day, hour: delivered over owed, where what is above the debt of a period, a day, an hour "
        "does not make up for what is missing in another. Useful leaves out lost and repeated work."
    )
    yield Block("p", text)


def _accounts(entry: dict[str, Any], label: str) -> Iterator[Block]:
    head = (
        "Account",
        "Share",
        "Owed, GPU-h",
        "Delivered, GPU-h",
        "Of its debt",
        "Hour by hour",
        "Unallocated",
    )
    rows = [
        (
            one["account"],
            percent(one["share"], 1),
            number(one["owed_gpu_hours"], 0),
            number(one["delivered_gpu_hours"], 0),
            percent(one["delivered_over_owed"]["period"], 1),
            percent(one["delivered_over_owed"]["hour"], 1),
            number(one["unallocated_gpu_hours"], 0),
        )
        for one in sorted(entry["accounts"], key=lambda one: -(one["owed_gpu_hours"] or 0))
    ]
    yield Block("h2", f"Accounts under {entry['policy']}{f', {label}' if label else ''}")
    yield Block("table", rows=(head, *rows))


def _changes(entry: dict[str, Any]) -> Iterator[Block]:
    """Tell who waits longer and who gains under another budget."""
    head = ("Account", "Share", "Jobs", "Charged GPU-h", "Gain", "Wait, half", "Longer", "Shorter", "Same")
    rows = [
        (
            one["account"],
            " → ".join(percent(part, 1) for part in one["share"]),
            number(one["jobs"], 0),
            " → ".join(number(hours, 0) for hours in one["charged_gpu_hours"]),
            f"{one['charged_gain_gpu_hours']['mean']:+,.0f}",
            " → ".join(seconds(wait) for wait in one["wait_seconds"]["p50"]),
            *(number(one[key], 0) for key in ("longer", "shorter", "same")),
        )
        for one in entry["by_account"]
    ]
    yield Block("h2", f"What if: {entry['against']} → {entry['accounts']}, {entry['policy']}")
    yield Block("table", rows=(head, *rows))
    yield Block(
        "p", "The same jobs under both budgets, compared one by one; waits within a minute count as the same."
    )


def _caveats(first: dict[str, Any], command: str) -> Iterator[Block]:
    trace = first["trace"]
    drawn = (
        "A trace records no contract and no utilisation. What users would have declared was drawn "
        "(docs/explanation/measures.md); how busy a GPU was is not known, so nothing is said about it."
    )
    items = [
        drawn,
        "People react to a scheduler; a replay does not. It shows what a policy does with given submissions.",
        *trace["notes"],
        *([f"{trace['skipped']} malformed rows were left out."] if trace["skipped"] else []),
        *(
            [f"No account claims: {', '.join(first['unclaimed'])}; run unfunded."]
            if first["unclaimed"]
            else []
        ),
    ]
    yield Block("h2", "What this does not say")
    yield Block("list", rows=tuple((item,) for item in items))
    yield Block("h2", "Check it")
    yield Block(
        "p", f"This report was written by `{command}`. With `--events FILE` every figure can be recomputed."
    )


# -- rendering --------------------------------------------------------------------------------------------


def _markdown(blocks: Sequence[Block]) -> str:
    parts: list[str] = []
    for block in blocks:
        if block.kind in ("h1", "h2"):
            parts.append(f"{'#' * int(block.kind[1])} {block.text}")
        elif block.kind == "p":
            parts.append(block.text)
        elif block.kind == "list":
            parts.append("\n".join(f"- {item[0]}" for item in block.rows))
        elif block.kind == "table":
            head, *rows = ([cell.replace("|", "\\|") for cell in row] for row in block.rows)
            lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        else:
            parts.append(f"![{block.text}]({block.place}.png)\n\n{block.text} ([SVG]({block.place}.svg))")
    return "\n\n".join(parts) + "\n"


def _html(blocks: Sequence[Block]) -> str:
    body = "\n".join(map(_element, blocks))
    title = escape(blocks[0].text)
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"\n<style>{_CSS}</style></head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _element(block: Block) -> str:
    if block.kind == "list":
        return "<ul>" + "".join(f"<li>{escape(item[0])}</li>" for item in block.rows) + "</ul>"
    if block.kind == "table":
        head, *rows = (tuple(map(escape, row)) for row in block.rows)
        top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
        lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
        return f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"
    if block.kind == "picture":
        data = base64.b64encode(block.image).decode()
        caption = escape(block.text)
        link = f'<a href="{escape(block.place)}.svg">SVG</a>'
        return (
            f'<figure><img alt="{caption}" src="data:image/png;base64,{data}">'
            f"<figcaption>{caption} {link}</figcaption></figure>"
        )
    text = re.sub("`([^`]+)`", r"<code>\1</code>", escape(block.text))
    return f"<{block.kind}>{text}</{block.kind}>"
