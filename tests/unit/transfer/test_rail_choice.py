"""Which rails a transfer takes, and how it is cut: by hand."""

from __future__ import annotations

import pytest

from divvy.perf.transfer import Learned
from divvy.planners.transfers.rails import choose, sets_of
from divvy.transfer.machine.cut import Descriptor, chunk_bytes, cut

RATES = {"slow": 125e6, "fast": 500e6}


def test_a_large_transfer_takes_all_rails_and_a_single_chunk_the_fastest():
    large = choose(RATES, {}, 64 << 20, 1, 0.0005, most=16)
    assert large.rails == ("fast", "slow")
    assert large.prediction.seconds == pytest.approx(0.0005 + (64 << 20) / 625e6)
    assert choose(RATES, {}, 4096, 1, 0.0005, most=1).rails == ("fast",)
    assert choose({}, {}, 4096, 1, 0.0005) is None


def test_a_set_that_was_slow_once_is_taken_again_when_its_rails_are_fast():
    both, fast = Learned("tcp", 0.3), Learned("tcp", 0.5)
    for _ in range(20):
        both.observe(64 << 20, 1, 0.9)
        fast.observe(64 << 20, 1, (64 << 20) / 500e6)
    known = {("fast", "slow"): both, ("fast",): fast}
    assert choose(RATES, known, 64 << 20, 1, 0.0005, most=16).rails == ("fast", "slow")


def test_sets_begin_with_the_fastest():
    assert sets_of(RATES) == [("fast",), ("slow",), ("fast", "slow")]


def test_neighbours_are_joined_and_chunks_are_full_and_in_order():
    pieces = [Descriptor(i * 1000, i * 1000, 1000) for i in range(200)]
    chunks = cut(pieces, 65536)
    assert [c.size for c in chunks] == [65536, 65536, 65536, 200_000 - 3 * 65536]
    assert all(len(c.fragments) == 1 for c in chunks)
    assert [c.last for c in chunks] == [65, 131, 196, 199]


def test_a_chunk_holds_at_most_the_budget_and_never_two_layers():
    apart = [Descriptor(i * 100, i * 200, 50) for i in range(10)]
    assert [len(c.fragments) for c in cut(apart, 65536, 4)] == [4, 4, 2]
    assert [c.last for c in cut(apart, 65536, layered=True)] == list(range(10))


@pytest.mark.parametrize(("total", "size"), [(1, 64 << 10), (1 << 40, 4 << 20)])
def test_chunks_grow_with_the_transfer(total, size):
    assert chunk_bytes(total) == size
