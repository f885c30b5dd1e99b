"""The client of the HTTP API: over the Unix socket of this machine, or over HTTP(S) with a token.

It is made of the standard library's ``http.client``: importing httpx takes longer than a whole
``divvy status`` may take (ADR 0041).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from divvy.errors import DivvyError, EngineError, InputError, UnavailableError, problem_to_error

SYSTEM_HOME: Final = Path("/var/lib/divvy")
USER_HOME: Final = Path("~/.local/share/divvy")
ANSWER_SECONDS: Final = 30.0
FOLLOW_SECONDS: Final = 3_600.0
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

Query = dict[str, str | int | float | bool | None]


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket; the server knows the caller by the socket's peer credentials."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass(frozen=True, slots=True)
class Target:
    """Where the server is and who we say we are.

    Attributes:
        url: The address as people write it, for messages.
        path: Of the Unix socket; None where the server is reached over the network.
        token: Bearer token; not used on a Unix socket.
    """

    url: str
    path: Path | None
    token: str = ""

    def connect(self, timeout: float) -> HTTPConnection:
        """Return a connection that is opened by its first request."""
        if self.path is not None:
            return _UnixConnection(self.path, timeout)
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        return kind(parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme], timeout=timeout)


def find_target(server: str = "") -> Target:
    """Return the server to talk to: ``--server``, else ``DIVVY_SERVER``, else a socket of this machine.

    The socket is ``$DIVVY_HOME/socket``; without DIVVY_HOME the user's own control plane comes before the
    machine's.

    Raises:
        InputError: If the address is neither ``http(s)://HOST[:PORT]`` nor ``unix:PATH``.
    """
    address = server or os.environ.get("DIVVY_SERVER", "")
    if address.startswith("unix:"):
        return Target(address, Path(address.removeprefix("unix:")))
    if address:
        if not _is_address(address):
            raise InputError.one(
                "server-address",
                f"{address!r} is not the address of a server",
                path="--server",
                allowed="http://HOST:PORT, https://HOST:PORT or unix:PATH",
                fix="correct the address",
            )
        return Target(address.rstrip("/"), None, os.environ.get("DIVVY_TOKEN", ""))
    home = os.environ.get("DIVVY_HOME")
    homes = [Path(home)] if home else [USER_HOME.expanduser(), SYSTEM_HOME]
    if os.geteuid() == 0:
        homes.reverse()
    path = next((h / "socket" for h in homes if (h / "socket").exists()), homes[0] / "socket")
    return Target(f"unix:{path}", path)


def _is_address(address: str) -> bool:
    """Return whether a text is ``http(s)://HOST[:PORT]`` and nothing more."""
    parts = urlsplit(address)
    try:
        known = parts.scheme in _DEFAULT_PORTS and parts.port != 0
    except ValueError:  # the port is no number, or too large
        return False
    return known and bool(parts.hostname) and not (parts.path.strip("/") or parts.query or parts.fragment)


class Client:
    """Asks the API and turns its refusals into `DivvyError`.

    Args:
        target: Where the server is.
        timeout: Longest wait for an answer, seconds.
    """

    def __init__(self, target: Target, timeout: float = ANSWER_SECONDS) -> None:
        self.target = target
        self._timeout = timeout

    def get(self, *steps: str, **query: str | float | bool | None) -> dict[str, Any]:
        """Return what GET answers; steps are the parts of the path below /v1, quoted here."""
        return self._ask("GET", steps, query, None)

    def post(self, *steps: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what POST answers."""
        return self._ask("POST", steps, {}, body or {})

    def put(self, *steps: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return what PUT answers."""
        return self._ask("PUT", steps, {}, body)

    def patch(self, *steps: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return what PATCH answers."""
        return self._ask("PATCH", steps, {}, body)

    def delete(self, *steps: str) -> dict[str, Any]:
        """Return what DELETE answers."""
        return self._ask("DELETE", steps, {}, None)

    def stream(self, *steps: str, **query: str | float | bool | None) -> Iterator[bytes]:
        """Yield an answer piece by piece as it arrives, until the server ends it.

        Raises:
            UnavailableError: If the connection breaks before the answer is complete.
        """
        connection = self.target.connect(FOLLOW_SECONDS)
        try:
            answer = self._send(connection, "GET", _path(steps, query), None)
            if answer.status >= 400:
                raise _refusal(answer.status, answer.read())
            while piece := answer.read1(1 << 16):
                yield piece
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def _ask(
        self, method: str, steps: tuple[str, ...], query: Query, body: dict[str, Any] | None
    ) -> dict[str, Any]:
        connection = self.target.connect(self._timeout)
        try:
            answer = self._send(connection, method, _path(steps, query), body)
            content = answer.read()
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise _refusal(answer.status, content)
        document = _read(content) if content else {}
        if document is None:
            raise EngineError.one(
                "answer-unreadable",
                f"{self.target.url} answered something that is not JSON",
                fix="check that the address is that of Divvy's API",
            )
        return document

    def _send(
        self, connection: HTTPConnection, method: str, path: str, body: dict[str, Any] | None
    ) -> HTTPResponse:
        headers = {"Accept": "application/json"}
        if self.target.token and self.target.path is None:
            headers["Authorization"] = f"Bearer {self.target.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
        return connection.getresponse()

    def _unreachable(self, error: Exception) -> UnavailableError:
        if isinstance(error, TimeoutError):
            return UnavailableError.one(
                "server-timeout",
                f"{self.target.url} did not answer within {self._timeout:.0f} s",
                fix="look at the log of `divvy up`, then try again",
            )
        if isinstance(error, PermissionError):
            return UnavailableError.one(
                "server-permission",
                f"this user may not open {self.target.url}",
                fix="ask who runs `divvy up` for access to its directory, or use --server with a token",
            )
        cause = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        return UnavailableError.one(
            "server-unreachable",
            f"nothing answers at {self.target.url} ({cause.lower()})",
            fix="start a control plane with `divvy up`, or name another with --server or DIVVY_SERVER",
        )


def _path(steps: tuple[str, ...], query: Query) -> str:
    """Return the path and query of a request; every step is quoted, so a name cannot leave its place."""
    path = "/v1/" + "/".join(quote(step, safe="") for step in steps)
    asked = {
        name.rstrip("_"): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in query.items()
        if value is not None and value != ""
    }
    return f"{path}?{urlencode(asked)}" if asked else path


def _read(content: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(content)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _refusal(status: int, content: bytes) -> DivvyError:
    """Return the error that an answer with a status of 400 or more describes."""
    problem = _read(content)
    if problem is not None and "status" in problem:
        return problem_to_error(problem)
    text = content.decode(errors="replace").strip()[:200]
    return problem_to_error({"status": status, "code": f"http-{status}", "title": text or f"HTTP {status}"})
