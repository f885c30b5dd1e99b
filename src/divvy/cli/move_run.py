"""What `divvy move SRC DST` does: an agent for one transfer, and its report for people."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from divvy.errors import InputError
from divvy.transfer import Agent, Descriptor, Place, Region, Wish, read_key
from divvy.transfer.backends.local import copy
from divvy.transfer.incoming import now_us
from divvy.transfer.interfaces import choose
from divvy.transfer.places import source_file, target_file
from divvy.units import BYTES_HELP, parse_bytes

_MOST_RANDOM = 8 << 30


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of the verb, as they were given; durations in milliseconds."""

    source: str
    target: str
    key: Path | None
    rails: tuple[str, ...]
    backend: str
    descriptors: int
    priority: int
    deadline_ms: int | None
    limit_ms: int | None
    account: str
    state: Path | None


def run(asked: Asked) -> dict[str, Any]:
    """Move the bytes; return the report (``divvy.move/1``).

    Raises:
        DivvyError: If something that was given is not understood, or the other side refuses.
    """
    if asked.backend not in ("tcp", "nixl"):
        raise InputError.one(
            "backend-unknown", f"no back end {asked.backend!r}", path="--backend", allowed="tcp, nixl"
        )
    host = socket.gethostname()
    region = _source(host, asked.source)
    try:
        pieces = _pieces(region.size, asked.descriptors)
        there = _there(asked.target)
        if there is None:
            goal = target_file(host, Path(asked.target), region.size, "copy")
            try:
                return copy(region, goal, pieces)
            finally:
                goal.close()
        return _send(asked, host, region, pieces, *there)
    finally:
        region.close()


def _send(
    asked: Asked,
    host: str,
    region: Region,
    pieces: list[Descriptor],
    address: str,
    target: str | dict[str, str],
) -> dict[str, Any]:
    if asked.key is None:
        raise InputError.one("key-missing", "agents share a key", path="--key", fix="--key FILE")
    deadline_us = None if asked.deadline_ms is None else now_us() + asked.deadline_ms * 1000
    wish = Wish(
        asked.priority,
        deadline_us,
        asked.account,
        None if asked.limit_ms is None else asked.limit_ms / 1000,
    )
    with Agent(host, read_key(asked.key), choose(asked.rails), state=asked.state) as agent:
        peer = agent.connect(address, asked.backend)
        return agent.send(region, peer, target, pieces, wish).wait()


def _source(host: str, text: str) -> Region:
    """Return the bytes that are moved."""
    if not text.startswith("random:"):
        return source_file(host, Path(text))
    try:
        size = parse_bytes(text.removeprefix("random:"))
    except ValueError as error:
        raise InputError.one("bytes", str(error), path="SRC", allowed=BYTES_HELP) from error
    if not 0 < size <= _MOST_RANDOM:
        raise InputError.one("bytes", f"{size} bytes of test memory", path="SRC", allowed="1 B to 8 GiB")
    noise = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    return Region(text, Place(host), memoryview(noise.tobytes()))


def _there(text: str) -> tuple[str, str | dict[str, str]] | None:
    """Return the address of the other agent and the target there; None for a file of this host.

    Raises:
        InputError: If it looks like an address and is none.
    """
    host, _, rest = text.partition(":")
    port, _, path = rest.partition(":")
    if "/" in host or not rest:
        return None
    if not port.isdigit() or not path or path == "mem:":
        raise InputError.one(
            "target",
            f"{text!r} is no target",
            path="DST",
            allowed="HOST:PORT:/FILE, HOST:PORT:mem:NAME, a file",
        )
    return f"{host}:{port}", path.removeprefix("mem:") if path.startswith("mem:") else {"file": path}


def _pieces(size: int, count: int) -> list[Descriptor]:
    """Return equal pieces of some bytes."""
    if count > size:
        raise InputError.one("descriptors", f"{count} pieces of {size} bytes", path="--descriptors")
    edges = [size * i // count for i in range(count + 1)]
    return [Descriptor(a, a, b - a) for a, b in pairwise(edges)]


def show(document: dict[str, Any], *, as_json: bool, quiet: bool) -> None:
    """Print the report."""
    if as_json:
        print(json.dumps(document, indent=2))
        return
    if quiet:
        print(document["verdict"])
        return
    size, seconds, rate = document["bytes"], document["seconds"], document["gb_per_s"]
    print(
        f"{document['verdict']}: {size} bytes in {seconds:.3f} s, {rate:.3f} GB/s", f"({document['backend']})"
    )
    if document.get("reason"):
        print(f"  reason     {document['reason']}")
    made = document["prediction"]
    if made is not None:
        print(f"  predicted  {made['seconds']:.3f} s ({made['low_s']:.3f} to {made['high_s']:.3f})")
    for row in document["rails"]:
        print(f"  rail       {row['route']}: {row['bytes']} bytes")
    if document["retries"]:
        print(
            f"  healed     {document['retries']} chunks were sent again, {document['lost_bytes']} bytes lost"
        )
    for text in document["path_proof"]["mismatches"]:
        print(f"  PATH       {text}")
