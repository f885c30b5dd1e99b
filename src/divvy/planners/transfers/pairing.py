"""Which decode place takes which prefill: by the predicted end of the transfer, never by equal labels.

What a decode place already has of a prompt (prefix blocks, as in the Mooncake trace) need not be sent; what
is being sent to it already makes it slower. A label only says that two places are near, not that the way
between them is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

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
