"""divvy page: the address of the web page, with a token that signs you in."""

from __future__ import annotations

import getpass
import json
import webbrowser
from typing import Annotated, Any

import typer

from divvy.cli.client import Client, find_target
from divvy.cli.options import AsJson, NoTruncate, Quiet, Server
from divvy.cli.render import Output, Span, stamp
from divvy.cli.token import Role
from divvy.errors import NotFoundError


def verb(
    role: Annotated[Role, typer.Option(help="What the page may do.")] = Role.ADMIN,
    expires_in: Annotated[str, typer.Option(metavar="DURATION", help="When the link stops working.")] = "12h",
    open_it: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_truncate: NoTruncate = False,
    server: Server = "",
) -> None:
    """Print the address of the web page with a token that signs you in. With -q the address alone.

    Who has the link may do what its role permits, until it expires or `divvy token revoke` ends it.
    """
    client = Client(find_target(server))
    document = page_link(client, role.value, expires_in)
    output = Output(as_json=as_json, quiet=quiet, no_truncate=no_truncate)
    if not output.machine(document, [document["url"]]):
        output.screen.line(Span(document["url"], "bold"))
        until = stamp(document["expires_at"])
        how = f"divvy token revoke {document['token_id']}"
        output.screen.line(Span(f"role {role.value}, works until {until}; end it with: {how}", "dim"))
    if open_it:
        webbrowser.open(document["url"])


def page_link(client: Client, role: str, expires_in: str) -> dict[str, Any]:
    """Make a token for the page and return its link; the token is in the fragment, which no server sees.

    Raises:
        DivvyError: If the caller may not make tokens, or the address of the page is not known.
    """
    address = page_address(client)
    user = getpass.getuser()
    body = {"user": user, "role": role, "accounts": [], "label": "web page", "expires_in": expires_in}
    made = client.post("tokens", body=body)
    return {
        "schema": "divvy.page/1",
        "url": f"{address}/#token={made['token']}",
        "token_id": made["id"],
        "expires_at": made["expires_at"],
    }


def page_address(client: Client) -> str:
    """Return where the page is: at the server's own address, or where `divvy up` noted it beside its socket.

    Raises:
        NotFoundError: If it is noted nowhere.
    """
    if client.target.path is None:
        return client.target.url
    note = client.target.path.parent / "up.json"
    try:
        return str(json.loads(note.read_text(encoding="utf-8"))["url"])
    except (OSError, ValueError, KeyError) as error:
        raise NotFoundError.one(
            "page-address",
            f"the address of the page cannot be read from {note}",
            fix="look at what `divvy up` printed, or use --server URL",
        ) from error
