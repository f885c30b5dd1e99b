"""divvy budget: the account tree, its shares and their history; owners change shares here."""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from divvy.cli.client import Client
from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, complete_any_account, connect, group
from divvy.cli.render import NONE, Column, Output, Span, age, number, path, percent, stamp, whole
from divvy.errors import InputError
from divvy.units import parse_decimal

verb = group("Show and change the account tree and its shares.")

_COLUMNS: Final = (
    Column("Account"),
    Column("Share", right=True),
    Column("Of fleet", right=True, drop=6),
    Column("Balance", right=True),
    Column("Rank", right=True),
    Column("Used", right=True, drop=7),
    Column("Owed", right=True, drop=8),
    Column("Held", right=True, drop=5),
    Column("Floor", right=True, drop=4),
    Column("Unallocated", right=True, drop=3),
    Column("Waiting", right=True, drop=2),
    Column("Owners", shrink=6, drop=1),
)
_HISTORY: Final = (
    Column("Version", right=True),
    Column("When"),
    Column("Author", shrink=8),
    Column("Change"),
    Column("Reason", shrink=12),
)
REASON_WIDTH: Final = 24

Reason = Annotated[str, typer.Option("--reason", "-r", help="Why; kept with the change.")]
Version = Annotated[
    int | None,
    typer.Option("--version", min=0, help="Refuse if the budget is no longer at this version."),
]


@verb.command("show")
def show(
    as_json: AsJson = False, quiet: Quiet = False, no_truncate: NoTruncate = False, server: Server = ""
) -> None:
    """Show the tree with what each account may use and has used. With -q: the accounts.

    Used and owed are GPU-hours within the window. Balance is used over owed: the number that the queue is
    sorted by, lowest first.
    """
    budget = connect(server).get("budget")
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if output.machine(budget, [account["path"] for account in budget["accounts"]]):
        return
    policy = budget["document"].get("policy", {})
    output.screen.line(
        Span(f"budget version {budget['version']}", "bold"),
        f": window {policy.get('lookback', NONE)}, floor {policy.get('floor', NONE)}, "
        f"longest minimum runtime {policy.get('max_min_runtime', NONE)}",
    )
    output.screen.table(_COLUMNS, [_account_row(account) for account in budget["accounts"]])
    output.screen.line(age(budget))


def _account_row(account: dict[str, Any]) -> tuple[Any, ...]:
    return (
        path(account["path"]),
        f"{account['share']:g}%",
        percent(account["effective_share"], 1),
        Span(number(account["balance"], 3), "bold"),
        NONE if account["rank"] is None else str(account["rank"] + 1),
        number(account["usage_gpu_hours"]),
        number(account["entitlement_gpu_hours"]),
        str(account["held"]),
        whole(account["floor"]),
        str(account["unallocated"]),
        str(account["waiting"]),
        ", ".join(account["owners"]) or NONE,
    )


class _Signed(TyperCommand):
    """A command to which ``-5`` is a number, to be refused as one, and no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put negative numbers behind ``--``, where nothing is taken for an option."""
        negative = [arg for arg in args if re.fullmatch(r"-[\d.]+%?", arg)]
        rest = [arg for arg in args if arg not in negative]
        return super().parse_args(ctx, [*rest, "--", *negative] if negative and "--" not in rest else args)


@verb.command("set", cls=_Signed)
def set_share(
    account: Annotated[
        str,
        typer.Argument(metavar="ACCOUNT|FILE", autocompletion=complete_any_account, help="Or a budget file."),
    ],
    reason: Reason,
    share: Annotated[
        str, typer.Argument(metavar="PERCENT", help="Of the parent's share: 0 to 100; not with a file.")
    ] = "",
    version: Version = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """Set the share of one account, or with a file the whole budget. With -q: the new version.

    Owners of an account set the shares of its children. The change is recorded with its author and reason.
    Example: divvy budget set lab.vision 40 --reason "grant X has started"
    """
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not share:
        _say_changes(output, _replace(_budget_file(account), reason, version, server))
        return
    percentage = _percentage(share)
    client = connect(server)
    body = {"share": percentage, "reason": reason, "version": _version(client, version)}
    _say_changes(output, client.patch("budget", "accounts", account, body=body))


def _percentage(text: str) -> float:
    """Return a share as people write it.

    Raises:
        InputError: If it is none, or one below 0 or above 100.
    """
    try:
        share = float(parse_decimal(text.removesuffix("%")))
    except ValueError:
        share = math.nan
    if 0 <= share <= 100:
        return share
    raise InputError.one(
        "share-type" if math.isnan(share) else "share-range",
        f"{text!r} is not a percentage" if math.isnan(share) else f"{text} is no share of anything",
        path="PERCENT",
        allowed="0 to 100, such as 40 or 33.3",
        fix="correct it",
    )


def _budget_file(name: str) -> Path:
    """Return the file that stands where an account and a percentage could.

    Raises:
        InputError: If there is none of that name.
    """
    path = Path(name)
    if name == "-" or path.is_file():
        return path
    raise InputError.one(
        "share-missing",
        f"no percentage for {name!r}, and no file of that name",
        path="PERCENT",
        allowed="an account and its percentage, or a budget file",
        fix=f'divvy budget set {name} 40 --reason "..."',
    )


def _replace(file: Path, reason: str, version: int | None, server: str) -> dict[str, Any]:
    """Replace the whole budget by a file and return the answer."""
    from divvy.fleet.budget import parse_budget  # noqa: PLC0415 - two verbs of five need the whole model

    stdin = str(file) == "-"
    try:
        text = sys.stdin.read() if stdin else file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError.one(
            "budget-unreadable", f"cannot read {file} ({error})", path="FILE", fix="name a TOML file"
        ) from error
    document = parse_budget(text, "stdin" if stdin else file.name).to_document()
    client = connect(server)
    body = {"document": document, "reason": reason, "version": _version(client, version)}
    return client.put("budget", body=body)


@verb.command("apply")
def apply(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, allow_dash=True, help="TOML; - is stdin.")
    ],
    reason: Reason,
    version: Version = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """Replace the whole budget by a file; all its faults are reported at once. With -q: the new version."""
    answer = _replace(file, reason, version, server)
    _say_changes(Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate), answer)


def _version(client: Client, asked: int | None) -> int:
    """Return the version that a change is based on: the one asked for, else the present one."""
    return int(client.get("budget")["version"]) if asked is None else asked


def _say_changes(output: Output, answer: dict[str, Any]) -> None:
    if output.machine(answer, [answer["version"]]):
        return
    done = "is stored; the scheduler has not taken it up yet" if answer["pending"] else "is in force"
    output.screen.line(Span(f"budget version {answer['version']}", "bold"), f" {done}")
    for change in answer["changes"]:
        output.screen.line("  ", _change(change))
    if not answer["changes"]:
        output.screen.line("  nothing differs from the version before it")


def _change(change: dict[str, Any]) -> str:
    before, after = change["from"], change["to"]
    name, unit = change["path"], ""
    if name.startswith("accounts.") and name.endswith(".share"):
        name, unit = name.removeprefix("accounts.").removesuffix(".share"), "%"
    if before is None:
        return f"{name}: {after}{unit} (new)"
    if after is None:
        return f"{name}: removed (was {before}{unit})"
    return f"{name}: {before}{unit} -> {after}{unit}"


@verb.command("history")
def history(
    as_json: AsJson = False, quiet: Quiet = False, no_truncate: NoTruncate = False, server: Server = ""
) -> None:
    """List the versions of the budget, newest first: who changed what, when and why."""
    answer = connect(server).get("budget", "history")
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if output.machine(answer, [version["version"] for version in answer["versions"]]):
        return
    narrow = output.screen.width is not None
    output.screen.table(
        _HISTORY, [row for version in answer["versions"] for row in _version_rows(version, narrow=narrow)]
    )


def _version_rows(version: dict[str, Any], *, narrow: bool) -> Iterator[tuple[str, ...]]:
    """Yield the lines of one version: a change each, the reason beside them."""
    changes = [_change(change) for change in version["changes"]] or ["nothing"]
    reason = version["reason"] or NONE
    reasons = textwrap.wrap(reason, REASON_WIDTH) if narrow else [reason]
    first = (str(version["version"]), stamp(version["at"]), version["author"] or NONE)
    for change, text in zip_longest(changes, reasons, fillvalue=""):
        yield (*first, change, text)
        first = ("", "", "")
