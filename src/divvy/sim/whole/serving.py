"""How many queries were answered in time, piece by piece, by replay of a sample of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from divvy.planners.queries.registry import find_rule
from divvy.planners.slices.base import Request, shares_runs
from divvy.sim.queries.arrivals import make_stream
from divvy.sim.queries.judge import service_table
from divvy.sim.queries.kernel import replay
from divvy.sim.whole.timeline import Piece

#: Most queries that are replayed of one piece; a piece that cannot keep up is far behind after so many.
SAMPLE: Final = 2_000
_LEAST: Final = 200


@dataclass(frozen=True, slots=True)
class Attained:
    """What became of a service's queries.

    Attributes:
        queries: How many there were.
        in_time: Part that met the objective.
        kept: Part of the time in which the objective held: its percentile, in every bucket where asked.
        dark: Part of the time in which nothing served.
    """

    queries: float
    in_time: float
    kept: float
    dark: float


def attained(request: Request, some: Sequence[Piece], begin: int, seed: int) -> Attained:
    """Return what became of the queries of some pieces from a time (ms) on.

    The queue of a piece begins empty: what a piece leaves undone is not carried into the next one.
    """
    stage = _Stage(request)
    total = good = kept = dark = time = 0.0
    for place, piece in enumerate(some):
        if piece.end <= begin:
            continue
        seconds = (piece.end - max(piece.begin, begin)) / 1000
        queries = piece.rate_qps * seconds
        total, time = total + queries, time + seconds
        if not piece.slices:
            dark += seconds
            continue
        part, met = stage.piece(piece, queries, seed * 1_000_003 + place)
        good += part * queries
        kept += seconds * met
    return Attained(
        total, good / total if total else 1.0, kept / time if time else 1.0, dark / time if time else 0.0
    )


class _Stage:
    """Replays samples of pieces; tables of service times are made once per set of slices."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._edges = [low for low, _ in request.batches.buckets()] if request.per_bucket else [1]
        self._tables: dict[tuple[tuple[int, ...], bool], NDArray[np.int64]] = {}

    def piece(self, piece: Piece, queries: float, seed: int) -> tuple[float, bool]:
        """Return the part of a sample that was in time, and whether the objective held on it."""
        request = self._request
        rule, params = find_rule(piece.dispatcher)
        key = piece.slices, shares_runs(piece.dispatcher)
        if key not in self._tables:
            self._tables[key] = service_table(request, piece.slices, batching=key[1])
        size = int(min(max(queries, _LEAST), SAMPLE))
        load = make_stream(request.batches, size, seed).at(piece.rate_qps)
        price = np.array(piece.slices, np.float64)
        run = replay(rule, params, load, request.slo_us, self._tables[key], price)
        late = (run.chosen < 0) | (run.finish - load.arrivals > request.slo_us)
        bucket = np.searchsorted(self._edges, load.batches, side="right") - 1
        count = np.bincount(bucket)
        tardy = np.bincount(bucket[late], minlength=count.size)
        allowed = np.maximum(np.floor((1 - request.percentile / 100) * count + 1e-9), 1)
        return 1 - float(late.mean()), bool((tardy <= allowed).all())
