"""Two agents in one process whose bytes go through NIXL over loopback: whole, scattered, reused, and without NIXL."""

from __future__ import annotations

import numpy as np
import pytest

from divvy.errors import InputError
from divvy.transfer import Agent, Descriptor, Rail
from divvy.transfer.backends import nixl

pytestmark = pytest.mark.e2e

KEY = b"0123456789abcdef0123456789abcdef"
RAILS = [Rail("r0", "lo", "127.0.0.1", 32)]
MIB = 1 << 20
needs_nixl = pytest.mark.skipif(not nixl.is_installed(), reason="NIXL is not installed (make engines)")


def noise(count, seed=1):
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


@pytest.fixture(scope="module")
def pair():
    with Agent("a", KEY, RAILS) as a, Agent("b", KEY, RAILS) as b:
        yield a, b, a.connect(b.addresses[0], "nixl")


@needs_nixl
def test_bytes_are_written_by_nixl_and_accounted_as_over_tcp(pair):
    a, b, peer = pair
    source, target = noise(20 * MIB + 17), np.zeros(20 * MIB + 17, np.uint8)
    a.register("s1", source)
    b.register("d1", target)
    report = a.send("s1", peer, "d1").wait(30)
    assert (report["verdict"], report["peer_verdict"], report["backend"]) == ("done", "done", "nixl")
    assert (source == target).all()
    assert report["accounted_bytes"] == report["peer_accounted_bytes"] == source.nbytes
    assert report["lost_bytes"] == 0


@needs_nixl
def test_scattered_descriptors_go_where_they_belong(pair):
    a, b, peer = pair
    source, target = noise(4 * MIB, 2), np.zeros(4 * MIB, np.uint8)
    a.register("s2", source)
    b.register("d2", target)
    apart = [Descriptor(i * 8192, 4 * MIB - (i + 1) * 8192, 4096) for i in range(300)]
    assert a.send("s2", peer, "d2", apart).wait(30)["verdict"] == "done"
    expected = np.zeros_like(target)
    for start, goal, size in apart:
        expected[goal : goal + size] = source[start : start + size]
    assert (target == expected).all()


@needs_nixl
def test_a_buffer_is_given_up_and_its_name_used_again(pair):
    a, b, peer = pair
    for seed in (3, 4):
        source, target = noise(MIB, seed), np.zeros(MIB, np.uint8)
        a.register("s3", source)
        b.register("d3", target)
        assert a.send("s3", peer, "d3").wait(30)["verdict"] == "done"
        assert (source == target).all()
        a.unregister("s3")
        b.unregister("d3")


def test_without_nixl_the_other_side_says_what_it_has(monkeypatch):
    monkeypatch.setattr(nixl, "is_installed", lambda: False)
    monkeypatch.setattr("divvy.transfer.agent.is_installed", lambda: False)
    with Agent("a", KEY, RAILS) as a, Agent("b", KEY, RAILS) as b:
        a.register("s", noise(10))
        b.register("d", np.zeros(10, np.uint8))
        assert b.hello()["backends"] == ["tcp"]
        peer = a.connect(b.addresses[0])
        peer.backend = "nixl"
        with pytest.raises(InputError, match="no back end 'nixl'"):
            a.send("s", peer, "d")
