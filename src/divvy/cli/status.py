"""divvy status: the fleet on one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Final

import typer

from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, complete_job, connect
from divvy.cli.render import (
    NONE,
    Column,
    Output,
    Span,
    age,
    clock,
    gauge,
    many,
    number,
    path,
    percent,
    seconds,
    state,
    whole,
)

ONE_SCREEN: Final = 24
_LETTERS: Final = {
    "protected": ("P", "blue"),
    "interruptible": ("I", "cyan"),
    "unallocated": ("u", "magenta"),
    "stopping": ("s", "yellow"),
    "draining": ("d", "yellow"),
    "free": ("·", "dim"),
    "down": ("x", "red"),
}
_LEGEND: Final = "P protected  I interruptible  u unallocated  · free  s stopping  d draining  x down"
_NODES: Final = (
    Column("Node"),
    Column("Model", shrink=6, drop=2),
    Column("State"),
    Column("Free", right=True),
    Column("Busy", right=True, drop=3),
    Column("Devices", shrink=8),
    Column("Note", shrink=10, drop=1),
)
_GROUPS: Final = (
    Column("Model"),
    Column("State"),
    Column("Nodes", right=True),
    Column("Devices", right=True),
    Column("Free", right=True),
    Column("Whole nodes free", right=True, drop=1),
)
_ACCOUNTS: Final = (
    Column("Account"),
    Column("Of fleet", right=True, drop=5),
    Column("Balance", right=True),
    Column("Rank", right=True, drop=4),
    Column("Held", right=True, drop=6),
    Column("Floor", right=True, drop=1),
    Column("Unallocated", right=True, drop=2),
    Column("Waiting jobs", right=True),
    Column("For devices", right=True, drop=3),
)


def verb(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JOB]...", help="Show these jobs instead.", autocompletion=complete_job),
    ] = None,
    all_nodes: Annotated[bool, typer.Option("--nodes", help="List every node of a large fleet.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """Show the fleet on one screen: devices, nodes, accounts; or one or more jobs in full.

    With -q: the names of the nodes, or the ids of the jobs.
    """
    client = connect(server)
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if jobs:
        for name in jobs:
            job = client.get("jobs", name)
            if not output.machine(job, [job["id"]]):
                _say_job(output, job)
        return
    status = client.get("status")
    if output.machine(status, [node["name"] for node in status["nodes"]]):
        return
    _say_totals(output, status)
    _say_nodes(output, status["nodes"], all_nodes=all_nodes)
    _say_accounts(output, status["accounts"])
    output.screen.line(age(status))


def _say_totals(output: Output, status: dict[str, Any]) -> None:
    totals, screen = status["totals"], output.screen
    funded = sum(account["waiting"] for account in status["accounts"] if account["leaf"])
    rest = totals["queued"] - funded
    screen.line(
        Span(f"{totals['gpus']} devices", "bold"),
        f": {totals['allocated']} allocated, {totals['unallocated']} unallocated, {totals['free']} free; "
        f"{totals['running']} jobs run, {totals['queued']} wait"
        + (f" ({rest} of them unallocated: in no account's column)" if rest > 0 else ""),
    )
    if screen.terminal:
        width = min((screen.width or 80) - 2, 78)
        parts = ((totals["allocated"], "█", "blue"), (totals["unallocated"], "▒", "magenta"))
        screen.line(*gauge((*parts, (totals["free"], "·", "dim")), width))
    blocks = [node["free"] for node in status["nodes"] if node["state"] == "up"]
    empty = sum(node["free"] == node["gpus"] > 0 for node in status["nodes"] if node["state"] == "up")
    screen.line(
        f"largest free block on one node {max(blocks, default=0)}; "
        f"whole nodes free {empty} of {len(blocks)}; policy {status['policy']}"
    )


def _say_nodes(output: Output, nodes: list[dict[str, Any]], *, all_nodes: bool) -> None:
    screen = output.screen
    screen.line()
    if not nodes:
        screen.line("No node yet: the engine has not reported one. `divvy up` offers this machine.")
        return
    if all_nodes or len(nodes) <= ONE_SCREEN:
        screen.table(_NODES, [_node_row(node) for node in nodes])
        screen.line(Span(_LEGEND, "dim"))
        return
    groups = Counter((node["model"], node["state"]) for node in nodes)
    rows = []
    for (model, health), count in sorted(groups.items()):
        members = [node for node in nodes if (node["model"], node["state"]) == (model, health)]
        rows.append(
            (
                model,
                state(health),
                str(count),
                str(sum(node["gpus"] for node in members)),
                str(sum(node["free"] for node in members)),
                str(sum(node["free"] == node["gpus"] > 0 for node in members)),
            )
        )
    screen.table(_GROUPS, rows)
    out = [node for node in nodes if node["state"] != "up"]
    if out:
        screen.table(_NODES, [_node_row(node) for node in out[:ONE_SCREEN]])
    screen.line(Span(f"{len(nodes)} nodes in groups; every node with --nodes", "dim"))


def _node_row(node: dict[str, Any]) -> tuple[Any, ...]:
    devices = tuple(Span(*_LETTERS.get(device["state"], ("?", ""))) for device in node["devices"])
    busy, note = _busy(node["devices"])
    return (
        Span(node["name"], "bold"),
        node["model"],
        state(node["state"]),
        f"{node['free']}/{node['gpus']}",
        busy,
        devices,
        node["cause"] or _maintenance(node) or note,
    )


def _maintenance(node: dict[str, Any]) -> str:
    """Return the maintenance that is announced for a node, empty where there is none."""
    window = node["maintenance"]
    if window is None:
        return ""
    until = f" until {clock(window['until_at'])}" if window["until_at"] is not None else ""
    return f"from {clock(window['from_at'])}{until}: {window['cause']}"


def _busy(devices: Iterable[dict[str, Any]]) -> tuple[str, str]:
    """Return the mean utilisation of a node's devices, or ``n/a`` and the reason why it is not known."""
    listed = list(devices)
    known = [device["utilisation"] for device in listed if device["utilisation"] is not None]
    if known:
        return percent(sum(known) / len(known)), ""
    reasons = {device["utilisation_reason"] for device in listed if device["utilisation_reason"]}
    return "n/a", "; ".join(sorted(reasons))


def _say_accounts(output: Output, accounts: list[dict[str, Any]]) -> None:
    screen = output.screen
    screen.line()
    screen.table(
        _ACCOUNTS,
        [
            (
                path(account["path"]),
                percent(account["effective_share"], 1),
                number(account["balance"], 3),
                NONE if account["rank"] is None else str(account["rank"] + 1),
                str(account["held"]),
                whole(account["floor"]),
                str(account["unallocated"]),
                str(account["waiting"]),
                str(account["waiting_gpus"]),
            )
            for account in accounts
        ],
    )
    screen.line(Span("balance: used over owed in the window, 1 is exactly served; lowest goes first", "dim"))


def _say_job(output: Output, job: dict[str, Any]) -> None:
    screen = output.screen
    title = f" {job['name']}" if job["name"] else ""
    screen.line(Span(job["id"], "bold"), title, "  ", state(job["state"]), "  ", *age(job))
    contract = f"protected for {seconds(job['min_runtime_seconds'])}" if job["allocated"] else "unallocated"
    after = "resumable" if job["resumable"] else "starts again from zero" if job["restart"] else "ends"
    where = ", ".join(f"{place['node']}:{place['gpus']}" for place in job["placement"])
    rows = [
        ("account", job["account"]),
        ("author", job["author"]),
        ("devices", f"{job['gpus']} {job['model']}".strip() + (f" on {where}" if where else "")),
        ("contract", f"{contract}; when preempted: {after}"),
        ("priority", f"{job['priority']}" + (", favoured as a debug job" if job["debug"] else "")),
        ("submitted", clock(job["submitted_at"])),
        (
            "started",
            f"{clock(job['started_at'])}, attempt {job['attempt']}, {many(job['preemptions'], 'preemption')}",
        ),
        ("protected until", clock(job["protected_until_at"])),
        ("ran for", seconds(job["running_seconds"])),
        ("ended", clock(job["ended_at"]) + (f", {job['cause']}" if job["cause"] else "")),
        ("note", job["note"] or NONE),
        ("exit code", NONE if job["exit_code"] is None else str(job["exit_code"])),
        ("command", "not shown to you" if job["argv"] is None else " ".join(job["argv"])),
        ("directory", job["cwd"] or NONE),
    ]
    for title, text in rows:
        if text != NONE:
            screen.line(Span(f"  {title:<16}", "dim"), text)
