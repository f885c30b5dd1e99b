"""Options that all verbs share, so that each reads and behaves the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from divvy.cli.client import Client, find_target

_COMPLETION_SECONDS = 0.5

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON (docs/reference/schemas).")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print ids only, one on each line.")]
NoTruncate = Annotated[bool, typer.Option("--no-truncate", help="Ignore the width of the terminal.")]
Server = Annotated[
    str,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="DIVVY_SERVER",
        help="http(s)://HOST:PORT (with DIVVY_TOKEN) or unix:PATH; else the socket of this machine.",
    ),
]


def group(text: str) -> typer.Typer:
    """Return a verb that has verbs of its own, with the manners of all others."""
    return typer.Typer(
        help=text,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def connect(server: str) -> Client:
    """Return a client of the server that the options and the environment name."""
    return Client(find_target(server))


def _complete(collect: Callable[[Client], list[str]], incomplete: str) -> list[str]:
    """Return what begins so; nothing where the server does not answer at once: a shell must not hang."""
    try:
        names = collect(Client(find_target(), timeout=_COMPLETION_SECONDS))
    except Exception:  # noqa: BLE001 - a traceback between two keystrokes helps nobody
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_account(incomplete: str) -> list[str]:
    """Return the accounts that can be charged."""

    def collect(client: Client) -> list[str]:
        return [account["path"] for account in client.get("budget")["accounts"] if account["leaf"]]

    return _complete(collect, incomplete)


def complete_any_account(incomplete: str) -> list[str]:
    """Return all accounts."""
    return _complete(lambda client: [a["path"] for a in client.get("budget")["accounts"]], incomplete)


def complete_job(incomplete: str) -> list[str]:
    """Return the newest jobs."""
    return _complete(lambda client: [job["id"] for job in client.get("jobs", limit=200)["jobs"]], incomplete)


def complete_node(incomplete: str) -> list[str]:
    """Return the nodes."""
    return _complete(lambda client: [node["name"] for node in client.get("status")["nodes"]], incomplete)
