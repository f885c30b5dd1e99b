"""Times of caches between the places that services held, at sampled moments, in the simulator of flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from divvy.fleet.tenant import Pairing
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.online import plan as routed
from divvy.planners.transfers.pairing import Request, pair
from divvy.planners.transfers.peers import dynamo_label
from divvy.planners.transfers.plan import Transfer
from divvy.planners.transfers.roads import Roads
from divvy.sim.flows.fluid import simulate
from divvy.sim.whole.arrange import SERVE
from divvy.sim.whole.timeline import Stay

#: Caches that every place sends at a sampled moment.
PER_PLACE: Final = 4
SIGMA: Final = 0.8


@dataclass(frozen=True, slots=True)
class Moved:
    """Times of caches, seconds, over all sampled moments; none where nothing could be sent."""

    mean_s: float
    p95_s: float
    last_s: float
    """When the last cache of a moment is there, mean over the moments."""
    caches: int
    blind: int
    """Sampled moments at which one of the two services held nothing."""


def places_at(held: Sequence[Stay], others: Sequence[Stay], now: int) -> tuple[list[str], list[str]]:
    """Return the GPUs of two services at a moment; on every node the lowest numbers, one after the other."""
    taken: dict[str, int] = {}
    out: tuple[list[str], list[str]] = ([], [])
    for some, found in zip((held, others), out, strict=True):
        for stay in some:
            if stay.begin <= now < stay.end:
                node = stay.node.removesuffix(f":{SERVE}")
                number = taken.setdefault(node, 0)
                taken[node] = number + 1
                found.append(f"{node}/GPU{number}")
    return out


def moved(
    ways: Roads,
    finder: Finder,
    pairing: Pairing,
    held: Mapping[str, Sequence[Stay]],
    moments: Sequence[int],
    seed: int,
    *,
    own: bool,
) -> Moved:
    """Return the times of the caches of a pairing.

    Args:
        ways: The roads.
        finder: Finds routes.
        pairing: Between which services, and how much.
        held: GPUs by the mark of their service.
        moments: When caches are sent, ms.
        seed: Draws their sizes.
        own: By the pairing of this product; else by equal labels in turns, and routes by Dynamo's label rule.
    """
    times: list[float] = []
    lasts: list[float] = []
    blind = 0
    for moment in moments:
        sources, targets = places_at(
            held.get(f"service:{pairing.prefill}", ()), held.get(f"service:{pairing.decode}", ()), moment
        )
        sources = [one for one in sources if one in ways.topo.vertices]
        targets = [one for one in targets if one in ways.topo.vertices]
        if not sources or not targets:
            blind += 1
            continue
        sizes = _sizes(pairing.kv_bytes, PER_PLACE * len(sources), seed, moment)
        transfers = (
            _own(ways, finder, sources, targets, sizes, pairing.descriptors)
            if own
            else _label(ways, sources, targets, sizes, pairing.descriptors)
        )
        plan = routed(ways, finder, transfers) if own else dynamo_label.plan(ways, finder, transfers)
        outcome = simulate(ways, plan.flows)
        times += outcome.by_transfer.values()
        lasts.append(outcome.makespan_s)
    if not times:
        return Moved(float("nan"), float("nan"), float("nan"), 0, blind)
    return Moved(
        float(np.mean(times)), float(np.quantile(times, 0.95)), float(np.mean(lasts)), len(times), blind
    )


def _sizes(mean_bytes: int, count: int, seed: int, moment: int) -> list[int]:
    """Return drawn sizes of caches; the first ones are the same however many are asked for."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 7_002, moment])))
    drawn = np.exp(SIGMA * rng.standard_normal(count) - SIGMA**2 / 2)
    return [max(1, int(mean_bytes * factor)) for factor in drawn]


def _own(
    ways: Roads,
    finder: Finder,
    sources: Sequence[str],
    targets: Sequence[str],
    sizes: Sequence[int],
    pieces: int,
) -> list[Transfer]:
    requests = [
        Request(f"c{n}", sources[n % len(sources)], size, ("cache",), pieces) for n, size in enumerate(sizes)
    ]
    pairs = pair(ways, finder, requests, list(targets), {})
    source = {one.id: one.source for one in requests}
    return [
        Transfer(one.request, source[one.request], one.target, one.sent_bytes, descriptors=pieces)
        for one in pairs
    ]


def _label(
    ways: Roads, sources: Sequence[str], targets: Sequence[str], sizes: Sequence[int], pieces: int
) -> list[Transfer]:
    """Return every cache on the next place of the own machine or domain, or of all where there is none."""
    out = []
    for n, size in enumerate(sizes):
        source = sources[n % len(sources)]
        home = ways.topo.vertices[source]
        near = [
            one
            for one in targets
            if (ways.topo.vertices[one].domain, ways.topo.vertices[one].machine)
            == (home.domain, home.machine)
        ]
        options = near or list(targets)
        out.append(Transfer(f"c{n}", source, options[n % len(options)], size, descriptors=pieces))
    return out
