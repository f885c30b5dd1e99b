"""The gRPC side of the router: the same desk, the same slices (which speak HTTP), the same limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from divvy.adapters.front.backend import Backend
from divvy.adapters.front.http1 import HEAD_END, Head, read_head
from divvy.adapters.front.keys import Keys
from divvy.adapters.front.messages import SERVICE, messages
from divvy.adapters.front.models import Model, Models, is_ready
from divvy.adapters.front.router import NOBODY, Router, now_us
from divvy.adapters.front.tensors import from_http, to_http
from divvy.errors import UnavailableError
from divvy.planners.queries.desk import Query

_CODES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_LONGEST_MS: Final = 864e6
_ABOUT_SECONDS: Final = 5.0


class GrpcFront:
    """Answers the calls of the protocol.

    Args:
        router: Who answers queries.
        slo_us: Objective where the call says nothing.
        most_bytes: Largest message.
        keys: Who may ask; everybody where None.
        models: All models, where there are several.

    Raises:
        UnavailableError: If grpcio or protobuf is not installed.
    """

    def __init__(
        self,
        router: Router,
        slo_us: int,
        most_bytes: int,
        keys: Keys | None = None,
        models: Models | None = None,
    ) -> None:
        try:
            import grpc  # noqa: PLC0415 - an extra

            self._messages = messages()
        except ImportError as error:
            raise UnavailableError.one(
                "serve-grpc", f"{error}", path="--grpc-port", fix="install divvy with the extra grpc"
            ) from error
        self._grpc: Any = grpc
        self._models = models or Models({router.model: Model(router, slo_us)})
        self._most, self._keys = most_bytes, keys
        self._server: Any = None

    async def start(self, host: str, port: int, tls: tuple[Path, Path] | None = None) -> int:
        """Listen; return the port.

        Raises:
            UnavailableError: If it is taken.
        """
        aio = self._grpc.aio
        limits = [("grpc.max_receive_message_length", self._most), ("grpc.so_reuseport", 0)]
        server = self._server = aio.server(options=limits)
        calls: dict[str, Callable[[Any, Any], Awaitable[Any]]] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelInfer": self._infer,
        }
        handlers = {
            name: self._grpc.unary_unary_rpc_method_handler(
                call,
                request_deserializer=self._messages[f"{name}Request"].FromString,
                response_serializer=self._messages[f"{name}Response"].SerializeToString,
            )
            for name, call in calls.items()
        }
        server.add_generic_rpc_handlers((self._grpc.method_handlers_generic_handler(SERVICE, handlers),))
        place = f"{host}:{port}"
        try:
            if tls is None:
                bound = server.add_insecure_port(place)
            else:
                pair = (tls[1].read_bytes(), tls[0].read_bytes())
                bound = server.add_secure_port(place, self._grpc.ssl_server_credentials([pair]))
        except RuntimeError as error:
            raise UnavailableError.one("serve-port", f"{place}: {error}", path="--grpc-port") from error
        await server.start()
        return int(bound)

    async def stop(self, grace_seconds: float) -> None:
        """Take no more calls, and give those that are open some time."""
        server, self._server = self._server, None
        await server.stop(grace_seconds)

    async def _refuse(self, context: Any, status: int, text: str) -> Any:
        """End a call as HTTP would have refused it; it does not return."""
        code = getattr(self._grpc.StatusCode, _CODES.get(status, "INTERNAL"))
        return await context.abort(code, text)

    async def _account(self, context: Any) -> str:
        """Return whose call it is."""
        if self._keys is None:
            return NOBODY
        fields = dict(context.invocation_metadata())
        found = self._keys.find(str(fields.get("authorization", "")).encode("latin-1", "replace"))
        if found is None:
            await self._refuse(context, 401, "no token that is known here")
            return NOBODY
        return found.name

    async def _known(self, context: Any, name: str) -> Model:
        found = self._models.find(name)
        if found is None:
            await self._refuse(context, 404, self._models.unknown(name))
            raise AssertionError  # aborted above
        return found

    async def _live(self, request: Any, context: Any) -> Any:  # noqa: ARG002 - the signature is gRPC's
        return self._messages["ServerLiveResponse"](live=True)

    async def _ready(self, request: Any, context: Any) -> Any:  # noqa: ARG002 - the signature is gRPC's
        return self._messages["ServerReadyResponse"](ready=self._models.ready)

    async def _model_ready(self, request: Any, context: Any) -> Any:
        await self._account(context)
        router, _ = await self._known(context, request.name)
        return self._messages["ModelReadyResponse"](ready=is_ready(router))

    async def _server_metadata(self, request: Any, context: Any) -> Any:  # noqa: ARG002 - gRPC's signature
        await self._account(context)
        made = self._messages["ServerMetadataResponse"]
        return made(name="divvy", version="1", extensions=["binary_tensor_data"])

    async def _model_metadata(self, request: Any, context: Any) -> Any:
        document = await self._about(context, request.name, "")
        return self._parsed(document, self._messages["ModelMetadataResponse"]())

    async def _model_config(self, request: Any, context: Any) -> Any:
        document = await self._about(context, request.name, "/config")
        return self._parsed({"config": document}, self._messages["ModelConfigResponse"]())

    def _parsed(self, document: dict[str, Any], message: Any) -> Any:
        from google.protobuf.json_format import ParseDict  # noqa: PLC0415 - an extra

        return ParseDict(document, message, ignore_unknown_fields=True)

    async def _about(self, context: Any, name: str, more: str) -> dict[str, Any]:
        """Return what a slice says of its model."""
        await self._account(context)
        router, _ = await self._known(context, name)
        backend = router.anybody()
        if backend is None:
            await self._refuse(context, 503, "no slice is there")
            raise AssertionError  # aborted above
        came: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

        def done(head: Head | None, body: bytes) -> None:
            if not came.done():
                came.set_result((502 if head is None else int(head.line[1]), body))

        path = f"{backend.prefix}/v2/models/{name}{more}"
        backend.ask(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), _ABOUT_SECONDS, done)
        try:
            status, body = await came
        finally:
            backend.close()
        if status != 200:
            await self._refuse(context, status, body.decode("latin-1")[:500])
        document: dict[str, Any] = json.loads(body)
        return document

    async def _infer(self, request: Any, context: Any) -> Any:
        account = await self._account(context)
        router, own_us = await self._known(context, request.model_name)
        fields = dict(context.invocation_metadata())
        try:
            text, tensors = to_http(request)
            batch = request.inputs[0].shape[0]
            slo = float(fields.get("divvy-slo-ms", 0))
            if batch < 1 or not 0 <= slo <= _LONGEST_MS:
                raise ValueError(f"a batch of {batch}, an objective of {slo}")  # noqa: TRY301 - one answer
        except (ValueError, IndexError) as error:
            return await self._refuse(context, 400, f"not an inference request: {error}")
        version = f"/versions/{request.model_version}" if request.model_version.isalnum() else ""
        path = f"/v2/models/{request.model_name}{version}/infer"

        def written(backend: Backend) -> bytes:
            lines = (
                f"POST {backend.prefix}{path} HTTP/1.1\r\nHost: {backend.host}:{backend.port}\r\n"
                f"Content-Type: application/octet-stream\r\nInference-Header-Content-Length: {len(text)}\r\n"
                f"Content-Length: {len(text) + len(tensors)}\r\n\r\n"
            )
            return lines.encode() + text + tensors

        came: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def reply(data: bytes) -> None:
            if not came.done():
                came.set_result(data)

        query = Query(batch, now_us(), round(slo * 1e3) or own_us)
        explain, trace = "divvy-explain" in fields, str(fields.get("traceparent", ""))
        ticket = router.take(query, written, reply, explain=explain, account=account, trace=trace)
        try:
            data = await came
        except asyncio.CancelledError:  # the client has gone
            if ticket is not None:
                router.leave(ticket)
            raise
        return await self._answered(context, data)

    async def _answered(self, context: Any, data: bytes) -> Any:
        """Return the message of a slice's answer, or end the call with its error."""
        lines, _, body = data.partition(HEAD_END)
        head = read_head(lines)
        decision = head.fields.get(b"divvy-decision")
        if decision is not None:
            context.set_trailing_metadata((("divvy-decision", decision.decode("latin-1")),))
        status = int(head.line[1])
        if status != 200:
            return await self._refuse(context, status, body.decode("utf-8", "replace")[:500])
        try:
            return from_http(body, head.fields.get(b"inference-header-content-length"))
        except ValueError as error:
            return await self._refuse(context, 502, f"the slice's answer: {error}")
