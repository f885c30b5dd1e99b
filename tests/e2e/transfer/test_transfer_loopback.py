"""Two agents in one process over two loopback addresses: bytes, descriptors, files, uses of a buffer, strangers."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from divvy.errors import DeniedError, DivvyError, InputError, NotFoundError, UnauthenticatedError
from divvy.transfer import Agent, Descriptor, Rail, Wish

pytestmark = pytest.mark.e2e

KEY = b"0123456789abcdef0123456789abcdef"
RAILS = [Rail("r0", "lo", "127.0.0.1", 32), Rail("r1", "lo", "127.0.0.2", 32)]
MIB = 1 << 20


@pytest.fixture
def pair(tmp_path):
    with Agent("a", KEY, RAILS) as a, Agent("b", KEY, RAILS, roots=[tmp_path]) as b:
        yield a, b, a.connect(b.addresses[0])


def open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def noise(count, seed=1):
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def test_bytes_arrive_whole_and_both_sides_account_them_once(pair):
    a, b, peer = pair
    source, target = noise(20 * MIB + 17), np.zeros(20 * MIB + 17, np.uint8)
    a.register("s", source)
    b.register("d", target)
    report = a.send("s", peer, "d").wait(20)
    assert report["verdict"] == report["peer_verdict"] == "done"
    assert (source == target).all()
    assert report["accounted_bytes"] == report["peer_accounted_bytes"] == report["bytes"] == source.nbytes
    assert sum(rail["bytes"] for rail in report["rails"]) == source.nbytes
    assert report["lost_bytes"] == 0


def test_many_small_descriptors_are_coalesced_where_they_touch(pair):
    a, b, peer = pair
    source, target = noise(4 * MIB), np.zeros(4 * MIB, np.uint8)
    a.register("s", source)
    b.register("d", target)
    touching = [Descriptor(i * 4096, i * 4096, 4096) for i in range(256)]
    apart = [Descriptor(2 * MIB + i * 8192, 3 * MIB - (i + 1) * 4096, 4096) for i in range(200)]
    report = a.send("s", peer, "d", touching + apart).wait(20)
    assert report["verdict"] == "done"
    assert report["descriptors"] == 456
    assert report["pieces"] < 456
    expected = np.zeros_like(target)
    for start, goal, size in touching + apart:
        expected[goal : goal + size] = source[start : start + size]
    assert (target == expected).all()


def test_a_layer_is_sent_only_when_it_is_released(pair):
    a, b, peer = pair
    source, target = noise(4 * MIB), np.zeros(4 * MIB, np.uint8)
    a.register("s", source)
    b.register("d", target)
    layers = [Descriptor(i * MIB, i * MIB, MIB) for i in range(4)]
    handle = a.send("s", peer, "d", layers, Wish(layered=True))
    assert not b.wait_for(handle.number, 1, 0.2)
    handle.release(1)
    assert b.wait_for(handle.number, 1, 5)
    assert (target[:MIB] == source[:MIB]).all()
    assert not target[MIB:].any()
    handle.release(4)
    assert handle.wait(10)["verdict"] == "done"
    assert (target == source).all()


def test_a_buffer_in_another_use_is_not_touched_by_a_transfer_of_the_last_one(pair):
    a, b, peer = pair
    source, target = noise(2 * MIB), np.zeros(2 * MIB, np.uint8)
    a.register("s", source)
    b.register("d", target)
    halves = [Descriptor(0, 0, MIB), Descriptor(MIB, MIB, MIB)]
    handle = a.send("s", peer, "d", halves, Wish(layered=True))
    handle.release(1)
    assert b.wait_for(handle.number, 1, 5)
    b.reuse("d")
    target[:] = 7
    handle.release(2)
    report = handle.wait(10)
    assert report["verdict"] == report["peer_verdict"] == "failed"
    assert (target == 7).all()


def test_a_file_appears_whole_below_a_root_and_nowhere_else(pair, tmp_path):
    a, _, peer = pair
    source = noise(3 * MIB)
    a.register("s", source)
    report = a.send("s", peer, {"file": str(tmp_path / "out.bin")}).wait(10)
    assert report["verdict"] == "done"
    assert (tmp_path / "out.bin").read_bytes() == source.tobytes()
    assert [path.name for path in tmp_path.iterdir()] == ["out.bin"]
    for path in ("/etc/divvy-test", str(tmp_path / ".." / "x"), "relative"):
        with pytest.raises(DeniedError):
            a.send("s", peer, {"file": path})


def test_what_does_not_fit_is_refused_by_name_before_anything_moves(pair):
    a, b, peer = pair
    a.register("s", noise(MIB))
    b.register("d", np.zeros(1000, np.uint8))
    b.register("fixed", np.zeros(MIB, np.uint8), writable=False)
    with pytest.raises(InputError, match="do not fit"):
        a.send("s", peer, "d")
    with pytest.raises(NotFoundError):
        a.send("s", peer, "nothing")
    with pytest.raises(DeniedError):
        a.send("s", peer, "fixed")
    for wrong in ([Descriptor(0, 0, 0)], [Descriptor(-1, 0, 5)], [Descriptor(0, 0, 2 * MIB)], []):
        with pytest.raises(InputError):
            a.send("s", peer, "d", wrong)
    with pytest.raises(InputError, match="written twice"):
        a.send("s", peer, "d", [Descriptor(0, 0, 10), Descriptor(20, 5, 10)])


def test_a_stranger_is_refused_and_nothing_of_it_is_kept(pair):
    _, b, _ = pair
    target = np.zeros(MIB, np.uint8)
    b.register("secret", target)
    with Agent("evil", b"f" * 32, RAILS) as evil, pytest.raises(UnauthenticatedError):
        evil.connect(b.addresses[0])
    for noise_bytes in (b"GET / HTTP/1.1\r\n\r\n", b"DVYMOVE1" + os.urandom(64), os.urandom(500)):
        with socket.create_connection((RAILS[0].address, b.port), 2) as sock:
            sock.sendall(noise_bytes)
            sock.shutdown(socket.SHUT_WR)
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                while more := sock.recv(4096):
                    answer += more
            assert b"secret" not in answer
            assert len(answer) in (0, 64)
    assert not target.any()
    assert b"divvy_transfer_refused_total" in b.metrics.text()


def test_a_proof_recorded_from_one_connection_opens_no_other(pair):
    _, b, _ = pair
    with socket.create_connection((RAILS[0].address, b.port), 2) as first:
        first.sendall(b"DVYMOVE1" + b"n" * 32)
        answer = first.recv(64, socket.MSG_WAITALL)
    with socket.create_connection((RAILS[0].address, b.port), 2) as second:
        second.sendall(b"DVYMOVE1" + b"n" * 32)
        assert second.recv(64, socket.MSG_WAITALL) != answer
        second.sendall(answer[32:])
        assert second.recv(1) == b""


def test_a_peer_that_dies_leaves_a_verdict_on_the_other_side_in_bounded_time():
    with Agent("a", KEY, RAILS) as a:
        b = Agent("b", KEY, RAILS)
        a.register("s", noise(MIB))
        b.register("d", np.zeros(MIB, np.uint8))
        peer = a.connect(b.addresses[0])
        handle = a.send("s", peer, "d", wish=Wish(layered=True))
        b.close()
        handle.release(1)
        start = time.monotonic()
        report = handle.wait(15)
        assert report["verdict"] == "failed"
        assert report["peer_verdict"] == "unknown"
        assert time.monotonic() - start < 10


def test_thousands_of_transfers_leak_no_thread_and_no_descriptor(pair):
    a, b, peer = pair
    a.register("s", noise(8192))
    target = np.zeros(8192, np.uint8)
    b.register("d", target)
    a.send("s", peer, "d").wait(5)
    before = threading.active_count(), open_files()
    for _ in range(100):
        handles = [a.send("s", peer, "d") for _ in range(10)]
        assert all(handle.wait(10)["verdict"] == "done" for handle in handles)
    assert (threading.active_count(), open_files()) == before
    assert not peer.scheduler.active()
    assert not b._inbox.live()


def test_closed_agents_leave_nothing():
    before = threading.active_count(), open_files()
    with Agent("a", KEY, RAILS) as a, Agent("b", KEY, RAILS) as b:
        a.register("s", noise(MIB))
        b.register("d", np.zeros(MIB, np.uint8))
        a.send("s", a.connect(b.addresses[0]), "d").wait(10)
    assert (threading.active_count(), open_files()) == before


def test_an_agent_needs_a_long_key_and_a_free_port():
    with pytest.raises(InputError, match="key"):
        Agent("a", b"short", RAILS)
    with Agent("a", KEY, RAILS[:1]) as a, pytest.raises(DivvyError, match="in use"):
        Agent("b", KEY, RAILS[:1], port=a.port)
