"""The listening side: connections of clients, one request at a time on each, strict limits."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any, Final, cast

from divvy.adapters.front.backend import Backend
from divvy.adapters.front.config import LONGEST_MS, read_setup
from divvy.adapters.front.http1 import (
    CHUNKED,
    HEAD_END,
    MOST_HEAD,
    Chunks,
    Head,
    answer,
    batch_of,
    read_head,
    refuse,
    split_body,
)
from divvy.adapters.front.keys import Keys
from divvy.adapters.front.models import Model, Models, is_ready
from divvy.adapters.front.router import NOBODY, Router, Ticket, now_us
from divvy.errors import DivvyError
from divvy.planners.queries.desk import Query

_MODEL: Final = re.compile(rb"/v2/models/([^/?]+)(?:/versions/[^/?]+)?(?:/(ready|infer|config))?")
_KEPT: Final = (
    b"content-type",
    b"inference-header-content-length",
    b"accept-encoding",
    b"traceparent",
    b"tracestate",
)
_TEXT: Final = "text/plain; version=0.0.4"
_IDLE_SECONDS: Final = 75.0
#: A whole request has to come within this of its first byte.
_REQUEST_SECONDS: Final = 30.0
_ADMIN: Final = re.compile(rb"/divvy/v1/backends(?:/([^/?]+)/(drain|admit))?")
_OPEN: Final = frozenset((b"/v2/health/live", b"/v2/health/ready"))


class Client(asyncio.Protocol):
    """One client's connection.

    Args:
        router: Who answers queries.
        slo_us: Objective where the request says nothing.
        most_bytes: Largest body.
        gone: Told when the connection ends.
        keys: Who may ask; everybody where None.
        models: All models, where there are several.
    """

    def __init__(
        self,
        router: Router,
        slo_us: int,
        most_bytes: int,
        gone: Callable[[Client], None],
        keys: Keys | None = None,
        models: Models | None = None,
    ) -> None:
        self._models = models or Models({router.model: Model(router, slo_us)})
        self._keys, self._account = keys, NOBODY
        self._router, self._slo, self._most, self._gone = router, slo_us, most_bytes, gone
        self._transport: asyncio.Transport | None = None
        self._buffer, self._chunks = bytearray(), Chunks()
        self._head: Head | None = None
        self._ticket: Ticket | None = None
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """Return whether an answer is owed."""
        return self._busy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        self._wait()

    def _wait(self) -> None:
        """Close the connection unless a whole request comes in time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self.close)

    def _begun(self) -> None:
        """Give a request that has begun its time: one byte now and then does not keep a connection."""
        if self._timer is not None:
            self._timer.cancel()
        text = refuse(408, f"no whole request within {_REQUEST_SECONDS:g} s", "Connection: close\r\n")
        self._timer = asyncio.get_running_loop().call_later(_REQUEST_SECONDS, self._last, text)

    def data_received(self, data: bytes) -> None:
        """Take in a part of a request."""
        if not self._buffer and not self._busy and self._head is None:
            self._begun()
        self._buffer += data
        if not self._busy:
            self._advance()
        elif len(self._buffer) > MOST_HEAD and self._transport is not None:
            self._transport.pause_reading()  # who sends ahead waits for the answers

    def _advance(self) -> None:
        try:
            if self._head is None:
                text, end, rest = self._buffer.partition(HEAD_END)
                if len(text) > MOST_HEAD:
                    self._last(refuse(431, f"more than {MOST_HEAD} bytes of headers"))
                    return
                if not end:
                    return
                self._buffer, self._chunks = rest, Chunks()
                self._head = read_head(bytes(text))
                if self._head.fields.get(b"expect", b"").lower() == b"100-continue" and self._transport:
                    self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = self._head
            if max(head.length, len(self._buffer) if head.length == CHUNKED else 0) > self._most:
                self._last(refuse(413, f"more than {self._most} bytes of body"))
                return
            split = split_body(self._buffer, head.length, self._chunks)
        except ValueError as error:
            self._last(refuse(400, f"not a request: {error}"))
            return
        if split is None:
            return
        body, self._buffer = split[0], bytearray(split[1])
        self._busy = True
        if self._timer is not None:
            self._timer.cancel()
        self._heed(head, body)

    def _heed(self, head: Head, body: bytes) -> None:
        method, target, _ = head.line
        path = target.partition(b"?")[0]
        refusal = self._turn_away(head, path)
        if refusal is not None:
            self._reply(refusal)
            return
        admin = _ADMIN.fullmatch(path)
        if admin is not None:
            self._reply(self._administer(method, admin, body))
            return
        match = _MODEL.fullmatch(path)
        wanted = b"POST" if match is not None and match[2] == b"infer" else b"GET"
        if method != wanted:
            self._reply(refuse(405, f"{target.decode('latin-1')} is a {wanted.decode()}"))
        elif match is None:
            self._reply(self._about(target))
        elif (found := self._models.find(match[1].decode(errors="replace"))) is None:
            self._reply(refuse(404, self._models.unknown(match[1].decode(errors="replace"))))
        else:
            self._router, self._slo = found  # one request at a time: until the next it is this model's client
            self._of_model(head, match[2], target, body)

    def _of_model(self, head: Head, what: bytes | None, target: bytes, body: bytes) -> None:
        """Answer what is asked of the model that was found."""
        if what == b"infer":
            self._infer(head, target, body)
        elif what == b"ready":
            self._reply(_ready(ready=is_ready(self._router)))
        else:
            self._metadata(target)

    def _turn_away(self, head: Head, path: bytes) -> bytes | None:
        """Return the refusal of whoever may not ask this; None where they may."""
        if self._keys is None or path in _OPEN:
            return None
        found = self._keys.find(head.fields.get(b"authorization", b""))
        if found is None:
            return refuse(401, "no token that is known here", "WWW-Authenticate: Bearer\r\n")
        self._account = found.name
        if path.startswith(b"/divvy/") and not found.admin:
            return refuse(403, f"{found.name} may not administer the router")
        return None

    def _administer(self, method: bytes, asked: re.Match[bytes], body: bytes) -> bytes:
        """Answer ``/divvy/v1/backends``: list slices, replace them all, hold one back, admit it again."""
        name, verb = (asked[1] or b"").decode("latin-1"), asked[2]
        replaces = method == b"PUT" and not name
        if method != (b"GET" if verb is None else b"POST") and not replaces:
            return refuse(405, "GET or PUT the list, POST drain or admit")
        if replaces:
            try:
                self._models.replace(read_setup(body.decode(), "the body"))
            except (DivvyError, ValueError) as error:
                return refuse(400, str(error))
        if verb is not None:
            router = self._models.of_slice(name)
            if router is None or not (router.hold(name) if verb == b"drain" else router.admit(name)):
                return refuse(404, f"no slice {name!r}: {', '.join(self._models.slices())}")
        rows, waiting = self._models.backends(), self._models.waiting
        return _json({"schema": "divvy.serve.status/1", "waiting": waiting, "backends": rows})

    def _infer(self, head: Head, target: bytes, body: bytes) -> None:
        try:
            batch = batch_of(head, body)
            fields = head.fields
            slo = float(fields.get(b"divvy-slo-ms", fields.get(b"x-divvy-slo-ms", b"0")))
            if not 0 <= slo <= LONGEST_MS:
                raise ValueError(f"an objective of {slo}")  # noqa: TRY301 - one answer to all that is wrong
        except ValueError as error:
            self._reply(refuse(400, str(error)))
            return
        kept = b"".join(b"%b: %b\r\n" % (key, head.fields[key]) for key in _KEPT if key in head.fields)
        rest = b"%bContent-Length: %d\r\n\r\n" % (kept, len(body))

        def request(backend: Backend) -> bytes:
            place = f"{backend.host}:{backend.port}".encode()
            return b"POST %b%b HTTP/1.1\r\nHost: %b\r\n%b%b" % (
                backend.prefix.encode(),
                target,
                place,
                rest,
                body,
            )

        query = Query(batch, now_us(), round(slo * 1e3) or self._slo)
        self._ticket = self._router.take(
            query,
            request,
            self._reply,
            explain=b"divvy-explain" in fields or b"x-divvy-explain" in fields,
            account=self._account,
            trace=fields.get(b"traceparent", b"").decode("latin-1"),
        )
        if not self._busy:
            self._ticket = None

    def _about(self, target: bytes) -> bytes:
        if target == b"/v2/health/live":
            return answer(200, b'{"live":true}')
        if target == b"/v2/health/ready":
            return _ready(ready=self._models.ready)
        if target == b"/metrics":
            return answer(200, self._models.metrics().encode(), _TEXT)
        if target == b"/v2":
            return _json({"name": "divvy", "version": "1", "extensions": ["binary_tensor_data"]})
        if target == b"/divvy/slices":
            rows = [
                {"name": n, "gpcs": p.slot.gpcs, "state": p.state, "running": p.running is not None}
                for router in self._models.routers
                for n, p in router.desk.posts.items()
            ]
            return _json({"schema": "divvy.serve.slices/1", "slices": rows, "waiting": self._models.waiting})
        return refuse(404, f"no {target.decode('latin-1')}")

    def _metadata(self, target: bytes) -> None:
        """Answer with a slice's own metadata."""
        backend = self._router.anybody()
        if backend is None:
            self._reply(refuse(503, "no slice is there", "Retry-After: 1\r\n"))
            return

        def done(head: Head | None, body: bytes) -> None:
            backend.close()
            if head is None:
                self._reply(refuse(502, body.decode("latin-1")))
            else:
                self._reply(answer(int(head.line[1]), body))

        backend.ask(b"GET %b%b HTTP/1.1\r\nHost: x\r\n\r\n" % (backend.prefix.encode(), target), 5.0, done)

    def _reply(self, data: bytes) -> None:
        if self._transport is None or not self._busy:
            return
        head, self._head, self._busy, self._ticket = self._head, None, False, None
        self._transport.write(data)
        if head is not None and not head.keeps:
            self._transport.close()
            return
        self._wait()
        self._transport.resume_reading()
        if self._buffer:
            self._begun()
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        if not self._busy and self._transport is not None and self._buffer:
            self._advance()

    def _last(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the signature is asyncio's
        """Cancel what the client does not wait for any more."""
        self._transport, self._busy = None, False
        if self._timer is not None:
            self._timer.cancel()
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._router.leave(ticket)
        self._gone(self)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


def _ready(*, ready: bool) -> bytes:
    return answer(200 if ready else 503, json.dumps({"ready": ready}).encode())


def _json(document: dict[str, Any]) -> bytes:
    return answer(200, json.dumps(document).encode())
