"""The front's HTTP reads every split of a message alike, and refuses what two readers could read in two ways."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from divvy.adapters.front.http1 import CHUNKED, batch_of, read_head, split_body
from divvy.adapters.front.keys import read_keys
from divvy.errors import InputError


def chunked(parts):
    return b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in parts if p) + b"0\r\n\r\n"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=40), max_size=5), st.binary(max_size=20))
def test_chunks_are_joined_and_what_comes_behind_is_kept(parts, behind):
    whole = chunked(parts)
    assert split_body(whole + behind, CHUNKED) == (b"".join(parts), behind)
    for cut in range(len(whole)):
        assert split_body(whole[:cut], CHUNKED) is None, "not all there yet"


def test_the_end_of_chunks_inside_a_chunk_is_no_end():
    data = b"a0\r\n\r\n"
    assert split_body(b"%x\r\n%b" % (len(data) + 4, data), CHUNKED) is None


def test_fields_behind_the_chunks_are_passed_over():
    assert split_body(b"1\r\nx\r\n0\r\na: b\r\n\r\nGET", CHUNKED) == (b"x", b"GET")


@pytest.mark.parametrize(
    "body",
    [b"-1\r\nab", b"0x1\r\na\r\n", b"zz\r\n", b"\r\n\r\n", b"1\r\nabc\r\n", b"f" * 2000, b"fffffffff\r\n"],
)
def test_damaged_chunks_are_refused(body):
    with pytest.raises(ValueError, match="chunk"):
        split_body(body, CHUNKED)


@pytest.mark.parametrize(
    "fields",
    [
        b"Content-Length: 1\r\nContent-Length: 2",
        b"Content-Length: 1\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"Content-Length: -1",
        b"Content-Length: 1_0",
        b"Content-Length: " + b"9" * 5000,
        b"Content-Length : 1",
        b" folded",
        b"no colon",
    ],
)
def test_heads_that_could_be_read_in_two_ways_are_refused(fields):
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
        read_head(b"POST / HTTP/1.1\r\n" + fields)


def test_old_clients_are_let_go_unless_they_ask_to_stay():
    assert not read_head(b"GET / HTTP/1.0").keeps
    assert read_head(b"GET / HTTP/1.0\r\nConnection: Keep-Alive").keeps
    assert read_head(b"GET / HTTP/1.1").keeps
    assert not read_head(b"HTTP/1.0 200 OK").keeps


@pytest.mark.parametrize("size", [b"-4", b"99", b"x", b"\xb2"])
def test_a_length_of_the_json_beyond_the_body_is_refused(size):
    head = read_head(b"POST / HTTP/1.1\r\nInference-Header-Content-Length: " + size)
    with pytest.raises(ValueError, match="inference"):
        batch_of(head, b'{"inputs":[{"shape":[1]}]}')


def test_json_that_nests_for_ever_is_refused():
    head = read_head(b"POST / HTTP/1.1")
    with pytest.raises(ValueError, match="not an inference request"):
        batch_of(head, b"[" * 200_000)


HASH = "0" * 64


def test_tokens_are_found_by_their_hash():
    keys = read_keys(
        '[accounts.a]\nsha256 = ["ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"]\nadmin = true',
        "t",
    )
    assert keys.find(b"Bearer abc") == ("a", True)
    for other in (b"", b"abc", b"Basic abc", b"Bearer ", b"Bearer abd"):
        assert keys.find(other) is None


def test_a_file_of_tokens_names_all_its_faults():
    text = f'[accounts.a]\nsha256 = ["{HASH}", "short"]\n[accounts.b]\nsha256 = ["{HASH}"]\n[accounts.c]\nadmin = true\n'
    with pytest.raises(InputError) as caught:
        read_keys(text, "t.toml")
    words = str(caught.value)
    assert "'short' is no hash" in words and "a token of b is a's" in words and "accounts.c" in words
    for wrong in ("", "x", "[accounts]", "other = 1", "accounts = 3"):
        with pytest.raises(InputError):
            read_keys(wrong, "t.toml")
