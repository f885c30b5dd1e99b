"""Which decode place takes which prefill: by the predicted end of the transfer, never by equal labels.

What a decode place already has of a prompt (prefix blocks, as in the Mooncake trace) need not be sent; what
is being sent to it already makes it slower. A label only says that two places are near, not that the way
between them is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from divvy.errors import Fault, InputError
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.online import Online
from divvy.planners.transfers.plan import RoutePlan, Transfer
from divvy.planners.transfers.roads import Roads

GB = 1e9


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt whose KV cache must reach a decode place.

    Attributes:
        id: Unique name.
        source: Where its cache is.
        block_bytes: Bytes of a block.
        blocks: Hashes of its blocks in order; equal prefixes have equal hashes.
        descriptors: Pieces per block.
    """

    id: str
    source: str
    block_bytes: int
    blocks: tuple[str, ...]
    descriptors: int = 1


@dataclass(frozen=True, slots=True)
class Pair:
    """A decision.

    Attributes:
        request: Its id.
        target: The decode place.
        predicted_s: When its cache is there.
        sent_bytes: What has to be sent.
        cached_blocks: Blocks that were there already.
        others: Predicted time of every other place.
    """

    request: str
    target: str
    predicted_s: float
    sent_bytes: int
    cached_blocks: int
    others: Mapping[str, float]


def cached_prefix(blocks: Sequence[str], there: frozenset[str]) -> int:
    """Return how many leading blocks a place has."""
    count = 0
    for block in blocks:
        if block not in there:
            break
        count += 1
    return count


def pair(
    ways: Roads,
    finder: Finder,
    requests: Sequence[Request],
    targets: Sequence[str],
    cached: Mapping[str, frozenset[str]],
    busy_s: Mapping[str, float] | None = None,
) -> list[Pair]:
    """Return the place of each request, in order; what the ones before have loaded counts.

    Args:
        ways: The roads.
        finder: Finds routes.
        requests: In the order of their coming.
        targets: Decode places.
        cached: Block hashes that each place has.
        busy_s: When each place can begin to decode anyway; the transfer need not be earlier.
    """
    online = Online(ways, finder)
    out: list[Pair] = []
    for request in requests:
        ends: dict[str, float] = {}
        for target in targets:
            if target != request.source and online.options(request.source, target).routes:
                wait = (busy_s or {}).get(target, 0.0)
                ends[target] = max(wait, online.predict(_transfer(request, target, cached)))
        if not ends:
            continue
        best = min(ends, key=lambda t: (ends[t], targets.index(t)))
        transfer = _transfer(request, best, cached)
        kept = cached_prefix(request.blocks, cached.get(best, frozenset()))
        size = (len(request.blocks) - kept) * request.block_bytes
        if size:
            online.place(0, transfer, RoutePlan("pairing"))
        out.append(
            Pair(request.id, best, ends[best], size, kept, {t: s for t, s in ends.items() if t != best})
        )
    return out


def _transfer(request: Request, target: str, cached: Mapping[str, frozenset[str]]) -> Transfer:
    """Return what has to be sent if a place takes the request."""
    left = len(request.blocks) - cached_prefix(request.blocks, cached.get(target, frozenset()))
    pieces = max(1, left * request.descriptors)
    return Transfer(request.id, request.source, target, left * request.block_bytes, descriptors=pieces)


def spread(pairs: Sequence[Pair]) -> float:
    """Return the largest number of requests on one place over the mean: 1 is even."""
    counts = np.unique([p.target for p in pairs], return_counts=True)[1]
    return float(counts.max() / counts.mean()) if len(counts) else 1.0


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be paired: requests, decode places, and the blocks that each place has."""

    requests: list[Request]
    targets: list[str]
    cached: dict[str, frozenset[str]]


def read_requests(name: str, document: Any, ways: Roads) -> Work:
    """Return the work of a JSON document.

    ``{"requests": [{"id"?, "from", "hash_ids": [...], "block_bytes"?, "descriptors"?}], "targets": [...],
    "cached"?: {target: [hash, ...]}, "block_bytes"?}``

    Raises:
        InputError: With every fault of the document.
    """
    faults: list[Fault] = []
    body = document if isinstance(document, dict) else {}

    def place(text: Any, where: str, *, source: bool) -> str:
        try:
            return ways.end(str(text), source=source)
        except InputError as error:
            faults.extend(Fault(f.code, where, f.message, f.allowed, f.fix) for f in error.faults)
            return ""

    targets = [
        place(t, f"{name}:targets[{i}]", source=False) for i, t in enumerate(body.get("targets") or [])
    ]
    requests = []
    for i, entry in enumerate(body.get("requests") or []):
        where = f"{name}:requests[{i}]"
        blocks = entry.get("hash_ids") if isinstance(entry, dict) else None
        each = (entry.get("block_bytes") or body.get("block_bytes")) if isinstance(entry, dict) else None
        if not isinstance(blocks, list) or not isinstance(each, int) or each < 1:
            faults.append(Fault("request", where, "hash_ids (a list) and block_bytes (bytes) are needed"))
            continue
        source = place(entry.get("from"), f"{where}.from", source=True)
        hashes = tuple(str(b) for b in blocks)
        pieces = entry.get("descriptors", 1)
        if isinstance(pieces, bool) or not isinstance(pieces, int) or pieces < 1:
            faults.append(
                Fault("request", f"{where}.descriptors", f"{pieces!r} is no whole number of at least 1")
            )
            continue
        requests.append(Request(str(entry.get("id", f"r{i}")), source, each, hashes, pieces))
    if not targets or not (requests or faults):
        faults.append(Fault("request", name, "there are no targets or no requests"))
    held = body.get("cached") or {}
    if not isinstance(held, dict) or not all(isinstance(b, list) for b in held.values()):
        faults.append(Fault("request", f"{name}:cached", "it is no object of lists of hashes by target"))
        held = {}
    cached = {place(t, f"{name}:cached", source=False): frozenset(map(str, b)) for t, b in held.items()}
    if faults:
        raise InputError(f"{name} cannot be paired", faults)
    return Work(requests, targets, cached)


def pairing_document(ways: Roads, finder: Finder, work: Work) -> dict[str, Any]:
    """Return the pairs as ``divvy.route.pair/1``, beside pairing by equal labels and taking turns."""
    pairs = pair(ways, finder, work.requests, work.targets, work.cached)
    return {
        "schema": "divvy.route.pair/1",
        "pairs": [asdict(p) for p in pairs],
        "unpaired": [r.id for r in work.requests if r.id not in {p.request for p in pairs}],
        "figure": {"last_s": max((p.predicted_s for p in pairs), default=0.0), "spread": spread(pairs)},
        "baseline": {"name": "equal label, in turns", "last_s": _by_label(ways, finder, work)},
    }


def _by_label(ways: Roads, finder: Finder, work: Work) -> float:
    """Return when the last cache is there with the next place of the own domain or machine."""
    online, last, turn = Online(ways, finder), 0.0, 0
    for request in work.requests:
        home = ways.topo.vertices[request.source]
        same = [
            t
            for t in work.targets
            if t != request.source
            and (ways.topo.vertices[t].domain, ways.topo.vertices[t].machine) == (home.domain, home.machine)
        ]
        options = [
            t
            for t in same or work.targets
            if t != request.source and online.options(request.source, t).routes
        ]
        if not options:
            continue
        transfer = _transfer(request, options[turn % len(options)], work.cached)
        turn += 1
        last = max(last, online.predict(transfer))
        if transfer.size_bytes:
            online.place(0, transfer, RoutePlan("label"))
    return last
