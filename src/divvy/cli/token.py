"""divvy token: make, list and revoke access tokens for the HTTP API."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from divvy.cli.options import AsJson, NoTruncate, Quiet, Server, complete_any_account, connect, group
from divvy.cli.render import NONE, Column, Output, Span, clock

verb = group("Make, list and revoke access tokens for the HTTP API.")

_COLUMNS: Final = (
    Column("Token"),
    Column("User", shrink=8),
    Column("Role"),
    Column("Accounts", shrink=12),
    Column("Label", shrink=8, drop=2),
    Column("Created", drop=3),
    Column("Expires"),
    Column("Last used", drop=1),
)


class Role(StrEnum):
    """What a token permits."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OWNER = "owner"
    ADMIN = "admin"


@verb.command("create")
def create(
    user: Annotated[str, typer.Argument(help="Who the token speaks for.")],
    role: Annotated[Role, typer.Option(help="What it permits.")] = Role.VIEWER,
    account: Annotated[
        list[str] | None,
        typer.Option(
            "--account",
            "-A",
            metavar="ACCOUNT",
            help="Subtree that it may use; may be repeated.",
            autocompletion=complete_any_account,
        ),
    ] = None,
    label: Annotated[str, typer.Option(help="What it is for.")] = "",
    expires_in: Annotated[
        str, typer.Option(metavar="DURATION", help="Such as 90d; without it the token does not expire.")
    ] = "",
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """Make a token; it is shown once. With -q the token alone is printed."""
    body = {"user": user, "role": role.value, "accounts": account or [], "label": label}
    if expires_in:
        body["expires_in"] = expires_in
    answer = connect(server).post("tokens", body=body)
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(answer, [answer["token"]]):
        output.screen.line(Span(answer["token"], "bold"))
        output.screen.line(
            f"token {answer['id']} for {answer['user']} ({answer['role']}); ",
            Span("it is not shown again: keep it in DIVVY_TOKEN", "yellow"),
        )


@verb.command("list")
def list_tokens(
    as_json: AsJson = False, quiet: Quiet = False, no_truncate: NoTruncate = False, server: Server = ""
) -> None:
    """List the tokens, without their secrets."""
    answer = connect(server).get("tokens")
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if output.machine(answer, [token["id"] for token in answer["tokens"]]):
        return
    if not answer["tokens"]:
        output.screen.line("No tokens. Make one with: divvy token create USER --role submitter --account A")
        return
    output.screen.table(
        _COLUMNS,
        [
            (
                token["id"],
                token["user"],
                token["role"],
                ", ".join(token["accounts"]) or NONE,
                token["label"] or NONE,
                clock(token["created_at"]),
                clock(token["expires_at"]) if token["expires_at"] else "never",
                clock(token["last_used_at"]) if token["last_used_at"] else "never",
            )
            for token in answer["tokens"]
        ],
    )


@verb.command("revoke")
def revoke(
    token: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="As `divvy token list` shows it.")],
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """Revoke a token; it stops working at once."""
    answer = connect(server).delete("tokens", token)
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(answer, [answer["id"]]):
        output.screen.line(answer["id"], " is revoked")
