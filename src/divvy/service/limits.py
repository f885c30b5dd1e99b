"""The outermost layer: bodies are bounded before they are read, every answer carries its security headers.

Plain ASGI: it costs microseconds, and it also sees what never reaches a route.
"""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from divvy.service.answers import http_problem
from divvy.service.requests import MAX_BODY_BYTES, MAX_HEADER_BYTES

#: For the page, whose code comes from this server only; answers can be neither framed nor sniffed.
HEADERS: Final = (
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
            b"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_STORED: Final = (b"cache-control", b"no-store")

#: Called with method, route, status and seconds for every request.
Observe = Callable[[str, str, int, float], None]


class Limits:
    """Wraps the application.

    Args:
        app: What is wrapped.
        observe: Told about every answer, for the metrics.
        max_body: Largest body, bytes.
    """

    def __init__(self, app: ASGIApp, observe: Observe, max_body: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._observe = observe
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500

        async def dressed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _dress(message)
            await send(message)

        if _declared(scope) > self._max_body:
            await self._too_large()(scope, receive, dressed)
        elif sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
            await _headers_large()(scope, receive, dressed)
        else:
            await self._app(scope, self._bounded(receive), dressed)
        route = scope.get("route")
        path = getattr(route, "path", "other")
        self._observe(scope["method"], path, status, time.perf_counter() - began)

    def _bounded(self, receive: Receive) -> Receive:
        taken = 0

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._max_body:
                raise HTTPException(413, f"the body is larger than {self._max_body} bytes")
            return message

        return bounded

    def _too_large(self) -> ASGIApp:
        return http_problem(
            413,
            "body-large",
            f"the body is larger than {self._max_body} bytes",
            f"at most {self._max_body} bytes",
        )


def _headers_large() -> ASGIApp:
    limit = f"at most {MAX_HEADER_BYTES} bytes"
    return http_problem(431, "header-large", "the headers of the request are too large", limit)


def _declared(scope: Scope) -> int:
    """Return the declared length of the body; what is not a number is left to the server."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _dress(message: MutableMapping[str, Any]) -> None:
    names = {name for name, _ in message["headers"]}
    extra = [pair for pair in (*HEADERS, _STORED) if pair[0] not in names]
    message["headers"] = [*message["headers"], *extra]
