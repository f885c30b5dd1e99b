"""The router over gRPC, with a client of grpcio, before a slice that speaks HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import json
import struct

import pytest

from divvy.adapters.front.config import Declared
from divvy.adapters.front.grpc_front import GrpcFront
from divvy.adapters.front.http1 import answer
from divvy.adapters.front.keys import Holder, Keys
from divvy.adapters.front.router import Router
from divvy.perf.fitted import fitted_profile
from divvy.planners.queries.desk import Desk, Slot
from divvy.planners.queries.registry import find_rule

grpc = pytest.importorskip("grpc", reason="grpcio is not installed: no client to test with")
messages = pytest.importorskip("divvy.adapters.front.messages").messages

pytestmark = [pytest.mark.e2e, pytest.mark.enable_socket]

ABOUT = b'{"name":"m","versions":["1"],"platform":"stub","inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]}]}'
CONFIG = (
    b'{"name":"m","max_batch_size":8,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[2]}],"other":{}}'
)


def echo(head, body):
    """Answer as a server would: the inputs come back as outputs, as bytes or as JSON."""
    length = next(int(line[33:]) for line in head.split(b"\r\n") if line.lower().startswith(b"inference-h"))
    document = json.loads(body[:length])
    row = document["inputs"][0]
    if row["name"] == "bad":
        return answer(400, b'{"error":"no such input"}')
    raw = body[length:]
    if row["name"] == "plain":
        values = list(struct.unpack(f"<{len(raw) // 4}f", raw))
        row = {"name": "y", "datatype": "FP32", "shape": row["shape"], "data": values}
        return answer(200, json.dumps({"model_name": "m", "outputs": [row]}).encode())
    row = {**row, "name": "y", "parameters": {"binary_data_size": len(raw)}}
    text = json.dumps({"model_name": "m", "id": document.get("id", ""), "outputs": [row]}).encode()
    return answer(200, text + raw, more=f"Inference-Header-Content-Length: {len(text)}\r\n")


async def slice_server(reader, writer):
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        if head.startswith(b"GET"):
            writer.write(answer(200, CONFIG if b"/config " in head else ABOUT))
            continue
        size = next(int(x[15:]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length:"))
        body = await reader.readexactly(size)
        if b'"sleepy"' in body:
            await reader.read(1)  # until the router hangs up
            writer.close()
            return
        writer.write(echo(head, body))


def run(work, keys=None):
    """Run `work(call, router)` before a router and a slice that run."""

    async def all_of_it():
        server = await asyncio.start_server(slice_server, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        rule, params = find_rule("divvy")
        router = Router(Desk(fitted_profile("resnet50"), 32, rule, params), "m", 10, rule.name)
        router.declare({"s": Declared(Slot(7), "127.0.0.1", port, "")})
        front = GrpcFront(router, 100_000, 1 << 20, keys)
        bound = await front.start("127.0.0.1", 0)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{bound}") as channel:

            def call(name, /, **fields):
                made = messages()
                method = channel.unary_unary(
                    f"/inference.GRPCInferenceService/{name}",
                    request_serializer=made[f"{name}Request"].SerializeToString,
                    response_deserializer=made[f"{name}Response"].FromString,
                )
                metadata = fields.pop("metadata", ())
                return method(made[f"{name}Request"](**fields), timeout=10, metadata=metadata)

            try:
                await work(call, router)
            finally:
                await front.stop(0)
                server.close()
                router.declare({})
                for backend in router._backends.values():
                    backend.close()
                await asyncio.sleep(0.05)  # the slice's server sees it

    asyncio.run(all_of_it())


async def until(true):
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within ten seconds")


async def code(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name


def tensor(name="x", shape=(2, 2), **more):
    return {"name": name, "datatype": "FP32", "shape": list(shape), **more}


def test_health_metadata_and_configuration():
    async def work(call, router):
        assert (await call("ServerLive")).live and (await call("ServerReady")).ready
        assert (await call("ModelReady", name="m")).ready
        assert (await call("ServerMetadata")).name == "divvy"
        about = await call("ModelMetadata", name="m")
        assert (about.platform, list(about.inputs[0].shape)) == ("stub", [-1, 2])
        config = (await call("ModelConfig", name="m")).config
        assert (config.max_batch_size, config.input[0].data_type) == (8, 11)
        assert await code(call("ModelMetadata", name="other")) == "NOT_FOUND"
        router.hold("s")
        assert not (await call("ServerReady")).ready
        assert await code(call("ModelMetadata", name="m")) == "UNAVAILABLE"

    run(work)


@pytest.mark.parametrize("name", ["x", "plain"])
@pytest.mark.parametrize("raw", [True, False])
def test_tensors_come_back_as_they_went(name, raw):
    values = [1.5, -2.0, float("inf"), 4.25] if name == "x" else [1.5, -2.0, 3.0, 4.25]
    data = struct.pack("<4f", *values)

    async def work(call, router):
        fields = {"raw_input_contents": [data]} if raw else {}
        one = tensor(name) if raw else tensor(name, contents={"fp32_contents": values})
        found = call(
            "ModelInfer", model_name="m", id="q7", inputs=[one], metadata=(("divvy-explain", "1"),), **fields
        )
        answered = await found
        assert (answered.outputs[0].name, list(answered.outputs[0].shape)) == ("y", [2, 2])
        assert list(answered.raw_output_contents) == [data]
        assert (answered.id == "q7") == (name == "x")
        assert json.loads(dict(await found.trailing_metadata())["divvy-decision"])["slice"] == "s"
        assert router.desk.posts["s"].items == 2

    run(work)


def test_what_is_wrong_has_its_status():
    async def work(call, router):
        def infer(**fields):
            return call("ModelInfer", **{"model_name": "m", **fields})

        assert await code(infer()) == "INVALID_ARGUMENT"
        assert await code(infer(inputs=[tensor(shape=(0, 2))])) == "INVALID_ARGUMENT"
        assert await code(infer(inputs=[tensor()], raw_input_contents=[b"", b""])) == "INVALID_ARGUMENT"
        assert await code(infer(inputs=[tensor(contents={"bool_contents": [True]})])) == "INVALID_ARGUMENT"
        assert await code(infer(inputs=[tensor(shape=(4000, 2))])) == "INVALID_ARGUMENT"
        assert await code(infer(inputs=[tensor("bad")])) == "INVALID_ARGUMENT"
        slow = infer(inputs=[tensor()], metadata=(("divvy-slo-ms", "nan"),))
        assert await code(slow) == "INVALID_ARGUMENT"
        assert await code(infer(model_name="other", inputs=[tensor()])) == "NOT_FOUND"
        assert (
            await code(infer(inputs=[tensor()], raw_input_contents=[bytes(2 << 20)])) == "RESOURCE_EXHAUSTED"
        )
        router.hold("s")
        assert await code(infer(inputs=[tensor()])) == "UNAVAILABLE"

    run(work)


def test_a_client_that_goes_takes_its_query_with_it():
    async def work(call, router):
        going = call("ModelInfer", model_name="m", inputs=[tensor("sleepy")])
        await until(lambda: router.open)
        going.cancel()
        await until(lambda: not router.open)
        assert (router.cancelled, router.desk.posts["s"].running) == (1, None)

    run(work)


def test_tokens_are_asked_for():
    keys = Keys({hashlib.sha256(b"of-team").hexdigest(): Holder("team", admin=False)})

    async def work(call, router):
        mine = (("authorization", "Bearer of-team"),)
        assert (await call("ServerLive")).live
        assert await code(call("ModelInfer", model_name="m", inputs=[tensor()])) == "UNAUTHENTICATED"
        assert await code(call("ModelReady", name="m")) == "UNAUTHENTICATED"
        await call("ModelInfer", model_name="m", inputs=[tensor()], metadata=mine)
        assert router.slice_us["team"] > 0

    run(work, keys)
