"""The open-loop generator against servers that stall, break or fall silent; real balancers before real slices."""

from __future__ import annotations

import asyncio
import shutil

import numpy as np
import pytest

from divvy.adapters.balancers.config import Target, haproxy, nginx, nginx_stub
from divvy.adapters.balancers.run import Program, free_port, haproxy_command, nginx_command
from divvy.adapters.lab.lab import Lab
from divvy.adapters.lab.spec import SliceSpec
from divvy.adapters.load.openloop import fire, fire_now
from divvy.adapters.load.volley import Plan, from_lists, to_lists

pytestmark = [pytest.mark.e2e, pytest.mark.enable_socket]


def plan(due_ms, **more):
    due = np.array(due_ms) * 1000
    return Plan(due, np.ones(due.size, np.int64), "/v2/models/m/infer", **more)


async def _against(behave, what, patience=2.0):
    running = set()

    async def converse(reader, writer):
        running.add(asyncio.current_task())
        try:
            while not writer.is_closing():
                await behave(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        return await fire(f"http://127.0.0.1:{port}", what, patience_seconds=patience)
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running)
        await asyncio.sleep(0.01)


async def _read(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))


def test_a_server_that_stalls_is_charged_for_every_query_that_came_due_meanwhile():
    async def run():
        end = asyncio.get_running_loop().time() + 0.4

        async def stalling(reader, writer):
            await _read(reader)
            await asyncio.sleep(max(end - asyncio.get_running_loop().time(), 0))
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")

        return await _against(stalling, plan(range(0, 200, 10)))

    volley = asyncio.run(run())
    assert volley.good.all()
    assert np.median(volley.late_us) < 20_000, "they were sent when due"
    assert 300_000 < volley.latency_us[0] < 500_000
    assert np.all(np.diff(volley.latency_us) < 0), "each waits 10 ms less than the one before"
    assert from_lists(to_lists(volley)).latency_us.tolist() == volley.latency_us.tolist()


def test_broken_connections_and_silence_are_told_apart_and_nothing_hangs():
    async def run():
        seen = []

        async def moody(reader, writer):
            await _read(reader)
            seen.append(1)
            if len(seen) == 1:
                writer.close()
            elif len(seen) == 2:
                writer.write(b"HTTP/1.1 503 no\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            else:
                await asyncio.sleep(5)

        return await _against(moody, plan([0, 50, 100]), patience=0.3)

    assert asyncio.run(run()).status.tolist() == [0, 503, -1]


def test_nobody_there_is_a_broken_connection():
    assert fire_now(f"http://127.0.0.1:{free_port()}", plan([0]), patience_seconds=1).status.tolist() == [0]


def test_a_trial_that_is_lost_is_not_sent_to_its_end():
    async def run():
        async def slow(reader, writer):
            await _read(reader)
            await asyncio.sleep(0.05)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        return await _against(slow, plan(range(0, 5000, 100), slo_us=10_000, most_late=2))

    volley = asyncio.run(run())
    assert volley.good.sum() == 3 and (volley.status == -1).sum() == 47


@pytest.mark.skipif(not shutil.which("haproxy", path="/usr/sbin:/usr/bin"), reason="HAProxy is not installed")
@pytest.mark.skipif(not shutil.which("nginx", path="/usr/sbin:/usr/bin"), reason="nginx is not installed")
def test_real_balancers_pass_queries_to_the_slices(tmp_path):
    specs = [SliceSpec(f"s{n}", 0, "7g.80gb", 0, 7, "m", (-1, 5_000)) for n in range(2)]
    with Lab() as lab:
        targets = [Target(one.spec.name, one.port, 1.0 + n) for n, one in enumerate(lab.start(specs))]
        for name, config, command in (
            ("rr", lambda port: haproxy(port, targets, "roundrobin", check=True), haproxy_command),
            ("tuned", lambda port: haproxy(port, targets, "first", tuned=True), haproxy_command),
            (
                "nginx",
                lambda port: nginx(port, targets, "least_conn", str(tmp_path / "nginx")),
                nginx_command,
            ),
        ):
            port = free_port()
            with Program(command, config(port), tmp_path / name, port) as program:
                volley = fire_now(program.url, plan(range(0, 200, 10)))
            assert volley.good.all() and np.median(volley.latency_us) > 5_000, name
    port = free_port()
    with Program(
        nginx_command, nginx_stub(port, "{}", str(tmp_path / "stub")), tmp_path / "stub", port
    ) as stub:
        assert fire_now(stub.url, plan([0, 1])).good.all()
