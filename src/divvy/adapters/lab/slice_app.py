"""One slice as an Open Inference Protocol server (KServe v2 over HTTP): health, metadata, infer, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from divvy.adapters.lab.spec import SliceSpec
from divvy.adapters.lab.work import Line
from divvy.perf.latency import INFEASIBLE

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Answer = tuple[int, bytes, bytes]

_MOST_BYTES: Final = 64 << 20
_JSON: Final = b"application/json"
_TEXT: Final = b"text/plain; version=0.0.4"
_MODEL: Final = re.compile(r"/v2/models/(?P<model>[^/]+)(?:/versions/[^/]+)?(?:/(?P<verb>ready|infer))?")
_BINARY: Final = b"inference-header-content-length"


class SliceApp:
    """Answers for one slice; each query waits for its turn on `line`.

    Args:
        spec: The slice.
        line: Its model instance.
    """

    def __init__(self, spec: SliceSpec, line: Line) -> None:
        self._spec = spec
        self._line = line
        self._refused = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        if scope["type"] != "http":
            return
        status, kind, body = await self._answer(scope, receive)
        if not status:  # the client has gone
            return
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        path, method = scope["path"], scope["method"]
        match = _MODEL.fullmatch(path)
        wanted = "POST" if match is not None and match["verb"] == "infer" else "GET"
        if method != wanted and (method, wanted) != ("HEAD", "GET"):
            return _error(405, f"{path} is a {wanted}")
        if match is None:
            return self._about(path)
        if match["model"] != self._spec.model:
            return _error(404, f"no model {match['model']!r}: this server has {self._spec.model!r}")
        if match["verb"] == "infer":
            return await self._infer(scope, receive)
        return _json(200, {"ready": True} if match["verb"] else self._metadata())

    def _about(self, path: str) -> Answer:
        """Answer what is asked of the server and not of a model."""
        if path in {"/v2/health/live", "/v2/health/ready"}:
            return _json(200, {"live" if path.endswith("live") else "ready": True})
        if path == "/metrics":
            return 200, _TEXT, self._metrics().encode()
        if path != "/v2":
            return _error(404, f"no {path}")
        known = {"name": "divvy-lab", "version": "1", "extensions": ["binary_tensor_data"]}
        return _json(200, {**known, **self._who()})

    def _who(self) -> dict[str, Any]:
        spec = self._spec
        return {"slice": spec.name, "profile": spec.profile, "gpcs": spec.gpcs, "emulated": spec.emulated}

    def _metadata(self) -> dict[str, Any]:
        tensor = {"datatype": "FP32", "shape": [-1, -1]}
        return {
            "name": self._spec.model,
            "versions": ["1"],
            "platform": "divvy-lab",
            "inputs": [{"name": "x", **tensor}],
            "outputs": [{"name": "y", **tensor}],
        }

    async def _infer(self, scope: Scope, receive: Receive) -> Answer:
        body = await _read(receive)
        if body is None:
            return 0, b"", b""
        length = next((value for name, value in scope["headers"] if name == _BINARY), None)
        try:
            document = json.loads(body if length is None else body[: int(length)])
            batch = document["inputs"][0]["shape"][0]
            if isinstance(batch, bool) or not isinstance(batch, int):
                raise TypeError(f"the batch is {batch!r}")  # noqa: TRY301 - one place answers all that is wrong
        except (ValueError, KeyError, IndexError, TypeError) as error:
            self._refused += 1
            return _error(400, f"not an inference request: {error}")
        times = self._spec.times_us
        if not 0 < batch < len(times) or times[batch] == INFEASIBLE:
            self._refused += 1
            return _error(400, f"batch {batch} does not fit on {self._spec.profile} (up to {len(times) - 1})")
        done = await _unless_gone(receive, self._line.serve(batch, times[batch]))
        if done is None:
            return 0, b"", b""
        answer = {
            "model_name": self._spec.model,
            "model_version": "1",
            **({"id": document["id"]} if "id" in document else {}),
            "parameters": {
                "slice": self._spec.name,
                "queue_us": round(done[0] * 1e6),
                "service_us": round(done[1] * 1e6),
            },
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [batch, 1], "data": [0.0] * batch}],
        }
        return _json(200, answer)

    def _metrics(self) -> str:
        line, label = self._line, f'{{slice="{self._spec.name}",gpcs="{self._spec.gpcs}"}}'
        rows = (
            ("divvy_lab_queries_total", "counter", "Queries served", line.served),
            ("divvy_lab_items_total", "counter", "Items served", line.items),
            ("divvy_lab_refused_total", "counter", "Requests refused", self._refused),
            ("divvy_lab_busy_seconds_total", "counter", "Seconds at work", line.busy_seconds),
            ("divvy_lab_late_seconds_total", "counter", "Seconds that timers were late", line.late_seconds),
            ("divvy_lab_inflight", "gauge", "Queries that wait or run", line.waiting),
        )
        return "".join(
            f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name}{label} {value:g}\n"
            for name, kind, text, value in rows
        )


def _json(status: int, document: dict[str, Any]) -> Answer:
    return status, _JSON, json.dumps(document, separators=(",", ":")).encode()


def _error(status: int, text: str) -> Answer:
    return _json(status, {"error": text})


async def _read(receive: Receive) -> bytes | None:
    """Return the body; None where the client has gone or sends too much."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > _MOST_BYTES:
            return None
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


async def _unless_gone(receive: Receive, work: Awaitable[tuple[float, float]]) -> tuple[float, float] | None:
    """Return what the work gives; None where the client goes before: a query that waits then never runs."""
    serving = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({serving, gone}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            return serving.result()
        return None
    finally:
        for task in (serving, gone):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
